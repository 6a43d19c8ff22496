//! Compiler errors for an author's mistakes: message and position.

#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source with the SDK and returns the first error with its position, as `error: ... --> line:column`.
fn first_error(name: &str, source: &str) -> String {
    let said = errors(name, source);
    let error = said
        .lines()
        .find(|line| line.starts_with("error"))
        .unwrap_or_default();
    let place = said
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("--> "))
        .unwrap_or_default();
    let place = place.rsplit(".rs:").next().unwrap_or_default();
    let note = said
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("= note: "))
        .unwrap_or_default();
    let error = error
        .trim_start_matches(|c: char| c != ':')
        .trim_start_matches(": ");
    if note.is_empty() || note.starts_with("this error originates") {
        format!("{place} {error}")
    } else {
        format!("{place} {error} ({note})")
    }
}

/// Compiles a source with the SDK, which fails, and returns what the compiler writes.
fn errors(name: &str, source: &str) -> String {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let file = std::env::temp_dir().join(format!("toolcell-mistake-{}-{name}.rs", std::process::id()));
    let prelude = "use toolcell_sdk::{Context, Result, tool};\n";
    std::fs::write(&file, format!("{prelude}{source}\nfn main() {{}}\n")).unwrap();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args([
            "--edition=2024",
            "--emit=metadata",
            "--error-format=human",
            "--color=never",
            "--cap-lints=allow",
        ])
        .arg("--out-dir")
        .arg(std::env::temp_dir())
        .arg("-L")
        .arg(format!("dependency={}", deps.display()))
        .arg("--extern")
        .arg(format!("toolcell_sdk={}", sdk_library(&deps).display()))
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{name} compiles");
    said
}

