//! `toolcell.lock`: what each tool was when a person approved of it.
//!
//! It holds digests of the bytes, of what the model is told (name, title, description, schemas, of each tool), the
//! imports, and the grants. A tool that changes afterwards, in its code or only in its words, is refused by `--locked`,
//! and the person reads what changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolcell_core::ToolSpec;
use toolcell_sandbox::Digest;

use crate::environment::Environment;
use crate::report::{Exit, Failure};
use crate::toolbox::Loaded;

/// Name of the file, in the working directory.
pub(crate) const FILE: &str = "toolcell.lock";

/// The form of the file.
const VERSION: u32 = 1;

/// Largest lock file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

const HEADER: &str = "\
# Written by `toolcell lock`. `toolcell run --locked` refuses tools that differ from it.
";

/// The whole file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockFile {
    version: u32,
    /// Components by name.
    #[serde(default)]
    components: BTreeMap<String, Locked>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Locked {
    /// Digest of its bytes.
    digest: String,
    /// What it imports.
    imports: Vec<String>,
    /// What it was granted.
    grants: Vec<String>,
    /// Its tools by name.
    tools: BTreeMap<String, LockedTool>,
}

/// What the model is told about one tool, as digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedTool {
    /// Of title, description, hints and annotations.
    words: String,
    /// Of the schema of the arguments.
    input: String,
    /// Of the schema of the answer.
    output: String,
}

impl LockFile {
    /// The lock of these components.
    pub(crate) fn of<'a>(loaded: impl IntoIterator<Item = &'a Loaded>) -> Self {
        Self {
            version: VERSION,
            components: loaded
                .into_iter()
                .map(|loaded| (loaded.settings.name.clone(), Locked::of(loaded)))
                .collect(),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = toml::to_string(self).map_err(std::io::Error::other)?;
        std::fs::write(path, format!("{HEADER}{text}"))
    }

    /// The names of the components in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.components.keys().map(String::as_str)
    }
}

impl Locked {
    fn of(loaded: &Loaded) -> Self {
        let component = &loaded.component;
        let mut imports: Vec<String> = component
            .imports()
            .iter()
            .map(|import| import.name.clone())
            .collect();
        imports.sort_unstable();
        let mut grants: Vec<String> = loaded
            .settings
            .grants
            .iter()
            .map(|line| line.grant.to_string())
            .collect();
        grants.sort_unstable();
        grants.dedup();
        Self {
            digest: component.digest().to_string(),
            imports,
            grants,
            tools: component
                .definitions()
                .iter()
                .map(|spec| (spec.name.to_string(), LockedTool::of(spec)))
                .collect(),
        }
    }

    /// Every way in which `now` differs from this.
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, tool) in &now.tools {
            match self.tools.get(name) {
                None => found.push(format!("the tool `{name}` is new")),
                Some(locked) => {
                    let changed = [
                        (locked.words != tool.words, "the description"),
                        (locked.input != tool.input, "the schema of the arguments"),
                        (locked.output != tool.output, "the schema of the answer"),
                    ];
                    found.extend(
                        changed
                            .into_iter()
                            .filter(|(changed, _)| *changed)
                            .map(|(_, what)| format!("{what} of `{name}` changed")),
                    );
                }
            }
        }
        let gone = self.tools.keys().filter(|name| !now.tools.contains_key(*name));
        found.extend(gone.map(|name| format!("the tool `{name}` is gone")));
        let new_imports = now.imports.iter().filter(|import| !self.imports.contains(import));
        found.extend(new_imports.map(|import| format!("it imports `{import}`, which is new")));
        let gone_imports = self.imports.iter().filter(|import| !now.imports.contains(import));
        found.extend(gone_imports.map(|import| format!("it no longer imports `{import}`")));
        let new_grants = now.grants.iter().filter(|grant| !self.grants.contains(grant));
        found.extend(
            new_grants.map(|grant| format!("the grant `{grant}` is not among those that are locked")),
        );
        if self.digest != now.digest {
            found.push(if found.is_empty() {
                "its code changed, and nothing that the model reads".into()
            } else {
                "its code changed".into()
            });
        }
        found
    }
}

