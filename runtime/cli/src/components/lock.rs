//! `toolcell.lock`: what each tool was when a person approved of it.
//!
//! It holds digests of the bytes, of what the model is told (name, title, description, schemas, of each tool), the
//! imports, and the grants. A tool that changes afterwards, in its code or only in its words, is refused by `--locked`,
//! and the person reads what changed. The same for hooks, of which the model reads nothing: bytes, moments, imports, grants,
//! and whether they guard.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolcell_core::{Grant, Hook as _, ToolSpec};
use toolcell_fs::Rules;
use toolcell_sandbox::{Digest, Identity};

use crate::components::loader::{Loaded, LoadedHook};
use crate::config::ToolSettings;
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Name of the file, in the working directory.
pub(crate) const FILE: &str = "toolcell.lock";

/// The form of the file.
const VERSION: u32 = 1;

/// Largest lock file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

const HEADER: &str = "\
# Written by `toolcell lock`. `toolcell run --locked` refuses tools and hooks that differ from it.
";

/// The whole file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockFile {
    version: u32,
    /// Components by name.
    #[serde(default)]
    components: BTreeMap<String, Locked>,
    /// Hooks by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hooks: BTreeMap<String, LockedHook>,
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

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedHook {
    /// Digest of its bytes.
    digest: String,
    /// What it imports.
    imports: Vec<String>,
    /// What it was granted.
    grants: Vec<String>,
    /// When it is asked.
    moments: Vec<String>,
    /// Whether it guards.
    guard: bool,
}

impl LockFile {
    /// The lock of these components.
    pub(crate) fn of<'a>(
        loaded: impl IntoIterator<Item = &'a Loaded>,
        hooks: impl IntoIterator<Item = &'a LoadedHook>,
    ) -> Self {
        Self {
            version: VERSION,
            components: loaded
                .into_iter()
                .map(|loaded| (loaded.settings.name.clone(), Locked::of(loaded)))
                .collect(),
            hooks: hooks
                .into_iter()
                .map(|hook| (hook.settings.component.name.clone(), LockedHook::of(hook)))
                .collect(),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the file cannot be written, or something else than a file of this user stands in its place.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let fail = || Failure::new(Exit::Config, text!("`{}` cannot be written", FILE));
        let text = toml::to_string(self).map_err(|e| fail().because(e))?;
        toolcell_fs::replace(path, format!("{HEADER}{text}").as_bytes(), toolcell_fs::SHARED).map_err(
            |error| {
                let hint = error
                    .refusal()
                    .is_none()
                    .then(|| "change into a directory that you may write to".to_owned());
                user_files::because(fail(), error).hints(hint)
            },
        )
    }

    /// What is in it, for a person.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let hooks = self.hooks.keys().map(|name| format!("the hook {name}"));
        self.components.keys().cloned().chain(hooks)
    }
}

impl Locked {
    fn of(loaded: &Loaded) -> Self {
        let component = &loaded.component;
        let (imports, grants) = reach(component.identity(), &loaded.settings);
        Self {
            digest: component.digest().to_string(),
            imports,
            grants,
            tools: component
                .definitions()
                .iter()
                .filter(|spec| loaded.settings.offers(spec.name.as_str()))
                .map(|spec| (spec.name.to_string(), LockedTool::of(spec)))
                .collect(),
        }
    }

