//! The component that is tested, and the cases that belong to it.

use std::path::{Path, PathBuf};

use crate::components::directory::{COMPONENT_PLACES, component_in};
use crate::components::lookup::NamedTool;
use crate::config::{ComponentSource, Settings};
use crate::environment::Environment;
use crate::error::Failure;

/// Names of the cases of a directory.
const CASES: [&str; 3] = ["cases.toml", "cases.json", "cases"];

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
    let file = component_in(&dir, written, environment)?;
    Ok(file.display().to_string())
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

/// File of the component; `None` if it is built in.
pub(super) fn file(found: &NamedTool) -> Option<PathBuf> {
    match &found.settings.component {
        ComponentSource::File(path) => Some(path.value.clone()),
        ComponentSource::Shipped(_) => None,
    }
}

/// Places in a directory where its component and its cases can be.
pub(super) fn places(dir: &Path) -> Vec<PathBuf> {
    COMPONENT_PLACES
        .iter()
        .chain(&["cases"])
        .map(|place| dir.join(place))
        .collect()
}
