//! `toolcell mcp add` and `toolcell mcp remove`: servers in the user's configuration.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use toolcell_core::Grant;
use toolcell_mcp::client::{Remote, RemoteError};

use super::edited::Edited;
use super::full_paths;
use super::test::unknown;
use crate::config::{self, Overrides, mcp, user_files};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::clients::{self, Entry, Format};
use crate::ui::render::Console;
use crate::ui::terminal::{Name, Text, text};

/// Key of the servers in the configuration.
const SECTION: &str = "mcp";

/// Prefix of a value on the command line that names a secret.
const SECRET: &str = "secret:";

/// Place of the secret in the template of a header.
const PLACE: &str = "{}";

/// Words in the names of headers and variables that hold secrets.
const SECRET_NAMES: [&str; 7] = ["auth", "token", "key", "secret", "password", "passwd", "cookie"];

/// Add an MCP server to your configuration: a program, an address, or a component in a cell.
///
/// Shows the change of your configuration file and writes it; everything else in the file stays as it is. The file before the change is kept beside it, with `.toolcell-backup` at the end of its name. The server is not started.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp add graph -- npx -y @modelcontextprotocol/server-memory
  toolcell mcp add notes --env TOKEN=secret:notes -- ./notes-server --read-only
  toolcell mcp add docs --url https://mcp.example/mcp --header 'Authorization=Bearer secret:docs'
  toolcell mcp add notes --component notes-server.wasm --grant read=~/notes
  toolcell mcp add graph --dry-run -- npx -y @modelcontextprotocol/server-memory

{}", crate::exit::TABLE))]
pub(crate) struct Add {
    /// Name of the server, with which the names of its tools begin.
    name: String,

    /// Address of a server over HTTP: `https`, or `http` on this machine.
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,

    /// Header of every request (repeatable): `NAME=VALUE`. `secret:SECRET` in the value is a secret of `[secrets]`.
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url", conflicts_with_all = ["command", "component", "env", "grants"], value_parser = pair)]
    headers: Vec<(String, String)>,

    /// Use the plain endpoints `tools/list` and `tools/call` below the address instead of the protocol.
    #[arg(long, requires = "url", conflicts_with_all = ["command", "component", "env", "grants"])]
    plain: bool,

    /// Component that is the server: a program (`wasi:cli/run`), which runs in a cell. Its arguments stand behind `--`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "env"])]
    component: Option<String>,

    /// Grant of the component (repeatable), such as `read=~/notes`.
    #[arg(
        long = "grant",
        value_name = "GRANT",
        requires = "component",
        conflicts_with_all = ["url", "env"]
    )]
    grants: Vec<Grant>,

    /// Environment variable of the program (repeatable): `NAME=VALUE`, or `NAME=secret:SECRET` for a secret of `[secrets]`.
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "url", value_parser = pair)]
    env: Vec<(String, String)>,

    /// Show the change, and write nothing.
    #[arg(long)]
    dry_run: bool,

    /// The program and its arguments, behind `--`. Paths that begin with `./` or `../` are written in full, because the
    /// server starts in the home directory.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Remove an MCP server from your configuration.
///
/// Shows the change of your configuration file and writes it, as `toolcell mcp add` does.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp remove graph
  toolcell mcp remove graph --dry-run

{}", crate::exit::TABLE))]
pub(crate) struct Remove {
    /// Name of the server.
    name: String,

    /// Show the change, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is written NAME=VALUE".into()),
    }
}

