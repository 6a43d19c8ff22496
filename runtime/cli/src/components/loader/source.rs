//! The bytes of a component: built in, a file, or a package.

use std::borrow::Cow;
use std::path::PathBuf;

use toolcell_fs::{Refusal, Rules};
use toolcell_sandbox::{Digest, TrustedComponent as _};

use crate::components::builtin::Shipped;
use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::{ComponentSource, Origin, Sourced, ToolSettings, user_files};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::store;
use crate::ui::terminal::{Text, text};

/// The bytes of a component: those of a built-in one are compressed, and read only to compile it.
pub(super) enum Bytes {
    Shipped(&'static Shipped),
    Of(Vec<u8>),
}

impl Bytes {
    pub(super) fn read(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Shipped(shipped) => shipped.bytes().into(),
            Self::Of(file) => file.into(),
        }
    }
}

/// Returns the label of a component and its bytes.
///
/// # Errors
/// Returns an error if it cannot be read, or is another one than that of its package.
pub(super) fn bytes(settings: &ToolSettings, environment: &Environment) -> Result<(String, Bytes), Failure> {
    Ok(match &settings.component {
        ComponentSource::Shipped(shipped) => (settings.name.clone(), Bytes::Shipped(shipped)),
        ComponentSource::File(path) => {
            let package = store::digest_at(&path.value, environment);
            // A package is known by its name, not by that of its file.
            let label = match package {
                Some(_) => settings.name.clone(),
                None => environment.shown(&path.value),
            };
            let bytes = read_component(path, &label, package.is_some())?;
            check_package(package, &bytes, &label)?;
            (label, Bytes::Of(bytes))
        }
    })
}

fn read_component(path: &Sourced<PathBuf>, label: &str, is_package: bool) -> Result<Vec<u8>, Failure> {
    let fail = || {
        let failure = Failure::new(Exit::Component, text!("the component `{}` cannot be read", label));
        match &path.origin {
            Origin::File(..) => failure.why(path.origin.point_at()),
            _ => failure,
        }
    };
    toolcell_fs::read(&path.value, &Rules::named(MAX_COMPONENT_BYTES)).map_err(|error| {
        if is_package && error.is_not_found() {
            return fail()
                .why("its file is not among those of the packages any more")
                .hint(fetch_again(label));
        }
        let hint = match error.refusal() {
            Some(Refusal::NotAFile(_)) => Some("name the `.wasm` file itself"),
            None if error.is_not_found() => Some(match &path.origin {
                Origin::File(..) => {
                    "check the path; relative paths start at the directory of the configuration file"
                }
                _ => "check the path; relative paths start at the working directory",
            }),
            _ => None,
        };
        user_files::because(fail(), error).hints(hint.map(str::to_owned))
    })
}

fn fetch_again(name: &str) -> Text {
    text!("to fetch it again: toolcell tool update {}", name)
}

/// Refuses a component of a package that is not the one which was reviewed.
fn check_package(package: Option<Digest>, bytes: &[u8], name: &str) -> Result<(), Failure> {
    match package {
        Some(expected) if Digest::of(bytes) != expected => {
            let failure = Failure::new(Exit::Component, text!("the component `{}` is damaged", name));
            Err(failure
                .why("its bytes are not those of the package that was added")
                .hint(fetch_again(name)))
        }
        _ => Ok(()),
    }
}
