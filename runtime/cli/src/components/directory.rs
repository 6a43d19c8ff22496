//! The component in the directory of its source.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Directories below that of a tool in which its component is looked for, in order.
pub(crate) const COMPONENT_PLACES: [&str; 3] =
    ["", "target/wasm32-wasip2/release", "target/wasm32-wasip1/release"];

/// Maximum number of entries of a directory that are read to find a component.
const MAX_ENTRIES: usize = 10_000;

/// Returns the only component of a directory, which the user named as `written`.
///
/// # Errors
/// Returns an error if there is none, or several.
pub(crate) fn component_in(dir: &Path, written: &str, environment: &Environment) -> Result<PathBuf, Failure> {
    let fail = || {
        Failure::new(
            Exit::Usage,
            text!("the directory `{}` names no component", written),
        )
    };
    for place in COMPONENT_PLACES {
        let found = components(&dir.join(place)).map_err(|error| fail().because(error))?;
        match found.as_slice() {
            [] => {}
            [only] => return Ok(only.clone()),
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

fn components(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
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
