//! `toolcell tool add`, `update`, `remove` and `push`: packages of the user, and those that the user publishes.

mod add;
mod push;
mod remove;
mod update;

pub(super) use add::Add;
pub(super) use push::Push;
pub(super) use remove::Remove;
pub(super) use update::{Update, print_outdated};

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::commands::mcp::edited::Edited;
use crate::commands::tool::inspect::Report;
use crate::components::loader::{ComponentLoader, Inspected};
use crate::config::{ComponentSource, Sourced, ToolSettings, user_files};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::clients::{self, Entry, Format};
use crate::packages::keys::KeyRing;
use crate::packages::publisher::Publisher;
use crate::packages::reference::Reference;
use crate::packages::store::{Package, PackageStore};
use crate::packages::wants::PackageManifest;
use crate::packages::{Fetched, Refused, Signer, unusable_store};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::render::console::Streams;
use crate::ui::terminal::{Own, text};

/// Key of the components in the configuration.
const SECTION: &str = "tools";

/// Time that a command waits for others that change the packages: one compiles its component meanwhile, which takes seconds.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Time between two looks at whether another command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A component of a package, as the user sees it before anything is changed.
struct Reviewed {
    settings: ToolSettings,
    inspected: Inspected,
}

/// Fetches a package.
async fn fetch(
    reference: &Reference,
    is_private_allowed: bool,
    signer: Signer<'_>,
    environment: &Environment,
    console: &Console,
) -> Result<Fetched, Failure> {
    check_bundle(signer)?;
    let shown = reference.to_string();
    let _activity = console.activity(text!("fetching {}", shown));
    crate::packages::fetch(reference, is_private_allowed, signer, environment)
        .await
        .map_err(|error| {
            let hint = Refused::hint_of(&error);
            let what = text!("the package `{}` cannot be used", shown);
            Failure::new(Exit::Component, what).because(error).hint(hint)
        })
}

/// Refuses a bundle that the pinned publisher cannot have made.
fn check_bundle(signer: Signer<'_>) -> Result<(), Failure> {
    if signer.bundle.is_none() {
        return Ok(());
    }
    let fail = |why: &'static str| Failure::new(Exit::Usage, "`--bundle` cannot be used").why(why);
    match signer.publisher {
        Some(Publisher::Identity(_)) => Ok(()),
        Some(Publisher::Key(_)) => Err(fail(
            "its publisher is pinned by a key, and a bundle is of an identity of Sigstore",
        )
        .hint("leave it out: the signature is read from the file beside the component, or from its registry")),
        None => Err(fail("no publisher is pinned that the bundle could be of")
            .hint("name an identity with `--publisher`; `toolcell key add NAME --identity SUBJECT --issuer URL` adds one")),
    }
}

/// Returns the key or identity of a publisher in the ring.
fn publisher(name: Option<&str>, environment: &Environment) -> Result<Option<Publisher>, Failure> {
    let find = |name: &str| KeyRing::open(environment)?.publisher(name);
    name.map(find)
        .transpose()
        .map_err(|error| Failure::new(Exit::Usage, "the key of the publisher cannot be used").because(error))
}

/// Inspects a stored component. It must have tools, whose names are free.
async fn review(name: &str, path: PathBuf, loader: &ComponentLoader<'_>) -> Result<Reviewed, Failure> {
    let settings = ToolSettings::new(name, ComponentSource::File(Sourced::flag("REF", path)));
    let mut inspected = loader.inspect(&settings).await?;
    let Some(component) = &inspected.tools else {
        return Err(
            Failure::new(Exit::Component, text!("the package `{}` has no tools", name))
                .why("it is a hook")
                .hint("download it, and name its file in `[hooks.NAME]` of your configuration"),
        );
    };
    let manifest = std::mem::replace(&mut inspected.manifest, Ok(None)).map_err(|error| {
        Failure::new(Exit::Component, text!("the package `{}` cannot be used", name)).because(error)
    })?;
    inspected.manifest = Ok(manifest);
    loader.check_names(&settings, component).await?;
    Ok(Reviewed { settings, inspected })
}

impl Reviewed {
    /// Prints what the component is, what it can touch, and what it asks for.
    fn print(&self, environment: &Environment, s: &mut Streams) -> io::Result<()> {
        Report::new(&self.settings, &self.inspected, &[], environment).print(s)
    }

