//! Names of tools that their language can take.

use super::language::Language;
use crate::ui::terminal::{Own, Text, text};

/// Maximum length of the name of a tool, as in the contract.
const MAX_NAME: usize = 64;

/// Names that mean something else in every template.
const OF_ALL: &[&str] = &["main", "test", "tool", "toolcell"];

/// Keywords of the 2021 and 2024 editions (The Rust Reference, "Keywords"), primitive types, which the type of the tool would hide,
/// and crates that every program has.
const RUST: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "bool",
    "box",
    "break",
    "char",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "f32",
    "f64",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "i128",
    "i16",
    "i32",
    "i64",
    "i8",
    "if",
    "impl",
    "in",
    "isize",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "str",
    "struct",
    "super",
    "toolcell-sdk",
    "toolcell_sdk",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "u128",
    "u16",
    "u32",
    "u64",
    "u8",
    "unsafe",
    "unsized",
    "use",
    "usize",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Reserved words of modules and of strict mode (ECMA-262, section 12.7.2), which TypeScript has as well, and what the templates import.
const JAVASCRIPT: &[&str] = &[
    "arguments",
    "await",
    "boolean",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "number",
    "optional",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Keywords (Python language reference, section 2.3.1), and builtins that the template uses.
const PYTHON: &[&str] = &[
    "and", "as", "assert", "async", "await", "bool", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "float", "for", "from", "global", "if", "import", "in", "int", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "str", "try", "while", "with", "yield",
];

/// Elements of import paths with a meaning of their own.
const GO: &[&str] = &["internal", "vendor"];

/// Checks the name of a tool: lower-case letters, digits, `_` and `-`, which all file systems take, and no word with another
/// meaning in its language.
pub(super) fn check(name: &str, language: Language) -> Result<(), Text> {
    let is_valid = name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !is_valid {
        return Err(text!(
            "a name has 1 to {} lower-case letters, digits, `_` and `-`, the first one a letter: `{}`",
            MAX_NAME,
            name.to_owned()
        ));
    }
    let reserved: &[&str] = match language {
        Language::Rust => RUST,
        Language::Js | Language::Ts => JAVASCRIPT,
        Language::Python => PYTHON,
        Language::Go => GO,
        // Their templates use the name in texts, and as a part of names.
        Language::C | Language::Cpp | Language::Zig | Language::AssemblyScript => &[],
    };
    let function = name.replace('-', "_");
    if OF_ALL.contains(&name) || reserved.contains(&name) || reserved.contains(&function.as_str()) {
        return Err(text!(
            "`{}` has another meaning in a tool in {}",
            name.to_owned(),
            Own(language.title())
        ));
    }
    // Devices of Windows with a number: `com1` to `com9`, `lpt1` to `lpt9`.
    let is_port = |prefix| matches!(name.strip_prefix(prefix).map(str::as_bytes), Some([b'1'..=b'9']));
    if ["aux", "con", "nul", "prn"].contains(&name) || is_port("com") || is_port("lpt") {
        return Err(text!(
            "`{}` is a device on Windows, where no file can have this name",
            name.to_owned()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_at_most_64_characters_and_is_no_device() {
        for (name, is_valid) in [
            ("a".repeat(MAX_NAME), true),
            ("a".repeat(MAX_NAME + 1), false),
            (String::new(), false),
            ("9a".into(), false),
            ("a-b_c9".into(), true),
            ("a/b".into(), false),
            ("main".into(), false),
            ("con".into(), false),
            ("console".into(), true),
            ("com1".into(), false),
            ("lpt9".into(), false),
            ("com0".into(), true),
        ] {
            assert_eq!(check(&name, Language::C).is_ok(), is_valid, "{name}");
        }
    }

    #[test]
    fn imports_of_a_template_are_no_names() {
        for (language, template) in [
            (
                Language::Js,
                include_str!("../../../../sdk/javascript/template-js/src/tool.js"),
            ),
            (
                Language::Ts,
                include_str!("../../../../sdk/javascript/template-ts/src/tool.ts"),
            ),
        ] {
            let (_, rest) = template.split_once("import {").unwrap();
            let (imports, _) = rest.split_once('}').unwrap();
            for import in imports.split(',') {
                assert!(check(import.trim(), language).is_err(), "{import}");
            }
        }
    }

    #[test]
    fn words_of_its_language_are_no_names() {
        for (language, refused, taken) in [
            (Language::Rust, ["move", "f64", "proc-macro"], "raise"),
            (Language::Js, ["var", "eval", "throw"], "move"),
            (Language::Ts, ["var", "eval", "throw"], "move"),
            (Language::Python, ["raise", "float", "nonlocal"], "move"),
            (Language::Go, ["vendor", "internal", "main"], "time"),
            (Language::C, ["main", "test", "tool"], "union"),
            (Language::Cpp, ["main", "test", "tool"], "private"),
            (Language::Zig, ["main", "test", "tool"], "u8"),
            (Language::AssemblyScript, ["main", "test", "tool"], "class"),
        ] {
            for name in refused {
                assert!(check(name, language).is_err(), "{name}: {language:?}");
            }
            assert!(check(taken, language).is_ok(), "{taken}: {language:?}");
        }
    }
}