impl Add {
    pub(super) fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let fail = || Failure::new(Exit::Usage, text!("the MCP server `{}` was not added", self.name));
        if self.url.is_none() && self.component.is_none() && self.command.is_empty() {
            return Err(fail()
                .why("it has neither a command nor a URL nor a component")
                .hint(text!(
                    "add its program behind `--`: toolcell mcp add {} -- PROGRAM; or its address: --url https://…; or its component: --component FILE.wasm",
                    Name(&self.name)
                )));
        }
        if let Some(existing) = settings.mcp.get(&self.name) {
            return Err(fail()
                .why("there is a server of this name")
                .why(existing.origin.point_at())
                .hint(text!(
                    "use another name, or remove it first: toolcell mcp remove {}",
                    self.name
                )));
        }
        if let Some(file) = &self.component
            && (file.is_empty() || environment.path(file, &environment.cwd).is_dir())
        {
            return Err(fail()
                .why(text!("`{}` is not a file", file))
                .hint("name the component: --component FILE.wasm"));
        }
        mcp::check_name(&self.name, &settings).map_err(|(why, hint)| fail().why(why).hint(hint))?;
        self.check_pairs().map_err(|why| fail().why(why))?;
        // A directory that is granted stays the one that it is here, wherever the server is used.
        let grants = self.grants.iter();
        let grants: Vec<String> = grants
            .map(|grant| full_paths::grant(&grant.to_string(), environment))
            .collect::<Result<_, _>>()?;
        let entry = Entry {
            own: self
                .entry(&grants, environment)
                .map_err(|error| fail().because(error))?,
            defaults: json!({}),
        };
        let edited = open(environment, fail)?;
        let new = clients::edit(Format::Toml, edited.text(), SECTION, &self.name, &entry)
            .map_err(|why| fail().why(text!("`{}`: {}", edited.shown, why)))?;
        edited.show(&new, console)?;
        let of_env = self.env.iter().filter_map(|(_, value)| secret_of(value));
        let of_headers = self.headers.iter().filter_map(|(_, value)| secret_in(value));
        let missing = of_env
            .chain(of_headers.map(|(_, secret)| secret))
            .find(|secret| !settings.secrets.contains_key(*secret));
        if let Some(secret) = missing {
            console.note(text!(
                "warning: there is no secret `{}` yet; say where it is: [secrets.{}] env = \"VARIABLE\"",
                secret,
                secret
            ));
        }
        if let Some(file) = &self.component
            && !environment.path(file, &environment.cwd).is_file()
        {
            console.note(text!("warning: there is no file `{}` yet", file));
        }
        for (name, _) in self.plain_secrets() {
            console.note(text!(
                "warning: the value of `{}` is written as plain text; to keep it out of the file, store it as a secret and write `secret:NAME` in its place",
                name
            ));
        }
        let next = text!("to see its tools: toolcell mcp test {}", self.name);
        write(&edited, &new, self.dry_run, next, fail, console)
    }

    /// Checks that no header and no variable is given twice, and that each secret has one place.
    fn check_pairs(&self) -> Result<(), Text> {
        let twice = |pairs: &[(String, String)], is_same: fn(&str, &str) -> bool| {
            let mut rest = pairs.iter().enumerate();
            let found =
                rest.find(|(index, (name, _))| pairs[..*index].iter().any(|(other, _)| is_same(other, name)));
            found.map(|(_, (name, _))| name.clone())
        };
        let headers = twice(&self.headers, |one, other| one.eq_ignore_ascii_case(other));
        if let Some(name) = headers.or_else(|| twice(&self.env, |one, other| one == other)) {
            return Err(text!("`{}` is given twice", name));
        }
        let placed = self.headers.iter();
        let mut placed = placed.filter_map(|(name, value)| Some((name, secret_in(value)?.0)));
        match placed.find(|(_, before)| before.contains(PLACE)) {
            Some((name, _)) => Err(text!(
                "the text before the secret in `{}` contains `{}`",
                name,
                PLACE
            )),
            None => Ok(()),
        }
    }

    /// Headers and variables whose names say that their values are secrets, and that name none of `[secrets]`.
    fn plain_secrets(&self) -> impl Iterator<Item = &(String, String)> {
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|word| name.contains(word))
        };
        let headers = self
            .headers
            .iter()
            .filter(|(_, value)| secret_in(value).is_none());
        let env = self.env.iter().filter(|(_, value)| secret_of(value).is_none());
        headers.chain(env).filter(move |(name, _)| is_secret(name))
    }

    /// The table of the server.
    fn entry(&self, grants: &[String], environment: &Environment) -> Result<Value, RemoteError> {
        if let Some(url) = &self.url {
            // Values are checked here and not written with their secrets.
            Remote::new(url, self.headers.iter().cloned())?;
            let mut entry = json!({ "url": url });
            if self.plain {
                entry["plain"] = true.into();
            }
            if !self.headers.is_empty() {
                entry["headers"] = values(&self.headers, |value| match secret_in(value)? {
                    ("", secret) => Some(json!({ "secret": secret })),
                    (before, secret) => {
                        Some(json!({ "secret": secret, "template": format!("{before}{PLACE}") }))
                    }
                });
            }
            return Ok(entry);
        }
        if let Some(file) = &self.component {
            let path: PathBuf = environment.path(file, &environment.cwd).components().collect();
            let mut entry = json!({ "component": path });
            if !self.command.is_empty() {
                entry["args"] = json!(self.command);
            }
            if !grants.is_empty() {
                entry["grants"] = json!(grants);
            }
            return Ok(entry);
        }
        let path = |word: &String| match word.starts_with("./") || word.starts_with("../") {
            true => {
                // Without the `.` in its middle.
                let path: PathBuf = environment.cwd.join(word).components().collect();
                path.to_str().map_or_else(|| word.clone(), str::to_owned)
            }
            false => word.clone(),
        };
        let mut words = self.command.iter().map(path);
        let mut entry = json!({ "command": words.next() });
        let arguments: Vec<String> = words.collect();
        if !arguments.is_empty() {
            entry["args"] = json!(arguments);
        }
        if !self.env.is_empty() {
            entry["env"] = values(&self.env, |value| Some(json!({ "secret": secret_of(value)? })));
        }
        Ok(entry)
    }
}

