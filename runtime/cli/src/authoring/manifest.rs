//! `tool.toml`, the manifest of a tool that `toolcell tool build` builds.

use std::path::{Component, Path};

use serde::Deserialize;
use toolcell_fs::Rules;

use super::language::{Language, Wasi};
use super::names;
use crate::config::user_files;
use crate::error::{Exit, Failure};
use crate::packages::wants::{PackageManifest, Want};
use crate::ui::terminal::{Text, text};

/// Name of the manifest.
pub(crate) const FILE: &str = "tool.toml";

/// Maximum size of a manifest, in bytes.
const MAX_BYTES: u64 = 64 << 10;

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
    /// Version of the package, shown to users before they add it.
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    license: Option<String>,
    /// Grants that the tool needs.
    #[serde(default)]
    wants: Vec<Want>,
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
        names::check(&self.name, self.language)?;
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

    /// Returns what the component says of itself; `None` if there is nothing to say but its name.
    pub(crate) fn package(&self) -> Option<PackageManifest> {
        let is_told = self.version.is_some() || self.license.is_some() || !self.wants.is_empty();
        is_told.then(|| PackageManifest {
            name: Some(self.name.clone()),
            version: self.version.clone(),
            license: self.license.clone(),
            wants: self.wants.clone(),
        })
    }

    /// Returns `true` if the tool uses this part of WASI.
    pub(crate) fn uses(&self, wasi: Wasi) -> bool {
        self.wasi.contains(&wasi)
    }
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
            ("wasi", "wants = [{ grant = \"root=/\" }]\nwasi", "root=/"),
            (
                "wasi",
                "wants = [{ reason = \"x\" }]\nwasi",
                "missing field `grant`",
            ),
        ] {
            let refused = read(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{from} {to}: {refused}");
        }
        assert!(Manifest::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn component_says_what_the_manifest_tells_beside_its_name() {
        let text = "name = \"roman\"\nlanguage = \"js\"\nmain = \"src/tool.js\"\n";
        assert_eq!(read(text).unwrap().package(), None);
        let told =
            format!("{text}version = \"1.2.0\"\nwants = [{{ grant = \"env=KEY\", reason = \"why\" }}]\n");
        let package = read(&told).unwrap().package().unwrap();
        assert_eq!(
            (package.name.as_deref(), package.version.as_deref()),
            (Some("roman"), Some("1.2.0"))
        );
        assert_eq!(package.wants[0].grant.to_string(), "env=KEY");
    }
}
