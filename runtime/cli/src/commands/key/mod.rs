//! `toolcell key`: keys of publishers, and signatures of components.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_fs::{FileError, Rules};
use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::keys::{KeyRing, PublicKey};
use crate::packages::signature_file;
use crate::ui::render::Console;
use crate::ui::render::json::print_pretty;
use crate::ui::terminal::{FAINT, NAME, Name, Own, Shown, text};

/// Manage keys of publishers, and sign components.
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

/// Add the public key of a publisher.
///
/// A package that is added with `--publisher NAME` must be signed by it, now and at each update.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell key add them ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
  toolcell tool add ghcr.io/them/roman:1.0 --publisher them

{}", crate::exit::TABLE))]
pub(crate) struct Add {
    /// Name of the key.
    name: String,

    /// Public key, `ed25519:` and base64.
    #[arg(value_name = "KEY")]
    key: String,
}

/// List the keys.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  toolcell key list --json\n\n{}", crate::exit::TABLE))]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Remove a key, with its private part. Packages that it is pinned for keep it.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  toolcell key remove them\n\n{}", crate::exit::TABLE))]
pub(crate) struct Remove {
    /// Name of the key.
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
            move |error: anyhow::Error| Failure::new(exit_of(&error), text!("{}", Own(what))).because(error)
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
                let key = command.key.parse::<PublicKey>();
                let added = key.and_then(|key| ring.add(&command.name, key));
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

impl List {
    fn run(&self, ring: &KeyRing, console: &Console) -> Result<(), Failure> {
        let keys = ring
            .keys()
            .map_err(|error| Failure::new(exit_of(&error), "the keys cannot be used").because(error))?;
        if self.json {
            let array: Vec<_> = keys
                .iter()
                .map(|known| json!({ "name": known.name, "key": known.key, "own": ring.is_own(&known.name) }))
                .collect();
            print_pretty(console, &array)?;
            return Ok(());
        }
        Ok(console.write(|s| {
            for known in &keys {
                s.out.styled(NAME, text!("{}", Name(&known.name)))?;
                s.out.text(text!("  {}", Shown(&known.key.to_string())))?;
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