    /// Every way in which `now` differs from this. A tool that `is_defined` and not offered any more is no difference:
    /// less than was approved needs no approval.
    fn differences(&self, now: &Self, is_defined: impl Fn(&str) -> bool) -> Vec<String> {
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
        let gone = self.tools.keys().filter(|name| !is_defined(name));
        found.extend(gone.map(|name| format!("the tool `{name}` is gone")));
        found.extend(reach_differences(
            (&self.imports, &self.grants),
            (&now.imports, &now.grants),
        ));
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

impl LockedHook {
    fn of(loaded: &LoadedHook) -> Self {
        let component = &loaded.component;
        let (imports, grants) = reach(component.identity(), &loaded.settings.component);
        let points = component.spec().points.iter();
        Self {
            digest: component.identity().digest().to_string(),
            imports,
            grants,
            moments: points.map(|point| point.as_str().to_owned()).collect(),
            guard: loaded.hook.spec().guard,
        }
    }

    /// Every way in which `now` differs from this.
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.moments != now.moments {
            found.push(format!(
                "it is asked at {}, and was at {}",
                now.moments.join(", "),
                self.moments.join(", ")
            ));
        }
        if self.guard && !now.guard {
            found.push("it is no guard any more".into());
        }
        found.extend(reach_differences(
            (&self.imports, &self.grants),
            (&now.imports, &now.grants),
        ));
        if self.digest != now.digest {
            found.push("its code changed".into());
        }
        found
    }
}

/// The imports of a component and its grants, in a fixed order. Where its secrets go is a grant as well.
fn reach(identity: &Identity, settings: &ToolSettings) -> (Vec<String>, Vec<String>) {
    let imports = identity.imports().iter();
    let mut imports: Vec<String> = imports.map(|import| import.name.clone()).collect();
    imports.sort_unstable();
    let secrets = settings
        .bindings
        .iter()
        .map(|binding| format!("secret {binding}"));
    let grants = settings.grants.iter().map(|line| line.grant.to_string());
    let mut grants: Vec<String> = grants.chain(secrets).collect();
    grants.sort_unstable();
    grants.dedup();
    (imports, grants)
}

/// What a component can ask for and could not before, and the other way round; and what it is granted beyond what was
/// approved. Each side is imports and grants.
fn reach_differences(
    (imports, grants): (&[String], &[String]),
    (imports_now, grants_now): (&[String], &[String]),
) -> Vec<String> {
    let mut found = Vec::new();
    let new_imports = imports_now.iter().filter(|import| !imports.contains(import));
    found.extend(new_imports.map(|import| format!("it imports `{import}`, which is new")));
    let gone_imports = imports.iter().filter(|import| !imports_now.contains(import));
    found.extend(gone_imports.map(|import| format!("it no longer imports `{import}`")));
    // A line that denies takes away: it may come, and may not go.
    let is_denial = |line: &&String| line.parse::<Grant>().is_ok_and(|grant| grant.is_denial());
    let new_grants = grants_now.iter().filter(|grant| !grants.contains(grant));
    found.extend(
        new_grants
            .filter(|line| !is_denial(line))
            .map(|grant| format!("the grant `{grant}` is not among those that are locked")),
    );
    let gone = grants.iter().filter(|grant| !grants_now.contains(grant));
    found.extend(
        gone.filter(is_denial)
            .map(|line| format!("the denial `{line}` is locked and holds no more")),
    );
    found
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
    let fail = || Failure::new(Exit::Config, text!("`{}` cannot be used", FILE));
    let text = toolcell_fs::read_text(&path, &Rules::found(MAX_BYTES)).map_err(|error| {
        let hint = error.is_not_found().then(|| {
            "`toolcell lock` writes it, once you have looked at the tools with `toolcell tool inspect`"
                .to_owned()
        });
        user_files::because(fail(), error).hints(hint)
    })?;
    let lock: LockFile = toml::from_str(&text).map_err(|e| fail().why(e.to_string()))?;
    if lock.version != VERSION {
        return Err(fail()
            .why(text!(
                "it has version {}, and this Toolcell knows {}",
                lock.version,
                VERSION
            ))
            .hint("write it anew with `toolcell lock`"));
    }
    Ok(lock)
}

/// Refuses components that are not what the lock file says. `hooks` is `None` for a call without a turn, in which no hook
/// takes part.
///
/// # Errors
/// Says every difference.
pub(crate) fn check(
    loaded: &[Loaded],
    hooks: Option<&[LoadedHook]>,
    environment: &Environment,
) -> Result<(), Failure> {
    let lock = read(environment)?;
    let mut differing = Vec::new();
    for loaded in loaded {
        let name = &loaded.settings.name;
        match lock.components.get(name) {
            None => differing.push(format!("`{name}` is not locked")),
            Some(locked) => {
                let definitions = loaded.component.definitions();
                let is_defined = |name: &str| definitions.iter().any(|spec| spec.name.as_str() == name);
                let differences = locked.differences(&Locked::of(loaded), is_defined);
                differing.extend(
                    differences
                        .into_iter()
                        .map(|difference| format!("`{name}`: {difference}")),
                );
            }
        }
    }
    if let Some(hooks) = hooks {
        differing.extend(hook_differences(&lock, hooks));
    }
    if differing.is_empty() {
        return Ok(());
    }
    let has_hooks = hooks.is_some_and(|hooks| !hooks.is_empty() || !lock.hooks.is_empty());
    let what = if has_hooks {
        "the tools or hooks differ"
    } else {
        "the tools differ"
    };
    let mut failure = Failure::new(Exit::Denied, text!("{} from `{}`", what, FILE));
    for difference in differing {
        failure = failure.why(difference);
    }
    Err(failure.hint("look at what changed with `toolcell tool inspect`; `toolcell lock` approves of it"))
}

/// Every hook that is not what the lock file says, or not there.
fn hook_differences(lock: &LockFile, hooks: &[LoadedHook]) -> Vec<String> {
    let mut differing = Vec::new();
    let mut gone: Vec<&String> = lock.hooks.keys().collect();
    for hook in hooks {
        let name = &hook.settings.component.name;
        gone.retain(|locked| *locked != name);
        match lock.hooks.get(name) {
            None => differing.push(format!("the hook `{name}` is not locked")),
            Some(locked) => {
                let differences = locked.differences(&LockedHook::of(hook)).into_iter();
                differing.extend(differences.map(|difference| format!("the hook `{name}`: {difference}")));
            }
        }
    }
    // A tool that takes no part does nothing; a hook that takes none lets everything pass.
    let gone = gone.into_iter();
    differing.extend(gone.map(|name| format!("the hook `{name}` is locked and takes no part")));
    differing
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

    fn locked_hook() -> LockedHook {
        LockedHook {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            moments: vec!["before_call".into()],
            guard: true,
        }
    }

    #[test]
    fn every_difference_of_a_hook_is_named() {
        let differences = |change: &dyn Fn(&mut LockedHook)| {
            let mut now = locked_hook();
            change(&mut now);
            locked_hook().differences(&now)
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed"]
        );
        assert_eq!(
            differences(&|now| now.moments = vec!["after_call".into()]),
            ["it is asked at after_call, and was at before_call"]
        );
        assert_eq!(differences(&|now| now.guard = false), ["it is no guard any more"]);
        assert_eq!(
            differences(&|now| now.imports.push("b".into())),
            ["it imports `b`, which is new"]
        );
        assert_eq!(
            differences(&|now| now.grants = vec!["write=.".into()]),
            ["the grant `write=.` is not among those that are locked"]
        );
        // Less reach than was approved needs no approval.
        assert_eq!(differences(&|now| now.grants.clear()), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.grants.push("deny=private".into())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn every_difference_is_named() {
        let differences = |change: &dyn Fn(&mut Locked)| {
            let mut now = locked();
            change(&mut now);
            locked().differences(&now, |name| now.tools.contains_key(name))
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
        let mut fewer = locked();
        fewer.tools.clear();
        assert_eq!(locked().differences(&fewer, |_| true), Vec::<String>::new());
        assert_eq!(fewer.differences(&locked(), |_| true), ["the tool `t` is new"]);
    }

    #[test]
    fn a_lock_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let lock = LockFile {
            version: VERSION,
            components: BTreeMap::from([("text".to_owned(), locked())]),
            hooks: BTreeMap::from([("guard".to_owned(), locked_hook())]),
        };
        lock.write(&path(&environment)).unwrap();
        assert_eq!(read(&environment).unwrap(), lock);
    }
}