impl Remove {
    pub(super) fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        if !settings.mcp.contains_key(&self.name) {
            return Err(unknown(&self.name, &settings));
        }
        let fail = || {
            Failure::new(
                Exit::Config,
                text!("the MCP server `{}` was not removed", self.name),
            )
        };
        let edited = open(environment, fail)?;
        let new = clients::remove(Format::Toml, edited.text(), SECTION, &self.name)
            .map_err(|why| fail().why(text!("`{}`: {}", edited.shown, why)))?;
        edited.show(&new, console)?;
        write(&edited, &new, self.dry_run, Text::default(), fail, console)
    }
}

/// Reads the user's file.
fn open(environment: &Environment, fail: impl Fn() -> Failure) -> Result<Edited, Failure> {
    let file = user_files::user_file(environment).ok_or_else(|| {
        fail()
            .why("there is no home directory")
            .hint("name a configuration file with --config")
    })?;
    Edited::of(file, environment)
        .read()
        .map_err(|error| fail().because(error))
}

/// Writes the change, unless it is only shown.
fn write(
    edited: &Edited,
    new: &str,
    is_dry_run: bool,
    next: Text,
    fail: impl Fn() -> Failure,
    console: &Console,
) -> Result<Exit, Failure> {
    if is_dry_run {
        console.note("nothing was written");
        return Ok(Exit::Ok);
    }
    edited.write(new).map_err(|error| {
        let mut failure = fail();
        failure.exit = Exit::Io;
        failure.because(error)
    })?;
    console.note(match next == Text::default() {
        true => "written".into(),
        false => text!("written; {}", next),
    });
    Ok(Exit::Ok)
}

/// The name of the secret that is a whole value on the command line.
fn secret_of(value: &str) -> Option<&str> {
    value.strip_prefix(SECRET).filter(|secret| !secret.is_empty())
}

/// The text before a secret at the end of a value on the command line, and its name.
fn secret_in(value: &str) -> Option<(&str, &str)> {
    let (before, secret) = value.split_once(SECRET)?;
    (!secret.is_empty()).then_some((before, secret))
}

/// Values as they are written in the configuration: as `secret` says, or as texts.
fn values(pairs: &[(String, String)], secret: impl Fn(&str) -> Option<Value>) -> Value {
    let value = |text: &String| secret(text).unwrap_or_else(|| json!(text));
    let all: Map<String, Value> = pairs
        .iter()
        .map(|(name, text)| (name.clone(), value(text)))
        .collect();
    Value::Object(all)
}