    fn manifest(&self) -> PackageManifest {
        let manifest = self.inspected.manifest.as_ref().ok();
        manifest.and_then(Option::clone).unwrap_or_default()
    }
}

/// Reads the user's configuration file.
fn open_configuration(environment: &Environment, fail: impl Fn() -> Failure) -> Result<Edited, Failure> {
    let file = user_files::user_file(environment).ok_or_else(|| {
        fail()
            .why("there is no home directory")
            .hint("name a configuration file with --config")
    })?;
    Edited::of(file, environment)
        .read()
        .map_err(|error| fail().because(error))
}

/// Path of the user's configuration file, as packages keep it.
fn configuration_file(environment: &Environment) -> Option<PathBuf> {
    let file = user_files::user_file(environment)?;
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    // The list of packages is text.
    file.to_str().is_some().then_some(file)
}

/// Returns the existing configuration file of a package, if it is not that of the user now.
fn other_configuration<'a>(package: &'a Package, environment: &Environment) -> Option<&'a Path> {
    let file = package.config.as_deref()?;
    let is_other = file.is_file() && std::fs::canonicalize(file).ok() != configuration_file(environment);
    is_other.then_some(file)
}

/// Refuses a package that another configuration file uses.
fn check_owner(
    package: &Package,
    command: &'static str,
    environment: &Environment,
    fail: impl Fn() -> Failure,
) -> Result<(), Failure> {
    let Some(file) = other_configuration(package, environment) else {
        return Ok(());
    };
    let why = text!("it belongs to `{}`", environment.shown(file));
    Err(fail().why(why).hint(text!(
        "name that file: toolcell {}tool {} {}",
        with_configuration(Some(file), environment),
        Own(command),
        package.name
    )))
}

/// The option that names a configuration file, for a command in a hint.
fn with_configuration(file: Option<&Path>, environment: &Environment) -> String {
    file.map(|file| format!("--config {} ", escape::shell_path(&environment.shown(file))))
        .unwrap_or_default()
}

/// The configuration with this component under this name.
fn configured(edited: &Edited, name: &str, path: &Path) -> Result<String, String> {
    let path = path
        .to_str()
        .ok_or("the data directory has a name that is not UTF-8")?;
    let entry = Entry {
        own: json!({ "component": path }),
        defaults: json!({}),
    };
    clients::edit(Format::Toml, edited.text(), SECTION, name, &entry)
}

/// Opens the store of packages, and waits for other processes that have it.
async fn open_store(environment: &Environment, console: &Console) -> Result<PackageStore, Failure> {
    store_within(MAX_WAIT, environment, console).await
}

async fn store_within(
    time: Duration,
    environment: &Environment,
    console: &Console,
) -> Result<PackageStore, Failure> {
    let open = || PackageStore::try_open(environment).map_err(|error| unusable_store(error, environment));
    if let Some(store) = open()? {
        return Ok(store);
    }
    let _activity = console.activity("waiting for another command that changes the packages");
    let begun = Instant::now();
    while begun.elapsed() < time {
        tokio::time::sleep(LOOK).await;
        if let Some(store) = open()? {
            return Ok(store);
        }
    }
    Err(Failure::new(Exit::Io, "the packages cannot be used")
        .why(text!(
            "another command of Toolcell has been changing them for {} s",
            time.as_secs()
        ))
        .hint("wait until it has ended, and run this one again"))
}

fn unwritten(failure: Failure, error: anyhow::Error) -> Failure {
    let mut failure = failure;
    failure.exit = Exit::Io;
    failure.because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn command_waits_for_the_packages_for_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.data_dir = Some(dir.path().to_owned());
        let console = Console::new(&environment);
        let second = Duration::from_secs(1);
        let held = store_within(second, &environment, &console).await.unwrap();
        let late = store_within(LOOK, &environment, &console).await;
        let failure = format!("{:?}", late.err().unwrap());
        assert!(failure.contains("another command of Toolcell"), "{failure}");
        let release = async {
            tokio::time::sleep(2 * LOOK).await;
            drop(held);
        };
        let (store, ()) = tokio::join!(store_within(second, &environment, &console), release);
        assert!(store.is_ok());
    }
}
