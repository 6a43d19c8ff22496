//! `tool.toml`, the manifest of a tool that `toolcell tool build` builds.

use std::path::{Component, Path};

use serde::Deserialize;
use toolcell_fs::Rules;

use super::language::{Language, Wasi};
use crate::config::user_files;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Name of the manifest.
pub(crate) const FILE: &str = "tool.toml";

/// Maximum size of a manifest, in bytes. It has four keys.
const MAX_BYTES: u64 = 64 << 10;

/// Maximum length of the name of a tool, as in the contract.
const MAX_NAME: usize = 64;

/// Names that mean something else in one of the languages or in the template.
const RESERVED: [&str; 76] = [
    "abstract",
    "and",
    "as",
    "assert",
    "async",
    "auto",
    "await",
    "bool",
    "boolean",
    "break",
    "byte",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "core",
    "crate",
    "def",
    "default",
    "defer",
    "del",
    "delete",
    "do",
    "double",
    "dyn",
    "elif",
    "else",
    "enum",
    "error",
    "except",
    "export",
    "extern",
    "false",
    "finally",
    "float",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "go",
    "goto",
    "if",
    "impl",
    "import",
    "in",
    "int",
    "interface",
    "is",
    "lambda",
    "let",
    "long",
    "loop",
    "main",
    "match",
    "mod",
    "new",
    "null",
    "or",
    "pass",
    "pub",
    "return",
    "self",
    "std",
    "string",
    "struct",
    "switch",
    "test",
    "tool",
    "toolcell",
    "true",
    "type",
    "while",
    "with",
];

/// Manifest of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Name of the component: `NAME.wasm`.
    pub(crate) name: String,
    pub(crate) language: Language,
    /// Source file with the tools, below the directory of the manifest.
    pub(crate) main: String,
    /// Parts of WASI that the tool uses. Rust imports what it uses by itself.
    #[serde(default)]
    pub(crate) wasi: Vec<Wasi>,
}

impl Manifest {
    /// Reads the manifest of a directory.
    ///
    /// # Errors
    /// Returns an error if there is none, or it is invalid.
    pub(crate) fn read(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let fail = || Failure::new(Exit::Usage, text!("`{}` cannot be used", path.display()));
        let content = toolcell_fs::read_text(&path, &Rules::found(MAX_BYTES)).map_err(|error| {
            let is_missing = error.is_not_found();
            let failure = user_files::because(fail(), error);
            if is_missing {
                failure.hint("name the directory of a tool; `toolcell tool new` makes one")
            } else {
                failure
            }
        })?;
        let manifest: Self = toml::from_str(&content).map_err(|error| fail().because(error))?;
        manifest.check().map_err(|reason| fail().why(reason))?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), Text> {
        check_name(&self.name)?;
        let parts = || Path::new(&self.main).components();
        let is_below = parts().next().is_some() && parts().all(|part| matches!(part, Component::Normal(_)));
        // Compilers would read a leading hyphen as an option.
        if !is_below || self.main.starts_with('-') || self.main.contains(|c: char| c.is_control()) {
            return Err(text!(
                "`main` is not a file below this directory: `{}`",
                self.main
            ));
        }
        Ok(())
    }

    /// Returns `true` if the tool uses this part of WASI.
    pub(crate) fn uses(&self, wasi: Wasi) -> bool {
        self.wasi.contains(&wasi)
    }
}

/// Checks the name of a tool: lower-case letters, digits, `_` and `-`, which all languages and file systems take.
pub(crate) fn check_name(name: &str) -> Result<(), Text> {
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
    if RESERVED.contains(&name) {
        return Err(text!("`{}` is a word of a programming language", name.to_owned()));
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

    fn read(content: &str) -> Result<Manifest, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), content).unwrap();
        Manifest::read(dir.path()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn manifest_names_language_source_and_wasi() {
        let text = "name = \"roman\"\nlanguage = \"js\"\nmain = \"src/tool.js\"\nwasi = [\"files\"]\n";
        let manifest = read(text).unwrap();
        assert_eq!(manifest.language, Language::Js);
        assert!(manifest.uses(Wasi::Files) && !manifest.uses(Wasi::Http));
        for (from, to, reason) in [
            ("js\"", "cobol\"", "unknown variant `cobol`"),
            ("files", "sockets", "unknown variant `sockets`"),
            ("wasi", "wasy", "unknown field `wasy`"),
            ("src/tool.js", "../tool.js", "not a file below"),
            ("src/tool.js", "/tool.js", "not a file below"),
            ("src/tool.js", "-o", "not a file below"),
            ("src/tool.js", "", "not a file below"),
            ("roman", "Roman", "lower-case letters"),
        ] {
            let refused = read(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{from} {to}: {refused}");
        }
        assert!(Manifest::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn name_has_at_most_64_characters() {
        for (name, is_valid) in [
            ("a".repeat(MAX_NAME), true),
            ("a".repeat(MAX_NAME + 1), false),
            (String::new(), false),
            ("9a".into(), false),
            ("a-b_c9".into(), true),
            ("a/b".into(), false),
            ("class".into(), false),
            ("con".into(), false),
            ("console".into(), true),
            ("com1".into(), false),
            ("lpt9".into(), false),
            ("com0".into(), true),
            ("com10".into(), true),
        ] {
            assert_eq!(check_name(&name).is_ok(), is_valid, "{name}");
        }
        assert!(RESERVED.is_sorted());
    }
}
