//! `toolcell.lock`: the tools and hooks as they were when the user approved them.
//!
//! It holds digests of the bytes and of everything a model reads about each tool (name, title, description, schemas),
//! the imports, and the grants. `--locked` refuses a tool that has changed since, in code or in description only, and
//! lists the differences. For a hook, which no model reads about, it holds the bytes, hook points, imports, grants, and
//! the guard flag.

mod entries;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toolcell_fs::Rules;

use crate::components::loader::{Loaded, LoadedHook};
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::lock::{Difference, LockedServer};
use crate::mcp::servers::Servers;
use crate::ui::terminal::{Own, Text, text};
use entries::{Locked, LockedHook};

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
        // What a killed command has left beside it is not to be committed with it.
        if let Some(directory) = path.parent() {
            _ = toolcell_fs::remove_unfinished(directory, toolcell_fs::UNFINISHED_AGE);
        }
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
    use entries::tests::{locked, locked_hook};

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
}
