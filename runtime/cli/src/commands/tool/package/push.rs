//! `toolcell tool push`: publishes a component in an OCI registry.

use clap::Args;
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use crate::components::loader::ComponentLoader;
use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::{self, ComponentSource, Overrides, Sourced, ToolSettings, user_files};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::credentials::Credentials;
use crate::packages::keys::KeyRing;
use crate::packages::reference::{Reference, without_user};
use crate::packages::{Refused, registry};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Publish a component in an OCI registry, where `toolcell tool add`, wasm-pkg-tools and wassette find it.
///
/// Prints the reference with the digest of the manifest. A component that cannot be loaded is not published.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool push roman.wasm ghcr.io/me/roman:1.0
  toolcell tool push roman.wasm localhost:5000/roman:1.0

Credentials are those of `docker login` (`auths` in ~/.docker/config.json).

{}", crate::exit::TABLE))]
pub(crate) struct Push {
    /// Component.
    file: String,

    /// `REGISTRY/REPOSITORY:TAG`.
    #[arg(value_name = "REF")]
    reference: String,

    /// Key of `toolcell key` that signs it.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Allow the host of the reference to have a private address.
    #[arg(long)]
    private: bool,
}

impl Push {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let wrong = || {
            Failure::new(
                Exit::Usage,
                text!("the reference `{}` cannot be used", without_user(&self.reference)),
            )
        };
        let elsewhere =
            || wrong().why("components are published in OCI registries, `REGISTRY/REPOSITORY:TAG`");
        let image = match Reference::parse(&self.reference, None, environment) {
            Ok(Reference::Oci(image)) => image,
            Ok(_) => return Err(elsewhere()),
            // What an address lacks to be added says nothing here.
            Err(_) if self.reference.contains("://") => return Err(elsewhere()),
            Err(error) => return Err(wrong().because(error)),
        };
        let path = environment.path(&self.file, &environment.cwd);
        let bytes = toolcell_fs::read(&path, &Rules::named(MAX_COMPONENT_BYTES)).map_err(|error| {
            let what = text!("the component `{}` cannot be read", self.file);
            user_files::because(Failure::new(Exit::Component, what), error)
        })?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let source = ComponentSource::File(Sourced::flag("FILE", path));
        loader.inspect(&ToolSettings::new("pushed", source)).await?;
        let fail = || Failure::new(Exit::Component, text!("`{}` was not published", self.file));
        let credentials = Credentials::read(environment).map_err(|error| fail().because(error))?;
        let sign = |key: &str| KeyRing::open(environment)?.sign(key, Digest::of(&bytes));
        let signature = self.key.as_deref().map(sign).transpose();
        let signature = signature.map_err(|error| fail().because(error))?;
        let digest = {
            let _activity = console.activity(text!("publishing {}", self.reference));
            let pushed =
                registry::push(&image, &bytes, signature.as_deref(), self.private, &credentials).await;
            pushed.map_err(|error| {
                let hint = Refused::hint_of(&error);
                fail().because(error).hint(hint)
            })?
        };
        let mut published = image;
        if published.tag.is_none() && published.digest.is_none() {
            published.tag = Some(published.version());
        }
        published.digest = Some(digest);
        console.write(|s| {
            s.out.data(&format!("{published}\n"))?;
            s.out.flush()
        })?;
        Ok(Exit::Ok)
    }
}
