//! Components with functions of several kinds.

use std::sync::Arc;

use serde_json::json;
use toolcell_core::{Content, Policy, Secrets, ToolError};

use super::{ECHO, call, load, sandbox};
use crate::{Ability, ComponentKind, LoadError, Sandbox, SandboxOptions};

/// A component with the function `add`, the interface `demo:math/ops@1.0.0` with `try` and `hello`, and further items.
fn math(items: &str) -> String {
    format!(
        r#"(component {ECHO}
(core module $n
  (import "m" "memory" (memory 2))
  (data (i32.const 64) "no luck")
  (data (i32.const 80) "say \"hi\"")
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "nothing"))
  (func (export "try") (param i32) (result i32)
    (i32.store8 (i32.const 32) (i32.ne (local.get 0) (i32.const 0)))
    (i32.store (i32.const 36) (select (i32.const 64) (i32.const 7) (local.get 0)))
    (i32.store (i32.const 40) (i32.const 7))
    (i32.const 32))
  (func (export "hello") (result i32)
    (i32.store (i32.const 32) (i32.const 80))
    (i32.store (i32.const 36) (i32.const 8))
    (i32.const 32)))
(core instance $j (instantiate $n (with "m" (instance $i))))
(func $add (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $j "add")))
(func $nothing (canon lift (core func $j "nothing")))
(func $try (param "n" u32) (result (result u32 (error string)))
  (canon lift (core func $j "try") (memory $i "memory")))
(func $hello (result string) (canon lift (core func $j "hello") (memory $i "memory")))
(instance $ops (export "try" (func $try)) (export "hello" (func $hello)))
(export "add-up" (func $add))
(export "demo:math/ops@1.0.0" (instance $ops))
{items})"#
    )
}

#[tokio::test]
async fn functions_are_tools_named_after_their_interface() {
    let component = load(&sandbox(), &math("")).await.unwrap();
    assert_eq!(component.kind(), ComponentKind::Functions);
    let specs = component.definitions();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["add-up", "ops_try", "ops_hello"]);
    assert_eq!(
        specs[1].description,
        "Function `try` of the interface `demo:math/ops@1.0.0`. Parameters: `n` (unsigned 32-bit integer). \
         Result: unsigned 32-bit integer, or an error (string). Its author left no description."
    );
    assert_eq!(
        specs[0].input.as_value()["properties"]["a"],
        json!({"type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32})
    );
    assert_eq!(
        (component.left_out(), component.abilities()),
        (&[][..], Vec::<Ability>::new())
    );
}

#[tokio::test]
async fn result_is_structured_and_its_error_fails_the_call() {
    let component = load(&sandbox(), &math("(export \"nothing\" (func $nothing))"))
        .await
        .unwrap();
    let of = async |name: &str, arguments| call(&component, Policy::default(), name, arguments).await;
    let sum = of("add-up", json!({"a": 2, "b": 3})).await;
    assert_eq!(
        (sum.content, sum.structured),
        (vec![], Some(json!({"result": 5})))
    );
    let receipt = sum.receipt.unwrap();
    assert!(
        receipt.fuel > 0 && receipt.bytes_in == 13 && receipt.bytes_out == 1,
        "{receipt:?}"
    );
    let seven = of("ops_try", json!({"n": 0})).await;
    assert_eq!(seven.structured, Some(json!({"result": 7})));
    let failed = of("ops_try", json!({"n": 1})).await;
    assert_eq!(
        failed.error,
        Some(ToolError::Failed {
            message: "no luck".into()
        })
    );
    // A text is the content as well, without quotes.
    let hello = of("ops_hello", json!({})).await;
    assert_eq!(hello.content, [Content::text("say \"hi\"")]);
    assert_eq!(hello.structured, Some(json!({"result": "say \"hi\""})));
    let nothing = of("nothing", json!({})).await;
    assert_eq!(
        (nothing.content, nothing.structured, nothing.error),
        (vec![], None, None)
    );
}

#[tokio::test]
async fn arguments_are_refused_before_the_guest_runs() {
    let component = load(&sandbox(), &math("")).await.unwrap();
    let refused = call(&component, Policy::default(), "add-up", json!({"a": 2, "b": -1})).await;
    let message = "at /b: -1 is no integer between 0 and 4294967295".to_owned();
    assert_eq!(refused.error, Some(ToolError::InvalidArguments { message }));
    assert_eq!(refused.receipt.unwrap().fuel, 0);
}

#[tokio::test]
async fn function_that_cannot_be_a_tool_is_left_out_with_its_reason() {
    let items = r#"
(type $r (resource (rep i32)))
(export $thing "thing" (type $r))
(func $drop (param "thing" (own $thing)) (canon lift (core func $k "use")))
(export "use-thing" (func $drop))
(func $init (param "script" u32) (param "entry-path" u32) (result u32) (canon lift (core func $j "add")))
(export "init" (func $init))"#;
    let module = r#"(core module $o (func (export "use") (param i32))) (core instance $k (instantiate $o))"#;
    let component = load(&sandbox(), &math(&format!("{module}{items}")))
        .await
        .unwrap();
    let left_out: Vec<_> = (component.left_out().iter())
        .map(|left_out| (left_out.function.as_str(), left_out.reason))
        .collect();
    assert_eq!(
        left_out,
        [
            (
                "use-thing",
                "it uses a resource, which exists only within one call"
            ),
            ("init", "it is called when the component is built"),
        ]
    );
    assert_eq!(component.definitions().len(), 3);
    let alone = format!(
        "(component {ECHO} {module} {})",
        items.split("(func $init").next().unwrap()
    );
    let refused = load(&sandbox(), &alone).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no function of the component can be a tool: `use-thing`: it uses a resource, which exists only within one call"
    );
    assert!(refused.hint().unwrap().contains("without resources"));
}

