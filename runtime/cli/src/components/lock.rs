//! `toolcell.lock`: the tools and hooks as they were when the user approved them.
//!
//! It holds digests of the bytes and of everything a model reads about each tool (name, title, description, schemas),
//! the imports, and the grants. `--locked` refuses a tool that has changed since, in code or in description only, and
//! lists the differences. For a hook, which no model reads about, it holds the bytes, hook points, imports, grants, and
//! the guard flag.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolcell_core::{Grant, ToolSpec};
use toolcell_fs::Rules;
use toolcell_sandbox::{Digest, Identity};

use crate::components::loader::{Loaded, LoadedHook};
use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::user_files;
use crate::config::{ComponentSource, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::lock::{Difference, LockedServer};
use crate::mcp::servers::Servers;
use crate::packages::store::{self, Package};
use crate::packages::wants::PackageManifest;
use crate::ui::terminal::{Own, Shown, Text, text};

/// Name of the lock file, in the working directory.
pub(crate) const FILE: &str = "toolcell.lock";

/// Version of the file format.
const VERSION: u32 = 1;

/// Maximum size of a lock file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

const HEADER: &str = "\
# Written by `toolcell lock`. `toolcell run --locked` refuses tools and hooks that differ from it.
";

/// Contents of the lock file.
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
    /// MCP servers by name.
    #[serde(default, rename = "mcp", skip_serializing_if = "BTreeMap::is_empty")]
    servers: BTreeMap<String, LockedServer>,
}

/// Locked component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Locked {
    /// Digest of its bytes.
    digest: String,
    /// Imports of the component.
    imports: Vec<String>,
    /// Grants of the component.
    grants: Vec<String>,
    /// Origin of the package, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Publisher who signed it, if one is pinned: a key, or an identity of Sigstore with its issuer. Locks of older versions have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publisher: Option<String>,
    /// Grants that its author proposes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wants: Vec<String>,
    /// Its tools by name.
    tools: BTreeMap<String, LockedTool>,
}

/// Digests of what a model reads about one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedTool {
    /// Digest of title, description, hints and annotations.
    description: String,
    /// Digest of the input schema.
    input: String,
    /// Digest of the output schema.
    output: String,
}

/// Locked hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedHook {
    /// Digest of its bytes.
    digest: String,
    /// Imports of the component.
    imports: Vec<String>,
    /// Grants of the hook.
    grants: Vec<String>,
    /// Hook points that the component subscribes to.
    #[serde(rename = "moments")]
    points: Vec<String>,
    /// True if the hook is a guard.
    guard: bool,
}

impl LockFile {
    /// Creates the lock of these components, hooks and MCP servers.
    pub(crate) fn of<'a>(
        loaded: impl IntoIterator<Item = &'a Loaded>,
        hooks: impl IntoIterator<Item = &'a LoadedHook>,
        servers: &Servers,
        environment: &Environment,
    ) -> Self {
        Self {
            version: VERSION,
            components: loaded
                .into_iter()
                .map(|loaded| (loaded.settings.name.clone(), Locked::of(loaded, environment)))
                .collect(),
            hooks: hooks
                .into_iter()
                .map(|hook| (hook.settings.component.name.clone(), LockedHook::of(hook)))
                .collect(),
            servers: servers
                .iter()
                .map(|running| (running.settings.name.clone(), LockedServer::of(running)))
                .collect(),
        }
    }

    /// Writes the lock file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or the path is something other than a file of this user.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let fail = || Failure::new(Exit::Config, text!("`{}` cannot be written", FILE));
        if let Ok(old) = toolcell_fs::read_text(path, &Rules::found(MAX_BYTES))
            && !old.trim().is_empty()
            && !is_own(&old)
        {
            return Err(fail()
                .why("there is a file of this name that `toolcell lock` did not write")
                .hint("move it away"));
        }
        let text = toml::to_string(self).map_err(|e| fail().because(e))?;
        toolcell_fs::replace(path, format!("{HEADER}{text}").as_bytes(), toolcell_fs::SHARED).map_err(
            |error| {
                let hint = error
                    .refusal()
                    .is_none()
                    .then(|| "change to a writable directory".to_owned());
                user_files::because(fail(), error).hints(hint)
            },
        )
    }

    /// Names of what is locked, for display.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let hooks = self.hooks.keys().map(|name| format!("the hook {name}"));
        let servers = self.servers.keys().map(|name| format!("the MCP server {name}"));
        self.components.keys().cloned().chain(hooks).chain(servers)
    }
}