impl LockedTool {
    fn of(spec: &ToolSpec) -> Self {
        let digest = |value: serde_json::Value| Digest::of(value.to_string().as_bytes()).to_string();
        Self {
            words: digest(json!([
                spec.title,
                spec.description,
                spec.hints,
                spec.annotations
            ])),
            input: digest(spec.input.as_value().clone()),
            output: digest(
                spec.output
                    .as_ref()
                    .map(|schema| schema.as_value().clone())
                    .into(),
            ),
        }
    }
}

/// Where the lock file lies.
pub(crate) fn path(environment: &Environment) -> PathBuf {
    environment.cwd.join(FILE)
}

/// Reads the lock file.
///
/// # Errors
/// When there is none, or it is none.
pub(crate) fn read(environment: &Environment) -> Result<LockFile, Failure> {
    let path = path(environment);
    let fail = || Failure::new(Exit::Config, format!("`{FILE}` cannot be used"));
    let metadata = std::fs::metadata(&path).map_err(|e| {
        fail()
            .because(e)
            .hint("`toolcell lock` writes it, once you have looked at the tools with `toolcell tool inspect`")
    })?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(fail().why("it is no lock file"));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| fail().because(e))?;
    let lock: LockFile = toml::from_str(&text).map_err(|e| fail().why(e.to_string()))?;
    if lock.version != VERSION {
        return Err(fail()
            .why(format!(
                "it has version {}, and this Toolcell knows {VERSION}",
                lock.version
            ))
            .hint("write it anew with `toolcell lock`"));
    }
    Ok(lock)
}

/// Refuses components that are not what the lock file says.
///
/// # Errors
/// Says every difference.
pub(crate) fn check(loaded: &[Loaded], environment: &Environment) -> Result<(), Failure> {
    let lock = read(environment)?;
    let mut differing = Vec::new();
    for loaded in loaded {
        let name = &loaded.settings.name;
        match lock.components.get(name) {
            None => differing.push(format!("`{name}` is not locked")),
            Some(locked) => {
                let differences = locked.differences(&Locked::of(loaded));
                differing.extend(
                    differences
                        .into_iter()
                        .map(|difference| format!("`{name}`: {difference}")),
                );
            }
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::Denied, format!("the tools differ from `{FILE}`"));
    for difference in differing {
        failure = failure.why(difference);
    }
    Err(failure.hint("look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> Locked {
        let tool = LockedTool {
            words: "w".into(),
            input: "i".into(),
            output: "o".into(),
        };
        Locked {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            tools: BTreeMap::from([("t".to_owned(), tool)]),
        }
    }

    #[test]
    fn every_difference_is_named() {
        let differences = |change: &dyn Fn(&mut Locked)| {
            let mut now = locked();
            change(&mut now);
            locked().differences(&now)
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed, and nothing that the model reads"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().words = "x".into()),
            ["the description of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().input = "x".into()),
            ["the schema of the arguments of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().output = "x".into()),
            ["the schema of the answer of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.imports.push("b".into())),
            ["it imports `b`, which is new"]
        );
        assert_eq!(
            differences(&|now| now.imports.clear()),
            ["it no longer imports `a`"]
        );
        assert_eq!(
            differences(&|now| now.grants.push("http=*".into())),
            ["the grant `http=*` is not among those that are locked"]
        );
        // Less than was approved needs no approval.
        assert_eq!(differences(&|now| now.grants.clear()), Vec::<String>::new());
        assert_eq!(differences(&|now| now.tools.clear()), ["the tool `t` is gone"]);
    }

    #[test]
    fn a_lock_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let lock = LockFile {
            version: VERSION,
            components: BTreeMap::from([("text".to_owned(), locked())]),
        };
        lock.write(&path(&environment)).unwrap();
        assert_eq!(read(&environment).unwrap(), lock);
    }
}
