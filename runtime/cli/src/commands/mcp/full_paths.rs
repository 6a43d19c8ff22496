//! Paths of a command line that another program starts: written in full, because it starts it in a directory of its own.

use std::path::{Path, PathBuf};

use toolcell_core::Grant;

use crate::components::lookup::is_path;
use crate::config::Settings;
use crate::config::grants::FlagGrant;
use crate::config::source::PROJECT;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Flags of `toolcell mcp serve` whose values have a path.
const FLAGS: [&str; 4] = ["--tool", "--grant", "--scratch", "--resources"];

/// Returns the arguments of `toolcell mcp serve`, which its parser accepted, with all paths in full.
///
/// # Errors
/// Returns an error if a path cannot be written as an argument.
pub(super) fn in_full(
    arguments: &[String],
    settings: &Settings,
    environment: &Environment,
) -> Result<Vec<String>, Failure> {
    let mut written = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word.as_str(), None),
        };
        let Some(flag) = FLAGS.into_iter().find(|known| *known == flag) else {
            written.push(word.clone());
            continue;
        };
        let value = joined
            .or_else(|| words.next().map(String::as_str))
            .unwrap_or_default();
        let full = match flag {
            "--tool" => tool(value, settings, environment)?,
            "--grant" => grant(value, environment)?,
            // The home directory is written as it is in a grant.
            "--resources" if value.starts_with('~') => value.to_owned(),
            _ => path(Path::new(value), environment)?,
        };
        match joined {
            Some(_) => written.push(format!("{flag}={full}")),
            None => written.extend([flag.to_owned(), full]),
        }
    }
    Ok(written)
}

/// A path in full, without `.` in it.
///
/// # Errors
/// Returns an error if it is not Unicode.
pub(super) fn path(path: &Path, environment: &Environment) -> Result<String, Failure> {
    let full: PathBuf = environment.cwd.join(path).components().collect();
    full.into_os_string().into_string().map_err(|path| {
        Failure::new(
            Exit::Usage,
            text!("`{}` cannot be written", path.to_string_lossy().into_owned()),
        )
        .why("the path is not Unicode")
        .hint("move what it names")
    })
}

fn tool(value: &str, settings: &Settings, environment: &Environment) -> Result<String, Failure> {
    let (component, tool) = match value.rsplit_once('#') {
        Some((component, tool)) => (component, Some(tool)),
        None => (value, None),
    };
    if settings.tools.contains_key(component) || !is_path(component) || component.starts_with(PROJECT) {
        return Ok(value.to_owned());
    }
    let full = path(Path::new(component), environment)?;
    Ok(tool.map_or_else(|| full.clone(), |tool| format!("{full}#{tool}")))
}

/// A grant of the same directory under the same guest path.
pub(super) fn grant(value: &str, environment: &Environment) -> Result<String, Failure> {
    let unchanged = || Ok(value.to_owned());
    let Ok(FlagGrant { component, grant }) = value.parse() else {
        return unchanged();
    };
    let is_full = |host: &str| host.starts_with(['/', '~']);
    let full = match &grant {
        Grant::Dir { host, guest, access } if !is_full(host) => Grant::Dir {
            host: path(Path::new(host), environment)?,
            guest: Some(guest.clone().unwrap_or_else(|| Grant::guest_path(host))),
            access: *access,
        },
        Grant::Deny { host } if !is_full(host) => Grant::Deny {
            host: path(Path::new(host), environment)?,
        },
        _ => return unchanged(),
    };
    let line = full.to_string();
    if line.parse::<Grant>().ok().as_ref() != Some(&full) {
        return Err(Failure::new(
            Exit::Usage,
            text!("the grant `{}` cannot be written in full", value),
        )
        .why(text!("`{}` would mean something else", line))
        .hint("rename the directory, or grant one above it"));
    }
    Ok(match component {
        Some(component) => format!("{component}:{line}"),
        None => line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn paths_of_flags_are_written_in_full() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let settings = config::load(&environment, Overrides::default()).unwrap();
        let here = environment.cwd.to_str().unwrap();
        for (value, expected) in [
            (&["--tool", "./a/b.wasm"][..], vec!["--tool", "{}/a/b.wasm"]),
            (&["--tool=b.wasm#c"], vec!["--tool={}/b.wasm#c"]),
            (&["--tool", "text"], vec!["--tool", "text"]),
            (&["--tool", "/x/b.wasm"], vec!["--tool", "/x/b.wasm"]),
            (&["--grant", "read=."], vec!["--grant", "read={}:/"]),
            (
                &["--grant=files:write=out"],
                vec!["--grant=files:write={}/out:/out"],
            ),
            (&["--grant", "read=docs:/d"], vec!["--grant", "read={}/docs:/d"]),
            (&["--grant", "read=~/a"], vec!["--grant", "read=~/a"]),
            (&["--grant", "read=/a"], vec!["--grant", "read=/a"]),
            (&["--grant", "deny=private"], vec!["--grant", "deny={}/private"]),
            (
                &["--grant", "http=example.com"],
                vec!["--grant", "http=example.com"],
            ),
            (
                &["--scratch", "s", "--locked"],
                vec!["--scratch", "{}/s", "--locked"],
            ),
            (&["--resources", "notes"], vec!["--resources", "{}/notes"]),
            (&["--resources=~/a"], vec!["--resources=~/a"]),
            (&["--limit", "wall=1s"], vec!["--limit", "wall=1s"]),
        ] {
            let arguments: Vec<String> = value.iter().map(|word| (*word).to_owned()).collect();
            let expected: Vec<String> = expected.iter().map(|word| word.replace("{}", here)).collect();
            assert_eq!(in_full(&arguments, &settings, &environment).unwrap(), expected);
        }
    }
}
