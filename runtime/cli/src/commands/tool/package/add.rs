//! `toolcell tool add`: fetches a package and names it in the user's configuration.

use clap::Args;
use toolcell_core::ToolName;

use super::{
    configuration_file, configured, fetch, open_configuration, open_store, other_configuration, publisher,
    review, unusable_store, unwritten, with_configuration,
};
use crate::components::loader::ComponentLoader;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::Signer;
use crate::packages::reference::{Reference, without_user};
use crate::packages::store::{Package, PackageStore};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Add a tool to your configuration: a file, an address with a digest, or an artefact of an OCI registry.
///
/// Shows what it is, what it can touch and what it asks for, and grants nothing. The component is copied to Toolcell's own directory, where nothing but `toolcell tool update` replaces it.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool add ./roman.wasm
  toolcell tool add https://example.com/roman.wasm#sha256=DIGEST
  toolcell tool add ghcr.io/me/roman:1.0 --name numerals
  toolcell tool add ghcr.io/me/roman@sha256:DIGEST --dry-run

Credentials of a private registry are those of `docker login` (`auths` in ~/.docker/config.json).

{}", crate::exit::TABLE))]
pub(crate) struct Add {
    /// File, `https` address, or `REGISTRY/REPOSITORY:TAG`.
    #[arg(value_name = "REF")]
    reference: String,

    /// Name in your configuration [default: the last part of the reference].
    #[arg(long)]
    name: Option<String>,

    /// Digest of the component behind an address.
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,

    /// Key or identity of `toolcell key` that must have signed it, now and at each update.
    #[arg(long, value_name = "KEY")]
    publisher: Option<String>,

    /// Bundle of Sigstore for a publisher with an identity [default: FILE.sigstore.json, or what the registry lists].
    #[arg(long, value_name = "FILE", requires = "publisher")]
    bundle: Option<String>,

    /// Allow the host of the reference to have a private address, now and at each update.
    #[arg(long)]
    private: bool,

    /// Show the package and the change, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Add {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let mut settings = config::load(environment, overrides.clone())?;
        let reference =
            Reference::parse(&self.reference, self.digest.as_deref(), environment).map_err(|error| {
                let shown = without_user(&self.reference);
                let what = text!("the reference `{}` cannot be used", shown);
                Failure::new(Exit::Usage, what).because(error)
            })?;
        let name = self.name.clone().or_else(|| reference.name()).unwrap_or_default();
        let fail = || Failure::new(Exit::Usage, text!("the tool `{}` was not added", name));
        ToolName::new(name.as_str())
            .map_err(|error| fail().because(error).hint("give it another name: --name"))?;
        if settings.tools.contains_key(&name) {
            let store = open_store(environment, console).await?;
            return Err(taken(fail(), &name, &store, environment));
        }
        open_configuration(environment, fail)?;
        let publisher = publisher(self.publisher.as_deref(), environment)?;
        let bundle = self.bundle.as_deref();
        let bundle = bundle.map(|file| environment.path(file, &environment.cwd));
        let signer = Signer {
            publisher: publisher.as_ref(),
            bundle: bundle.as_deref(),
        };
        let fetched = fetch(&reference, self.private, signer, environment, console).await?;
        let store = open_store(environment, console).await?;
        // Another command may have changed the configuration before this one had the store.
        settings = config::load(environment, overrides)?;
        if settings.tools.contains_key(&name) {
            return Err(taken(fail(), &name, &store, environment));
        }
        let edited = open_configuration(environment, fail)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        // One that no configuration has was left by a command that was killed, or its table was deleted.
        let is_used =
            |other: &Package| other.config.is_none() || other_configuration(other, environment).is_some();
        let other = store
            .package(&name)
            .map_err(|error| unusable_store(error, environment))?;
        if let Some(other) = other.filter(is_used) {
            let file = other_configuration(&other, environment);
            let why = match file {
                Some(file) => text!("`{}` has a package of this name", environment.shown(file)),
                None => "there is a package of this name".into(),
            };
            return Err(fail().why(why).hint(text!(
                "give it another name with --name, or remove the other: toolcell {}tool remove {}",
                with_configuration(file, environment),
                name
            )));
        }
        let path = store
            .write(&fetched)
            .map_err(|error| unusable_store(error, environment))?;
        let added = async {
            let reviewed = review(&name, path.clone(), &loader).await?;
            console.write(|s| reviewed.print(environment, s))?;
            let new = configured(&edited, &name, &path)
                .map_err(|why| fail().why(text!("`{}`: {}", edited.shown, why)))?;
            edited.show(&new, console)?;
            if self.dry_run {
                return Ok(false);
            }
            store
                .set(Package {
                    name: name.clone(),
                    origin: reference.to_string(),
                    digest: fetched.digest,
                    publisher: publisher.clone(),
                    config: configuration_file(environment),
                    private: self.private,
                })
                .map_err(|error| unusable_store(error, environment))?;
            if let Err(error) = edited.write(&new) {
                let failure = unwritten(fail(), error);
                store
                    .remove(&name)
                    .map_err(|error| unusable_store(error, environment))?;
                return Err(failure);
            }
            Ok(true)
        };
        let added = added.await;
        // Of a package that was not added, and of what another process left.
        store
            .collect_garbage()
            .map_err(|error| unusable_store(error, environment))?;
        console.note(match added? {
            true => text!(
                "{}; it has no grants. To try it: toolcell tool inspect {}",
                match &self.publisher {
                    Some(publisher) => text!("added, signed by `{}`", publisher),
                    None => "added".into(),
                },
                name
            ),
            false => "nothing was written".into(),
        });
        Ok(Exit::Ok)
    }
}

/// Error for a name that the configuration has already.
fn taken(failure: Failure, name: &str, store: &PackageStore, environment: &Environment) -> Failure {
    let hint = match store.package(name) {
        Ok(Some(_)) => text!(
            "give it another name with --name, or remove the other: toolcell tool remove {}",
            name
        ),
        Ok(None) => "give it another name with --name".into(),
        Err(error) => return unusable_store(error, environment),
    };
    failure.why("there is a component of this name").hint(hint)
}
