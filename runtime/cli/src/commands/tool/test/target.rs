//! The component that is tested, and the cases that belong to it.

use std::path::{Path, PathBuf};

use crate::components::lookup::NamedTool;
use crate::config::{ComponentSource, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Directories below that of a tool in which its component is looked for, in order.
const BUILT_IN: [&str; 3] = ["", "target/wasm32-wasip2/release", "target/wasm32-wasip1/release"];

/// Names of the cases of a directory.
const CASES: [&str; 3] = ["cases.toml", "cases.json", "cases"];

/// Maximum number of entries of a directory that are read to find a component.
const MAX_ENTRIES: usize = 10_000;

/// Returns the name of the component for a look-up: that of the file if `written` is a directory.
///
/// # Errors
/// Returns an error if the directory does not have exactly one component.
pub(super) fn component(
    written: &str,
    settings: &Settings,
    environment: &Environment,
) -> Result<String, Failure> {
    let Some(dir) = directory(written, settings, environment) else {
        return Ok(written.to_owned());
    };
    let fail = || Failure::new(Exit::Usage, text!("`{}` cannot be tested", written));
    for place in BUILT_IN {
        let found = components_in(&dir.join(place)).map_err(|error| fail().because(error))?;
        match found.as_slice() {
            [] => {}
            [only] => return Ok(only.display().to_string()),
            [first, second, ..] => {
                return Err(fail()
                    .why(text!(
                        "it has several components: `{}` and `{}`",
                        environment.shown(first),
                        environment.shown(second)
                    ))
                    .hint("name the file"));
            }
        }
    }
    Err(fail()
        .why("there is no `.wasm` file in it, nor in its `target/wasm32-wasip2/release`")
        .hint("build it first, or name the file"))
}

/// The directory that was named. A component of that name comes first.
pub(super) fn directory(written: &str, settings: &Settings, environment: &Environment) -> Option<PathBuf> {
    if settings.tools.contains_key(written) {
        return None;
    }
    let path = environment.path(written, &environment.cwd);
    path.is_dir().then_some(path)
}

/// The cases that belong to what was named: `cases.toml`, `cases.json` or `cases/` in a directory, and `NAME.cases.toml` or
/// `NAME.cases.json` beside a file `NAME.wasm`.
pub(super) fn cases(
    written: &str,
    found: &NamedTool,
    settings: &Settings,
    environment: &Environment,
) -> Option<PathBuf> {
    if let Some(dir) = directory(written, settings, environment) {
        return CASES.iter().map(|name| dir.join(name)).find(|path| path.exists());
    }
    let ComponentSource::File(file) = &found.settings.component else {
        return None;
    };
    beside(&file.value).into_iter().find(|path| path.exists())
}

/// Cases beside a component.
pub(super) fn beside(component: &Path) -> [PathBuf; 2] {
    ["cases.toml", "cases.json"].map(|ending| component.with_extension(ending))
}

fn components_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries.take(MAX_ENTRIES) {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "wasm") && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// File of the component; `None` if it is built in.
pub(super) fn file(found: &NamedTool) -> Option<PathBuf> {
    match &found.settings.component {
        ComponentSource::File(path) => Some(path.value.clone()),
        ComponentSource::Shipped(_) => None,
    }
}

/// Places in a directory where its component and its cases can be.
pub(super) fn places(dir: &Path) -> Vec<PathBuf> {
    BUILT_IN
        .iter()
        .chain(&["cases"])
        .map(|place| dir.join(place))
        .collect()
}