#[tokio::test]
async fn functions_of_interfaces_of_one_name_have_the_whole_name() {
    let items = r#"(instance $second (export "try" (func $try)))
        (export "demo:math/ops@2.0.0-rc.1" (instance $second))
        (instance $other (export "hello" (func $hello)))
        (export "demo:other/ops" (instance $other))"#;
    let component = load(&sandbox(), &math(items)).await.unwrap();
    let specs = component.definitions();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "add-up",
            "demo_math_ops_1_0_0_try",
            "demo_math_ops_1_0_0_hello",
            "demo_math_ops_2_0_0-rc_1_try",
            "demo_other_ops_hello",
        ]
    );
    for name in &names[1..] {
        let result = call(&component, Policy::default(), name, json!({"n": 0})).await;
        let is_known = !matches!(&result.error, Some(ToolError::UnknownTool { .. }));
        assert!(is_known, "{name}: {result:?}");
    }
}

#[tokio::test]
async fn functions_with_the_same_tool_name_are_refused() {
    // The whole name has 65 characters.
    let long = format!("demo:{}/ops", "x".repeat(52));
    let items = format!(
        r#"(instance $other (export "try" (func $nothing))) (export "{long}" (instance $other))
        (instance $second (export "try" (func $nothing))) (export "{long}@1.0.0" (instance $second))"#
    );
    let refused = load(&sandbox(), &math(&items)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "the functions `{long}#try` and `{long}@1.0.0#try` of the component have the same tool name, `ops_try`"
        )
    );
}

#[tokio::test]
async fn component_without_functions_is_no_tool() {
    let types = r#"(component (type $t (record (field "a" u8))) (export "t" (type $t)))"#;
    let refused = load(&sandbox(), types).await.unwrap_err();
    assert!(matches!(refused, LoadError::NotATool { .. }), "{refused}");
}

#[tokio::test]
async fn component_with_experimental_features_is_refused_with_a_remedy() {
    let text = r#"(component (core func $f (canon error-context.drop)) (type $t u8) (export "t" (type $t)))"#;
    let refused = load(&sandbox(), text).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the component uses a disabled WebAssembly feature: cm-error-context"
    );
    assert!(refused.hint().unwrap().contains("not final"));
}

/// Adds doc comments for `add-up`.
fn documented(docs: &str) -> String {
    let json = json!({"worlds": {"w": {"func_exports": {"add-up": {"docs": docs}}}}}).to_string();
    let data: String = json.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    math(&format!("(@custom \"package-docs\" \"\\01{data}\")"))
}

#[tokio::test]
async fn doc_comment_is_the_description_up_to_its_limit() {
    let component = load(&sandbox(), &documented("Adds numbers.\n\nOf any kind."))
        .await
        .unwrap();
    assert_eq!(
        component.definitions()[0].description,
        "Adds numbers.\n\nOf any kind."
    );
    for (size, is_cut) in [(10 << 10, false), ((10 << 10) + 1, true)] {
        let component = load(&sandbox(), &documented(&"x".repeat(size))).await.unwrap();
        let description = &component.definitions()[0].description;
        assert_eq!(description.ends_with(" bytes cut]"), is_cut);
        assert!(description.len() <= 10 << 10, "{}", description.len());
    }
}

#[tokio::test]
async fn definitions_of_functions_come_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cached = || {
        Sandbox::new(SandboxOptions {
            slots: 8,
            optimize: false,
            cache_dir: Some(dir.path().join("cache")),
            ..SandboxOptions::default()
        })
        .unwrap()
    };
    let bytes = wat::parse_str(documented("Adds.")).unwrap();
    let (first, second) = (cached(), cached());
    let made = first.load("x.wasm", &bytes).await.unwrap();
    let found = second.load("x.wasm", &bytes).await.unwrap();
    assert_eq!(made.definitions(), found.definitions());
    assert_eq!(
        (second.statistics().compiled, second.statistics().from_cache),
        (0, 1)
    );
    let described = cached().describe("x.wasm", &bytes).await.unwrap();
    assert_eq!(described.definitions(), made.definitions());
    let sum = call(&found, Policy::default(), "add-up", json!({"a": 1, "b": 1})).await;
    assert_eq!(sum.structured, Some(json!({"result": 2})));
}

#[tokio::test]
async fn secret_in_the_result_of_a_function_is_redacted() {
    let component = load(&sandbox(), &math("")).await.unwrap();
    let mut secrets = Secrets::default();
    secrets.insert("key", "say \"hi\"").unwrap();
    let tools = component.tools_with_secrets(Arc::default(), &secrets).unwrap();
    let tool = tools
        .iter()
        .find(|tool| tool.spec().name.as_str() == "ops_hello")
        .unwrap();
    let call = toolcell_core::ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments: serde_json::Map::new(),
    };
    let result = tool.call(call, toolcell_core::CallContext::unobserved()).await;
    assert_eq!(result.content, [Content::text("[redacted:key]")]);
    assert_eq!(result.structured, Some(json!({"result": "[redacted:key]"})));
}