impl Locked {
    fn of(loaded: &Loaded, environment: &Environment) -> Self {
        let component = &loaded.component;
        let (imports, grants) = reach(component.identity(), &loaded.settings);
        let (package, wants) = of_package(&loaded.settings, environment);
        Self {
            digest: component.digest().to_string(),
            imports,
            grants,
            publisher: (package.as_ref())
                .and_then(|package| package.publisher.as_ref().map(ToString::to_string)),
            origin: package.map(|package| package.origin),
            wants,
            tools: component
                .definitions()
                .iter()
                .filter(|spec| loaded.settings.offers(spec.name.as_str()))
                .map(|spec| (spec.name.to_string(), LockedTool::of(spec)))
                .collect(),
        }
    }

    /// Returns the differences of `now` from this lock. A tool that `is_defined` and no longer offered is not a
    /// difference: fewer tools than approved need no approval.
    fn differences(&self, now: &Self, is_defined: impl Fn(&str) -> bool) -> Vec<Text> {
        let mut found = Vec::new();
        for (name, tool) in &now.tools {
            match self.tools.get(name) {
                None => found.push(text!("the tool `{}` is new", name)),
                Some(locked) => {
                    let changed = [
                        (locked.description != tool.description, "the description"),
                        (locked.input != tool.input, "the input schema"),
                        (locked.output != tool.output, "the output schema"),
                    ];
                    found.extend(
                        changed
                            .into_iter()
                            .filter(|(changed, _)| *changed)
                            .map(|(_, what)| text!("{} of `{}` changed", Own(what), name)),
                    );
                }
            }
        }
        let gone = self.tools.keys().filter(|name| !is_defined(name));
        found.extend(gone.map(|name| text!("the tool `{}` is gone", name)));
        found.extend(reach_differences(
            (&self.imports, &self.grants),
            (&now.imports, &now.grants),
        ));
        if self.origin != now.origin {
            let shown = |origin: &Option<String>| match origin {
                Some(origin) => text!("{}", origin),
                None => "a file".into(),
            };
            found.push(text!(
                "it comes from {}, and came from {}",
                shown(&now.origin),
                shown(&self.origin)
            ));
        }
        // One that is pinned now and was not, or that an older version did not record, is more than was approved.
        if let Some(locked) = &self.publisher
            && now.publisher.as_ref() != Some(locked)
        {
            found.push(match &now.publisher {
                Some(other) => text!("its publisher is {}, and was {}", other, locked),
                None => text!("no publisher is pinned, and it was signed by {}", locked),
            });
        }
        if self.digest != now.digest {
            // The same code proposes the same.
            let new_wants = now.wants.iter().filter(|grant| !self.wants.contains(grant));
            found.extend(
                new_wants.map(|grant| text!("its author proposes the grant `{}`, which is new", grant)),
            );
            found.push(if found.is_empty() {
                "its code changed, but nothing that the model reads".into()
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
            points: points.map(|point| point.as_str().to_owned()).collect(),
            guard: loaded.hook.spec().guard,
        }
    }

    /// Returns the differences of `now` from this lock.
    fn differences(&self, now: &Self) -> Vec<Text> {
        let mut found = Vec::new();
        if self.points != now.points {
            found.push(text!(
                "it is called at {}, and was at {}",
                Shown(&now.points.join(", ")),
                Shown(&self.points.join(", "))
            ));
        }
        if self.guard && !now.guard {
            found.push("it is no longer a guard".into());
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

/// Package that a component is, and the grants that the author of a component proposes.
fn of_package(settings: &ToolSettings, environment: &Environment) -> (Option<Package>, Vec<String>) {
    let ComponentSource::File(file) = &settings.component else {
        return (None, Vec::new());
    };
    let package = store::package_at(&settings.name, &file.value, environment);
    let bytes = toolcell_fs::read(&file.value, &Rules::named(MAX_COMPONENT_BYTES)).unwrap_or_default();
    // One that cannot be read was refused when the package was added.
    let manifest = PackageManifest::read(&bytes).ok().flatten().unwrap_or_default();
    let wants = manifest.wants.iter().map(|want| want.grant.to_string());
    (package, wants.collect())
}

/// Imports and grants of a component in a fixed order. Bindings of secrets count as grants.
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

/// Returns added and removed imports, and grants that exceed the approved ones. Each side is imports and grants.
fn reach_differences(
    (imports, grants): (&[String], &[String]),
    (imports_now, grants_now): (&[String], &[String]),
) -> Vec<Text> {
    let mut found = Vec::new();
    let new_imports = imports_now.iter().filter(|import| !imports.contains(import));
    found.extend(new_imports.map(|import| text!("it imports `{}`, which is new", import)));
    let gone_imports = imports.iter().filter(|import| !imports_now.contains(import));
    found.extend(gone_imports.map(|import| text!("it no longer imports `{}`", import)));
    // A denial narrows: it may be added and must not be removed.
    let is_denial = |line: &&String| line.parse::<Grant>().is_ok_and(|grant| grant.is_denial());
    let new_grants = grants_now.iter().filter(|grant| !grants.contains(grant));
    found.extend(
        new_grants
            .filter(|line| !is_denial(line))
            .map(|grant| text!("the grant `{}` is not among those that are locked", grant)),
    );
    let gone = grants.iter().filter(|grant| !grants_now.contains(grant));
    found.extend(
        gone.filter(is_denial)
            .map(|line| text!("the denial `{}` is locked and no longer applies", line)),
    );
    found
}

impl LockedTool {
    fn of(spec: &ToolSpec) -> Self {
        let digest = |value: serde_json::Value| Digest::of(value.to_string().as_bytes()).to_string();
        Self {
            description: digest(json!([
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

/// True if `toolcell lock` wrote this text: it begins like one, also if lines of it are damaged or in conflict.
fn is_own(text: &str) -> bool {
    let first = HEADER.lines().next().unwrap_or_default();
    text.lines().any(|line| line == first) || toml::from_str::<LockFile>(text).is_ok()
}

/// Returns the path of the lock file.
pub(crate) fn path(environment: &Environment) -> PathBuf {
    environment.cwd.join(FILE)
}

/// Reads the lock file.
///
/// # Errors
/// Returns an error if the file is missing or invalid.
pub(crate) fn read(environment: &Environment) -> Result<LockFile, Failure> {
    let path = path(environment);
    let fail = || Failure::new(Exit::Config, text!("`{}` cannot be used", FILE));
    let text = toolcell_fs::read_text(&path, &Rules::found(MAX_BYTES)).map_err(|error| {
        let hint = error.is_not_found().then(|| {
            "review the tools with `toolcell tool inspect`, then run `toolcell lock` to create it".to_owned()
        });
        user_files::because(fail(), error).hints(hint)
    })?;
    let lock: LockFile = toml::from_str(&text).map_err(|error| {
        // Without the line itself, which can be as long as the file.
        let at = error.span().map_or(0, |span| {
            text[..text.floor_char_boundary(span.start)].matches('\n').count()
        });
        fail()
            .why(match error.message().trim() {
                ours if !text.contains('`') && !ours.contains('"') => {
                    text!("line {}: {}", at + 1, Text::sentence(ours, []))
                }
                theirs => text!("line {}: {}", at + 1, theirs),
            })
            .hint("restore it from version control, or run `toolcell lock` to write it again")
    })?;
    if lock.version != VERSION {
        return Err(fail()
            .why(text!(
                "it has version {}; this Toolcell supports version {}",
                lock.version,
                VERSION
            ))
            .hint("run `toolcell lock` to write it again"));
    }
    Ok(lock)
}

/// Refuses components that differ from the lock file. `hooks` is `None` for a call outside a turn, which uses no hooks.
///
/// # Errors
/// Returns an error that lists every difference.
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
            None => differing.push(text!("`{}` is not locked", name)),
            Some(locked) => {
                let definitions = loaded.component.definitions();
                let is_defined = |name: &str| definitions.iter().any(|spec| spec.name.as_str() == name);
                let differences = locked.differences(&Locked::of(loaded, environment), is_defined);
                differing.extend(
                    differences
                        .into_iter()
                        .map(|difference| text!("`{}`: {}", name, difference)),
                );
            }
        }
    }
    let of_hooks = hooks
        .map(|hooks| hook_differences(&lock, hooks))
        .unwrap_or_default();
    let what = if of_hooks.is_empty() {
        "the tools differ"
    } else {
        "the tools or hooks differ"
    };
    differing.extend(of_hooks);
    if differing.is_empty() {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::Denied, text!("{} from `{}`", Own(what), Own(FILE)));
    for difference in differing {
        failure = failure.why(difference);
    }
    Err(failure
        .hint("review the changes with `toolcell tool inspect`, then run `toolcell lock` to approve them"))
}

/// Returns the MCP servers of the lock file; none without a file.
///
/// # Errors
/// Returns an error if the file is invalid.
pub(crate) fn servers(environment: &Environment) -> Result<BTreeMap<String, LockedServer>, Failure> {
    match path(environment).symlink_metadata() {
        Ok(_) => Ok(read(environment)?.servers),
        Err(_) => Ok(BTreeMap::new()),
    }
}

/// Refuses MCP servers that differ from the lock file.
///
/// # Errors
/// Returns an error that lists every difference, with the lines that differ.
pub(crate) fn check_servers(servers: &Servers, environment: &Environment) -> Result<(), Failure> {
    let locked = read(environment)?.servers;
    let mut differing = Vec::new();
    for running in servers.iter() {
        let name = &running.settings.name;
        match locked.get(name) {
            None => differing.push(text!("the MCP server `{}` is not locked", name)),
            Some(locked) => {
                for Difference { tool, what, lines } in locked.differences(&LockedServer::of(running)) {
                    let lines = lines.join("\n");
                    let lines = text!("{}\n{}", Text::sentence(&what, []), lines);
                    differing.push(match tool {
                        Some(tool) => text!("`{}` of the MCP server `{}`: {}", tool, name, lines),
                        None => text!("the MCP server `{}`: {}", name, lines),
                    });
                }
            }
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(Exit::Denied, text!("the MCP servers differ from `{}`", Own(FILE)));
    let failure = differing.into_iter().fold(failure, Failure::why);
    Err(failure.hint("review the changes, then run `toolcell lock` to accept them"))
}

/// Returns hooks that differ from the lock file or are missing.
fn hook_differences(lock: &LockFile, hooks: &[LoadedHook]) -> Vec<Text> {
    let mut differing = Vec::new();
    let mut gone: Vec<&String> = lock.hooks.keys().collect();
    for hook in hooks {
        let name = &hook.settings.component.name;
        gone.retain(|locked| *locked != name);
        match lock.hooks.get(name) {
            None => differing.push(text!("the hook `{}` is not locked", name)),
            Some(locked) => {
                let differences = locked.differences(&LockedHook::of(hook)).into_iter();
                differing.extend(differences.map(|difference| text!("the hook `{}`: {}", name, difference)));
            }
        }
    }
    // A missing tool does nothing; a missing hook lets everything pass.
    let gone = gone.into_iter();
    differing.extend(gone.map(|name| text!("the hook `{}` is locked and not in use", name)));
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked() -> Locked {
        let tool = LockedTool {
            description: "w".into(),
            input: "i".into(),
            output: "o".into(),
        };
        Locked {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            origin: None,
            publisher: None,
            wants: Vec::new(),
            tools: BTreeMap::from([("t".to_owned(), tool)]),
        }
    }

    fn locked_hook() -> LockedHook {
        LockedHook {
            digest: "sha256:1".into(),
            imports: vec!["a".into()],
            grants: vec!["read=.".into()],
            points: vec!["before_call".into()],
            guard: true,
        }
    }

    fn shown(differences: Vec<Text>) -> Vec<String> {
        differences.iter().map(Text::inert).collect()
    }

    #[test]
    fn every_difference_of_hook_is_named() {
        let differences = |change: &dyn Fn(&mut LockedHook)| {
            let mut now = locked_hook();
            change(&mut now);
            shown(locked_hook().differences(&now))
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed"]
        );
        assert_eq!(
            differences(&|now| now.points = vec!["after_call".into()]),
            ["it is called at after_call, and was at before_call"]
        );
        assert_eq!(differences(&|now| now.guard = false), ["it is no longer a guard"]);
        assert_eq!(
            differences(&|now| now.imports.push("b".into())),
            ["it imports `b`, which is new"]
        );
        assert_eq!(
            differences(&|now| now.grants = vec!["write=.".into()]),
            ["the grant `write=.` is not among those that are locked"]
        );
        // Less access than approved needs no approval.
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
            shown(locked().differences(&now, |name| now.tools.contains_key(name)))
        };
        assert_eq!(differences(&|_| {}), Vec::<String>::new());
        assert_eq!(
            differences(&|now| now.digest = "sha256:2".into()),
            ["its code changed, but nothing that the model reads"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().description = "x".into()),
            ["the description of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().input = "x".into()),
            ["the input schema of `t` changed"]
        );
        assert_eq!(
            differences(&|now| now.tools.get_mut("t").unwrap().output = "x".into()),
            ["the output schema of `t` changed"]
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
        // Less access than approved needs no approval.
        assert_eq!(differences(&|now| now.grants.clear()), Vec::<String>::new());
        assert_eq!(differences(&|now| now.tools.clear()), ["the tool `t` is gone"]);
        let mut fewer = locked();
        fewer.tools.clear();
        assert_eq!(
            shown(locked().differences(&fewer, |_| true)),
            Vec::<String>::new()
        );
        assert_eq!(
            shown(fewer.differences(&locked(), |_| true)),
            ["the tool `t` is new"]
        );
    }

    #[test]
    fn lock_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let lock = LockFile {
            version: VERSION,
            components: BTreeMap::from([("text".to_owned(), locked())]),
            servers: BTreeMap::new(),
            hooks: BTreeMap::from([("guard".to_owned(), locked_hook())]),
        };
        lock.write(&path(&environment)).unwrap();
        assert_eq!(read(&environment).unwrap(), lock);
    }

    #[test]
    fn locked_publisher_must_stay() {
        let of = |publisher: Option<&str>| Locked {
            publisher: publisher.map(str::to_owned),
            ..locked()
        };
        let differences =
            |locked: Option<&str>, now: Option<&str>| shown(of(locked).differences(&of(now), |_| true));
        let none = Vec::<String>::new();
        assert_eq!(differences(Some("a"), Some("a")), none);
        assert_eq!(differences(None, Some("a")), none, "a lock of an older version");
        assert_eq!(
            differences(Some("a"), Some("b")),
            ["its publisher is b, and was a"]
        );
        assert_eq!(
            differences(Some("a"), None),
            ["no publisher is pinned, and it was signed by a"]
        );
    }

    #[test]
    fn locked_denial_may_stay_and_not_go() {
        let denying = |mut locked: Locked| {
            locked.grants.push("deny=private".into());
            locked
        };
        let differences = |now: &Locked| denying(locked()).differences(now, |_| true);
        assert_eq!(shown(differences(&denying(locked()))), Vec::<String>::new());
        assert_eq!(
            shown(differences(&locked())),
            ["the denial `deny=private` is locked and no longer applies"]
        );
    }
}
