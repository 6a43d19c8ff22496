//! Files of a new tool, from the template of its language.

use std::fs;
use std::path::Path;

use super::embedded;
use super::language::Language;
use super::{names, rust_sdk};
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Directory of the library of the SDK in a tool.
const LIBRARY: &str = "toolcell/";

/// Files of templates whose names begin with a dot in a tool.
const HIDDEN: [&str; 3] = ["clang-format", "gitignore", "prettierignore"];

/// Files of a new tool by their paths, sorted.
pub(crate) fn files(name: &str, language: Language) -> Vec<(String, String)> {
    let function = name.replace('-', "_");
    let fill = |text: &str| text.replace("{{name}}", name).replace("{{function}}", &function);
    let template = embedded::below(language.template()).map(|(path, content)| {
        // Stored without the dot, so that it has no effect in the repository.
        let dot = if HIDDEN.contains(&path) { "." } else { "" };
        (format!("{dot}{}", fill(path)), fill(content))
    });
    let library = language.library().into_iter().flat_map(|dir| {
        embedded::below(dir).map(|(path, content)| (format!("{LIBRARY}{path}"), content.to_owned()))
    });
    let mut files: Vec<(String, String)> = template.chain(library).collect();
    if language == Language::Rust {
        files.extend(rust_sdk::files());
    }
    files.sort();
    files
}

/// Writes a new tool into a directory that must not exist yet.
///
/// # Errors
/// Returns an error if the name is invalid, the directory exists, or a file cannot be written.
pub(crate) fn create(dir: &Path, name: &str, language: Language) -> Result<(), Failure> {
    let fail = |exit| Failure::new(exit, text!("could not create the tool `{}`", name.to_owned()));
    names::check(name, language).map_err(|reason| fail(Exit::Usage).why(reason).hint("take another name"))?;
    fs::create_dir(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => fail(Exit::Usage)
            .why(text!("`{}` exists already", dir.display()))
            .hint("take another name, or remove it"),
        _ => fail(Exit::Io).because(error),
    })?;
    for (path, content) in files(name, language) {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| fail(Exit::Io).because(error))?;
        }
        toolcell_fs::replace(&path, content.as_bytes(), toolcell_fs::SHARED)
            .map_err(|error| fail(Exit::Io).because(error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::authoring::manifest::Manifest;

    #[test]
    fn every_template_has_what_a_good_author_keeps() {
        for language in Language::value_variants() {
            let dir = tempfile::tempdir().unwrap();
            let tool = dir.path().join("split-bill");
            create(&tool, "split-bill", *language).unwrap();
            let manifest = Manifest::read(&tool).unwrap();
            assert_eq!(
                (manifest.name.as_str(), manifest.language),
                ("split-bill", *language)
            );
            for file in ["README.md", ".gitignore", &manifest.main] {
                assert!(tool.join(file).is_file(), "{language:?}: {file}");
            }
            for (path, content) in files("split-bill", *language) {
                assert!(!path.contains("{{") && !content.contains("{{name}}"), "{path}");
                assert!(!content.contains("{{function}}"), "{path}");
            }
            let source = fs::read_to_string(tool.join(&manifest.main)).unwrap();
            assert!(
                source.contains("split_bill") && source.contains("is zero"),
                "{source}"
            );
        }
    }

    #[test]
    fn existing_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let refused = create(dir.path(), "x", Language::Js).unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let refused = create(&dir.path().join("y"), "Y", Language::Js).unwrap_err();
        assert!(refused.to_string().contains("lower-case"), "{refused}");
        assert!(!dir.path().join("y").exists());
    }
}