/// The library that cargo built for this test: the newest one.
fn sdk_library(deps: &Path) -> PathBuf {
    std::fs::read_dir(deps)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("libtoolcell_sdk-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("cargo builds the library before its tests")
}

#[test]
fn parameter_type_without_traits_is_named_at_its_position() {
    let source = "struct Mine;\n/// Docs.\n#[tool]\nfn f(a: u8, mine: Mine) {}";
    assert_eq!(
        first_error("parameter", source),
        "5:19 `Mine` cannot be a parameter of a tool (put `#[toolcell_sdk::input]` on the type, or derive \
         `serde::Deserialize` and `schemars::JsonSchema`)"
    );
}

#[test]
fn invalid_return_type_is_named_at_its_position() {
    let source = "struct Mine;\n/// Docs.\n#[tool]\nfn f() -> Result<Mine> { Ok(Mine) }";
    let error = first_error("answer", source);
    assert!(
        error.starts_with("5:18 `Mine` cannot be returned by a tool (a tool returns text, `()`, "),
        "{error}"
    );
}

#[test]
fn invalid_error_type_is_named_at_its_position() {
    let source = "struct Mine;\n/// Docs.\n#[tool]\nfn f() -> Result<u8, Mine> { Err(Mine) }";
    let error = first_error("error", &source.replace("Result<", "std::result::Result<"));
    assert!(
        error.starts_with(
            "5:35 `Mine` cannot be the error of a tool (the error of a tool is `toolcell_sdk::ToolError`, "
        ),
        "{error}"
    );
}

#[test]
fn each_unsuitable_type_gives_one_error() {
    let tool = "struct Mine;\n/// D.\n#[tool]\nfn f";
    for (name, signature) in [
        ("type-parameter", "(mine: Mine) {}"),
        ("type-default", "(#[default(Mine)] mine: Mine) {}"),
        ("type-all", "(#[arguments] mine: Mine) {}"),
        ("type-answer", "() -> Mine { Mine }"),
        ("type-result", "() -> Result<Mine> { Ok(Mine) }"),
        ("type-error", "() -> std::result::Result<(), Mine> { Ok(()) }"),
    ] {
        let said = errors(name, &format!("{tool}{signature}\ntoolcell_sdk::export!(f);"));
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!(errors.len(), 2, "{name}: {said}");
        assert!(errors[0].contains("`Mine` cannot be "), "{name}: {said}");
        assert_eq!(
            errors[1], "error: aborting due to 1 previous error",
            "{name}: {said}"
        );
    }
}

#[test]
fn each_unsuitable_field_gives_one_error() {
    let prelude = "use toolcell_sdk::{input, output};\nstruct Mine;\nstruct Other;\n";
    for (name, item, types) in [
        (
            "field-input",
            "#[input]\nstruct S { a: u8, mine: Vec<Mine> }",
            &["Vec<Mine>"][..],
        ),
        (
            "field-output",
            "#[output]\nstruct S(Option<Mine>);",
            &["Option<Mine>"],
        ),
        (
            "field-enum",
            "#[input]\n#[serde(tag = \"kind\")]\nenum S { A { mine: Mine }, B { other: Other, s: Option<Box<S>> } }",
            &["Mine", "Other"],
        ),
    ] {
        let said = errors(name, &format!("{prelude}{item}"));
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error[")).collect();
        assert_eq!(errors.len(), types.len(), "{name}: {said}");
        for (error, ty) in errors.iter().zip(types) {
            assert!(
                error.contains(&format!("{ty}` cannot be a field of an")),
                "{name}: {said}"
            );
        }
    }
}

/// Returns the only error of a source, with its notes.
fn only_error(name: &str, source: &str) -> String {
    let said = errors(name, source);
    let errors = said.lines().filter(|line| line.starts_with("error"));
    assert_eq!(errors.count(), 2, "{name}: {said}");
    assert!(
        said.contains("aborting due to 1 previous error"),
        "{name}: {said}"
    );
    said
}

#[test]
fn exported_function_without_the_attribute_is_named() {
    let note = "= note: put `#[toolcell_sdk::tool]` on the function";
    for (name, source) in [
        ("export-type", "struct Mine;\ntoolcell_sdk::export!(Mine);"),
        ("export-function", "fn Mine() {}\ntoolcell_sdk::export!(Mine);"),
        (
            "export-path",
            "mod tools { pub fn Mine() {} }\ntoolcell_sdk::export!(tools::Mine);",
        ),
        (
            "export-second",
            "/// D.\n#[tool]\nfn f() {}\nmod tools { pub(crate) fn Mine() {} }\n\
             use tools::Mine;\ntoolcell_sdk::export!(f, Mine,);",
        ),
        (
            "export-local",
            "fn local() { fn Mine() {} toolcell_sdk::export!(Mine); }",
        ),
    ] {
        let said = only_error(name, source);
        assert!(
            said.contains("`Mine` is not a tool") && said.contains(note),
            "{name}: {said}"
        );
    }
}

#[test]
fn exported_name_that_is_absent_or_private_gives_one_error() {
    let tools = "mod tools { /// D.\n#[toolcell_sdk::tool]\nfn f() {} }\n";
    for (name, source, error) in [
        (
            "export-absent",
            "toolcell_sdk::export!(absent);",
            "unresolved import `absent`",
        ),
        (
            "export-private",
            "toolcell_sdk::export!(tools::f);",
            "`f` is private",
        ),
    ] {
        let said = only_error(name, &format!("{tools}{source}"));
        assert!(said.contains(error), "{name}: {said}");
    }
}

#[test]
fn second_export_of_a_crate_is_an_error_that_says_so() {
    let tools = "/// D.\n#[tool]\nfn f() {}\n/// D.\n#[tool]\nfn g() {}\ntoolcell_sdk::export!(f);\n";
    let hook = |name: &str| {
        format!(
            "struct {name};\n/// Looks.\n#[toolcell_sdk::hook]\nimpl toolcell_sdk::hook::Hook for {name} {{ {MOMENT} }}\n\
             toolcell_sdk::export_hook!({name});\n"
        )
    };
    for (name, source, said) in [
        (
            "tools-twice",
            format!("{tools}toolcell_sdk::export!(g);"),
            "one_export_has_to_list_all_tools",
        ),
        (
            "tools-twice-below",
            format!("{tools}mod below {{ toolcell_sdk::export!(super::g); }}"),
            "one_export_has_to_list_all_tools",
        ),
        (
            "hooks-twice",
            hook("A") + &hook("B"),
            "one_hook_of_a_crate_is_exported",
        ),
    ] {
        let error = only_error(name, &source);
        let said = format!("the name `{said}` is defined multiple times");
        assert!(error.contains(&said), "{name}: {error}");
    }
}

#[test]
fn invalid_tools_get_readable_errors() {
    for (name, source, error) in [
        (
            "docs",
            "#[tool]\nfn f() {}",
            "3:4 a tool needs a description for the model: write a doc comment (`///`) on the function",
        ),
        (
            "generic",
            "/// D.\n#[tool]\nfn f<T>(t: T) {}",
            "4:5 a tool cannot have generic parameters",
        ),
        (
            "reference",
            "/// D.\n#[tool]\nfn f(a: &[u8]) {}",
            "4:9 a parameter of a tool must own its value; only `&str` and `&toolcell_sdk::Context` can be borrowed",
        ),
        (
            "pattern",
            "/// D.\n#[tool]\nfn f((a, b): (u8, u8)) {}",
            "4:6 a parameter of a tool must be a plain name",
        ),
        (
            "option",
            "/// D.\n#[tool(readonly)]\nfn f() {}",
            "3:8 unknown option of a tool; valid options are `name`, `title`, `read_only`, `destructive`, `idempotent`, \
             `open_world`, `output`",
        ),
        (
            "name",
            "/// D.\n#[tool(name = \"a b\")]\nfn f() {}",
            "3:15 invalid name `a b`: expected 1 to 64 of a-z, A-Z, 0-9, `_` and `-`, starting with a letter",
        ),
        (
            "hints",
            "/// D.\n#[tool(read_only, destructive)]\nfn f() {}",
            "3:8 a tool that is `read_only` cannot be `destructive`",
        ),
        (
            "item",
            "#[tool]\nstruct S;",
            "3:1 `#[tool]` must be placed on a function",
        ),
    ] {
        assert_eq!(first_error(name, source), error);
    }
}

#[test]
fn each_mistake_in_a_tool_gives_one_error() {
    let source = "#[tool(readonly)]\nunsafe fn f<T>((a, b): (u8, u8), c: &[u8], #[alias(\"d\")] d: u8) {}\n\
                  toolcell_sdk::export!(f);";
    let said = errors("several", source);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error:")).collect();
    for (part, number) in [
        ("unknown option of a tool", 1),
        ("cannot be an `unsafe` function", 1),
        ("cannot have generic parameters", 1),
        ("must be a plain name", 1),
        ("must own its value", 1),
        ("needs a description", 1),
        ("`d` already names a parameter of this tool", 1),
        ("", 8),
    ] {
        let found = errors.iter().filter(|error| error.contains(part)).count();
        assert_eq!(found, number, "{part}: {said}");
    }
    assert!(
        errors
            .last()
            .unwrap()
            .contains("aborting due to 7 previous errors"),
        "{said}"
    );
}

#[test]
fn tools_with_equal_names_do_not_compile() {
    let error = first_error(
        "twice",
        "/// D.\n#[tool]\nfn f() {}\ntoolcell_sdk::export!(f, f);",
    );
    assert!(error.contains("two tools have the same name"), "{error}");
}

/// A hook point.
const MOMENT: &str = "fn after_turn(_: &toolcell_sdk::hook::TurnEnd, _: &mut toolcell_sdk::hook::Turn) -> Result<()> { Ok(()) }";

#[test]
fn hook_that_is_not_exported_is_named_at_its_position() {
    let hook = "struct Watch;\n/// Looks.\n#[toolcell_sdk::hook]\nimpl toolcell_sdk::hook::Hook for Watch";
    let source = format!("{hook} {{ {MOMENT} }}");
    only_error("hook-forgotten", &source);
    assert_eq!(
        first_error("hook-forgotten", &source),
        "5:35 the hook `Watch` is not exported (add `toolcell_sdk::export_hook!(Watch);`)"
    );
    let said = only_error("hook-none", "struct Watch;\ntoolcell_sdk::export_hook!(Watch);");
    assert!(
        said.contains("`Watch` is not a hook") && said.contains("put `#[toolcell_sdk::hook]` on an `impl"),
        "{said}"
    );
}

#[test]
fn hook_needs_a_description_a_point_and_valid_options() {
    let hook = |options: &str, docs: &str, moment: &str| {
        format!(
            "struct H;\n{docs}\n#[toolcell_sdk::hook({options})]\nimpl toolcell_sdk::hook::Hook for H {{ {moment} }}"
        )
    };
    let moment = MOMENT;
    for (name, source, said) in [
        ("hook-words", hook("", "", moment), "a hook needs a description"),
        (
            "hook-moment",
            hook("", "/// Looks.", ""),
            "a hook needs at least one hook point",
        ),
        (
            "hook-option",
            hook("guards", "/// Looks.", moment),
            "unknown option of a hook; valid options are `name`, `guard`, `priority`, `before`, `after`",
        ),
        (
            "hook-name",
            hook("name = \"a b\"", "/// Looks.", moment),
            "invalid name `a b`",
        ),
        (
            "hook-attribute",
            format!("struct H;\nimpl toolcell_sdk::hook::Hook for H {{ {moment} }}"),
            "not all trait items implemented, missing: `CLAIMS`",
        ),
    ] {
        let error = first_error(name, &source);
        assert!(error.contains(said), "{name}: {error}");
    }
}
