//! Errors of a call, and what it leaves behind.

use super::*;

#[tokio::test]
async fn trap_is_a_crash_with_a_cause_and_the_next_call_is_fresh() {
    let probe = Probe {
        module: "(global $used (mut i32) (i32.const 0)) (func $deep unreachable)".into(),
        run: "(if (global.get $used) (then (drop (i32.div_u (i32.const 1) (i32.const 0)))))
              (global.set $used (i32.const 1)) (call $deep) unreachable"
            .into(),
        ..Probe::default()
    };
    let component = load(&sandbox(), &probe).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    for _ in 0..2 {
        let (result, observed) = call(&*tool).await;
        let Err(ToolError::Crashed { cause, output: None }) = result else {
            panic!("{result:?}")
        };
        assert!(cause.contains("unreachable"), "{cause}");
        observed.receipt();
        // The log shows where it ended, for debugging the tool.
        let stack = observed.messages(LogSource::Backtrace);
        assert!(stack.len() == 1 && stack[0].starts_with("deep < "), "{stack:?}");
        assert_eq!(observed.messages(LogSource::Host), [""; 0]);
    }
}

#[tokio::test]
async fn memory_written_by_one_call_is_zero_in_the_next() {
    let probe = Probe {
        pages: 40,
        run: "(local.set $i (i32.const 131072))
            (loop $next
              (if (i32.load (local.get $i)) (then unreachable))
              (i32.store (local.get $i) (i32.const -1))
              (local.set $i (i32.add (local.get $i) (i32.const 4)))
              (br_if $next (i32.lt_u (local.get $i) (i32.const 2621440))))
            (call $text (i32.const 0) (i32.const 0))"
            .into(),
        ..Probe::default()
    };
    let component = load(&sandbox(), &probe).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    for _ in 0..20 {
        call(&*tool).await.0.unwrap();
    }
}

#[tokio::test]
async fn each_error_of_a_guest_keeps_its_kind_and_is_bounded() {
    let failing = |case: u32, len: u32| {
        Probe::running(&format!(
            "(call $error (i32.const {case}) (i32.const 70000) (i32.const {len}))"
        ))
    };
    let zeros = "\0".repeat(3);
    for (case, expected) in [
        (0, ToolError::invalid(zeros.clone())),
        (1, ToolError::denied(zeros.clone(), None)),
        (
            2,
            ToolError::Unavailable {
                message: zeros.clone(),
            },
        ),
        (
            3,
            ToolError::Failed {
                message: zeros.clone(),
            },
        ),
    ] {
        assert_eq!(run(&failing(case, 3), Policy::default()).await.0, Err(expected));
    }
    let (result, observed) = run(&failing(4, 3), Policy::default()).await;
    assert!(matches!(result, Err(ToolError::Failed { message }) if !message.contains('\0')));
    assert_eq!(observed.messages(LogSource::Log), [&zeros]);

    let (result, _) = run(&failing(3, 60_000), Policy::default()).await;
    let Err(ToolError::Failed { message }) = result else {
        panic!("{result:?}")
    };
    assert!(
        message.len() < 20_000 && message.ends_with("bytes cut]"),
        "{}",
        message.len()
    );
}

/// A probe that returns structured output.
fn structured(text: &str, schema: Option<&str>) -> Probe {
    let bytes: String = text.bytes().map(|b| format!("\\{b:02x}")).collect();
    Probe {
        module: format!("(data (i32.const 1024) \"{bytes}\")"),
        run: format!(
            "(call $answer (i32.const 0) (i32.const 0) (i32.const 1024) (i32.const {}))",
            text.len()
        ),
        output: schema.map(Into::into),
        ..Probe::default()
    }
}

#[tokio::test]
async fn structured_output_with_an_inexact_number_is_refused() {
    for (text, kept) in [
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("1e-400", false),
    ] {
        let (result, _) = run(&structured(&format!("{{\"n\":{text}}}"), None), Policy::default()).await;
        match result {
            Ok(output) => {
                assert!(kept, "{text}");
                assert_eq!(output.structured.unwrap()["n"].to_string(), text);
            }
            Err(error) => assert!(
                !kept && error.to_string().contains("a number that cannot be represented"),
                "{error}"
            ),
        }
    }
}

#[tokio::test]
async fn structured_output_must_match_the_schema_of_the_tool() {
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let (result, _) = run(&structured(r#"{"n":1}"#, Some(schema)), Policy::default()).await;
    assert_eq!(result.unwrap().structured, Some(json!({"n": 1})));
    let (result, _) = run(&structured("[1]", None), Policy::default()).await;
    assert_eq!(result.unwrap().structured, Some(json!([1])));
    for (text, schema, cause) in [
        ("{\"n\":", None, "its structured output is not valid JSON"),
        ("{\"n\":1e999}", None, "its structured output is not valid JSON"),
        (
            "{\"n\":\"\\ud800\"}",
            None,
            "its structured output is not valid JSON",
        ),
        (
            r#"{"n":"x"}"#,
            Some(schema),
            "does not match its own schema: at /n:",
        ),
    ] {
        let (result, observed) = run(&structured(text, schema), Policy::default()).await;
        let Err(ToolError::Crashed { cause: text, .. }) = result else {
            panic!("{text}: {result:?}")
        };
        assert!(text.contains(cause), "{text}");
        observed.receipt();
    }
}

/// An observer that panics.
struct Fragile;

impl CallObserver for Fragile {
    fn log(&self, _line: LogLine) {
        panic!("planted");
    }

    fn receipt(&self, _receipt: toolcell_core::Receipt) {
        panic!("planted as well, while the first one unwinds");
    }
}

#[tokio::test]
async fn panic_in_a_host_function_fails_only_that_call() {
    let probe = logging(&format!(
        "(call $log (i32.const 2) (i32.const 1024) (i32.const 5)) {DONE}"
    ));
    let component = load(&sandbox(), &probe).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    let context = CallContext {
        observer: Arc::new(Fragile),
        ..CallContext::unobserved()
    };
    let error = tool.call(call_of(json!({})), context).await.error;
    assert!(matches!(error, Some(ToolError::Crashed { .. })), "{error:?}");
    let (result, observed) = call(&*tool).await;
    assert_eq!(result, Ok(CallResult::text("")));
    assert_eq!(observed.messages(LogSource::Log), ["hello"]);
}

/// A session that lets no call start.
struct Closed;

impl CallObserver for Closed {
    fn check_start(&self) -> Result<(), ToolError> {
        Err(ToolError::denied("planted", None))
    }
}

#[tokio::test]
async fn call_that_may_not_start_runs_no_guest() {
    let component = load(&sandbox(), &Probe::running("unreachable")).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    let context = CallContext {
        observer: Arc::new(Closed),
        ..CallContext::unobserved()
    };
    let result = tool.call(call_of(json!({})), context).await;
    assert_eq!(result.error, Some(ToolError::denied("planted", None)));
    assert_eq!(result.receipt.unwrap().fuel, 0);
}
