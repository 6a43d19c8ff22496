//! `toolcell key`: keys and identities of publishers, and signatures of components.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_fs::{FileError, Rules};
use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::keys::KeyRing;
use crate::packages::publisher::{Identity, Publisher};
use crate::packages::signature_file;
use crate::packages::{Refused, sigstore};
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::terminal::{FAINT, NAME, Name, Own, Shown, text};

/// Manage keys and identities of publishers, and sign components.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    Generate(Generate),
    Add(Add),
    List(List),
    Remove(Remove),
    Sign(Sign),
}

/// Create a key of your own, to sign components.
///
/// Prints the public part, for your users. The private part is in Toolcell's own directory, readable by you alone and without a password.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  toolcell key generate me\n\n{}", crate::exit::TABLE))]
pub(crate) struct Generate {
    /// Name of the key.
    name: String,
}

/// Add the public key of a publisher, or its identity in Sigstore.
///
/// A package that is added with `--publisher NAME` must be signed by it, now and at each update. An identity is what the certificate of the signer says, exactly: `--identity` is its e-mail address or URI, `--issuer` the OpenID Connect issuer that vouched for it. Identities need a build with the feature `sigstore`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell key add them ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
  toolcell tool add ghcr.io/them/roman:1.0 --publisher them
  toolcell key add release --identity https://github.com/them/roman/.github/workflows/release.yml@refs/heads/main --issuer https://token.actions.githubusercontent.com

{}", crate::exit::TABLE))]
pub(crate) struct Add {
    /// Name of the key or identity.
    name: String,

    /// Public key, `ed25519:` and base64.
    #[arg(
        value_name = "KEY",
        required_unless_present = "identity",
        conflicts_with = "identity"
    )]
    key: Option<String>,

    /// E-mail address or URI in the certificates of the publisher, instead of a key.
    #[arg(long, value_name = "SUBJECT", requires = "issuer")]
    identity: Option<String>,

    /// Issuer in the certificates of the publisher.
    #[arg(long, value_name = "URL", requires = "identity", conflicts_with = "key")]
    issuer: Option<String>,

    /// Trusted root of a private Sigstore (`trusted_root.json`) [default: that of the public Sigstore].
    #[arg(long, value_name = "FILE", requires = "identity", conflicts_with = "key")]
    trusted_root: Option<String>,
}

/// List the keys and identities.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  toolcell key list --json\n\n{}", crate::exit::TABLE))]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Remove a key, with its private part, or an identity. Packages that it is pinned for keep it.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  toolcell key remove them\n\n{}", crate::exit::TABLE))]
pub(crate) struct Remove {
    /// Name of the key or identity.
    name: String,
}

/// Sign a component. The signature is written beside it, to `FILE.sig`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell key sign roman.wasm --key me
  toolcell tool push roman.wasm ghcr.io/me/roman:1.0 --key me

{}", crate::exit::TABLE))]
pub(crate) struct Sign {
    /// Component.
    file: String,

    /// Name of a key of your own.
    #[arg(long, value_name = "NAME")]
    key: String,
}

impl Key {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let failed = |what: &'static str| {
            move |error: anyhow::Error| {
                let hint = error.downcast_ref::<Refused>().map(|unverified| unverified.hint);
                let failure = Failure::new(exit_of(&error), text!("{}", Own(what))).because(error);
                failure.hints(hint)
            }
        };
        let ring = KeyRing::open(environment).map_err(failed("the keys cannot be used"))?;
        match self {
            Self::Generate(command) => {
                let key = ring.generate(&command.name);
                let key = key.map_err(failed("the key was not created"))?;
                console.write(|s| {
                    s.out.data(&format!("{key}\n"))?;
                    s.out.flush()
                })?;
            }
            Self::Add(command) => {
                let publisher = command.publisher(environment);
                let added = publisher.and_then(|publisher| ring.add(&command.name, publisher));
                added.map_err(failed("the key was not added"))?;
                console.note(text!(
                    "added; a package of it: toolcell tool add REF --publisher {}",
                    command.name
                ));
            }
            Self::List(command) => command.run(&ring, console)?,
            Self::Remove(command) => {
                ring.remove(&command.name)
                    .map_err(failed("the key was not removed"))?;
                sigstore::remove_unused_roots(&ring, environment)
                    .map_err(failed("the key was removed, and its trusted root was not"))?;
                console.note("removed");
            }
            Self::Sign(command) => command.run(&ring, environment, console)?,
        }
        Ok(Exit::Ok)
    }
}

/// The exit code of an error of the ring: the files cannot be used, or the user named something wrong.
fn exit_of(error: &anyhow::Error) -> Exit {
    let is_of_file =
        |cause: &(dyn std::error::Error + 'static)| cause.is::<io::Error>() || cause.is::<FileError>();
    if error.chain().any(is_of_file) {
        Exit::Io
    } else {
        Exit::Usage
    }
}

impl Add {
    /// The key or the identity.
    fn publisher(&self, environment: &Environment) -> anyhow::Result<Publisher> {
        let (Some(identity), Some(issuer)) = (&self.identity, &self.issuer) else {
            return Ok(Publisher::Key(self.key.as_deref().unwrap_or_default().parse()?));
        };
        sigstore::supported()?;
        // Wrong words leave no file.
        let identity = Identity::new(identity.clone(), issuer.clone(), None)?;
        let Some(file) = &self.trusted_root else {
            return Ok(Publisher::Identity(identity));
        };
        let root = sigstore::keep_root(file, environment)?;
        Ok(Publisher::Identity(identity.with_root(root)))
    }
}

impl List {
    fn run(&self, ring: &KeyRing, console: &Console) -> Result<(), Failure> {
        let keys = ring
            .keys()
            .map_err(|error| Failure::new(exit_of(&error), "the keys cannot be used").because(error))?;
        if self.json {
            let array: Vec<_> = keys
                .iter()
                .map(|known| {
                    let (key, identity) = match &known.publisher {
                        Publisher::Key(key) => (Some(key), None),
                        Publisher::Identity(identity) => (None, Some(identity)),
                    };
                    let own = ring.is_own(&known.name);
                    json!({ "name": known.name, "key": key, "identity": identity, "own": own })
                })
                .collect();
            print_pretty(console, &array)?;
            return Ok(());
        }
        Ok(console.write(|s| {
            for known in &keys {
                s.out.styled(NAME, text!("{}", Name(&known.name)))?;
                s.out.text(text!("  {}", Shown(&known.publisher.to_string())))?;
                if ring.is_own(&known.name) {
                    s.out.styled(FAINT, "  your own")?;
                }
                s.out.end_line()?;
            }
            s.out.flush()
        })?)
    }
}

impl Sign {
    fn run(&self, ring: &KeyRing, environment: &Environment, console: &Console) -> Result<(), Failure> {
        let path = environment.path(&self.file, &environment.cwd);
        let fail = |exit| Failure::new(exit, text!("`{}` was not signed", self.file));
        let bytes = toolcell_fs::read(&path, &Rules::named(MAX_COMPONENT_BYTES))
            .map_err(|error| user_files::because(fail(Exit::Component), error))?;
        let signature = ring
            .sign(&self.key, Digest::of(&bytes))
            .map_err(|error| fail(exit_of(&error)).because(error))?;
        let beside = signature_file(&path);
        toolcell_fs::replace(&beside, format!("{signature}\n").as_bytes(), toolcell_fs::SHARED)
            .map_err(|error| fail(Exit::Io).because(error))?;
        console.note(text!("written: {}", Shown(&environment.shown(&beside))));
        Ok(())
    }
}
