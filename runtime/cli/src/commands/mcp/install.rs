//! `toolcell mcp install`: adds `toolcell mcp serve` to the servers of an MCP client.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use toolcell_fs::{Owner, PRIVATE, Rules};

use super::serve::Serve;
use crate::command_line;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::clients::{self, Client, Launch};
use crate::scratch::diff;
use crate::ui::render::Console;
use crate::ui::terminal::{Shown, text};

/// Maximum size of the file of a client, in bytes. That of Claude Code holds its history as well.
const MAX_BYTES: u64 = 64 << 20;

/// End of the name of the copy that is kept of a changed file.
const BACKUP: &str = ".toolcell-backup";

/// Add `toolcell mcp serve` to the MCP servers of a client, or remove it.
///
/// Shows the change of the client's file and writes it; everything else in the file stays as it is. The file before the change is kept beside it, with `.toolcell-backup` at the end of its name.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp install cursor --dry-run
  toolcell mcp install claude-code -- --tool files --grant files:read=.
  toolcell mcp install codex --name notes -- --tool memory
  toolcell mcp install cursor --remove

{}", crate::exit::TABLE))]
pub(crate) struct Install {
    /// The client.
    client: Client,

    /// Name of the entry, by which the client calls the server.
    #[arg(long, value_name = "NAME", default_value = "toolcell", value_parser = name)]
    name: String,

    /// Show the change, and write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Remove the entry.
    #[arg(long, conflicts_with = "arguments")]
    remove: bool,

    /// Arguments of `toolcell mcp serve`, behind `--`: the tools, and what they may do.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Parser of the arguments of `toolcell mcp serve`.
#[derive(Debug, Parser)]
#[command(name = "toolcell mcp serve")]
struct Checked {
    #[command(flatten)]
    serve: Serve,
}

fn name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (1..=64).contains(&text.len()) && text.chars().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 letters, digits, `-` and `_`".into()),
    }
}

impl Install {
    pub(super) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let launch = self.launch()?;
        let client = self.client;
        let file = client.file(environment);
        // A link is followed, as the client does.
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        let shown = environment.shown(&file);
        let fail = |exit| {
            Failure::new(
                exit,
                text!("the file `{}` of {} cannot be changed", shown, client.title()),
            )
        };
        let old = read(&file).map_err(|failure| fail(Exit::Config).because(failure))?;
        let text = old.as_ref().map_or("", |(text, _)| text.as_str());
        let entry = client.entry(&self.name, &launch);
        let (format, section) = (client.format(), client.section());
        let new = match self.remove {
            true => clients::remove(format, text, section, &self.name),
            false => clients::edit(format, text, section, &self.name, &entry),
        };
        let new = new.map_err(|reason| {
            let failure = fail(Exit::Config).why(text!("{}", reason));
            match self.remove {
                true => failure.hint(text!("remove the entry `{}` by hand", self.name)),
                false => failure.hint(text!(
                    "add this by hand:\n{}",
                    clients::by_hand(client, &self.name, &entry.over(None))
                )),
            }
        })?;
        if new == text {
            console.note(match self.remove {
                true => text!("nothing to remove: `{}` has no entry `{}`", shown, self.name),
                false => text!("nothing to change: `{}` has this entry", shown),
            });
            return Ok(Exit::Ok);
        }
        console.write(|s| {
            s.out.line(text!("change of {}:", Shown(&shown)))?;
            diff::unified(&mut s.out, text, &new)?;
            s.out.flush()
        })?;
        if self.dry_run {
            console.note("nothing was written");
            return Ok(Exit::Ok);
        }
        self.write(&file, old, &new)
            .map_err(|error| fail(Exit::Io).because(error))?;
        console.note(text!("written; {}", client.advice()));
        Ok(Exit::Ok)
    }

    /// The command line that the client starts.
    fn launch(&self) -> Result<Launch, Failure> {
        let arguments = ["toolcell mcp serve"].into_iter().map(str::to_owned);
        let parsed = Checked::try_parse_from(arguments.chain(self.arguments.iter().cloned()));
        let checked = parsed.map_err(command_line::failure)?;
        if checked.serve.is_over_http() {
            return Err(
                Failure::new(Exit::Usage, "a client cannot start a server over HTTP")
                    .why("it talks to a server that it starts over standard input and output")
                    .hint("leave --http out; or start the server yourself, and give the client its address"),
            );
        }
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or_else(|| {
            Failure::new(Exit::Usage, "the path of `toolcell` cannot be written")
                .why(text!(
                    "`{}` is not Unicode",
                    program.to_string_lossy().into_owned()
                ))
                .hint("move the program")
        })?;
        let words = ["mcp", "serve"].into_iter().map(str::to_owned);
        Ok(Launch {
            program: program.to_owned(),
            arguments: words.chain(self.arguments.iter().cloned()).collect(),
        })
    }

    /// Writes the changed file, and a copy of the old one.
    fn write(&self, file: &Path, old: Option<(String, u32)>, new: &str) -> anyhow::Result<()> {
        let mode = old.as_ref().map_or(PRIVATE, |(_, mode)| *mode);
        match &old {
            Some((old, _)) => toolcell_fs::replace(&backup_of(file), old.as_bytes(), mode)?,
            None => {
                if let Some(directory) = file.parent() {
                    std::fs::create_dir_all(directory)?;
                }
            }
        }
        Ok(toolcell_fs::replace(file, new.as_bytes(), mode)?)
    }
}

/// Path of the copy of a file.
fn backup_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(BACKUP);
    file.with_file_name(name)
}

/// Reads a file with its permissions; `None` if there is none.
fn read(file: &Path) -> anyhow::Result<Option<(String, u32)>> {
    let rules = Rules {
        owner: Owner::User,
        follow: false,
        max_bytes: MAX_BYTES,
    };
    if matches!(std::fs::symlink_metadata(file), Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let opened = toolcell_fs::open(file, &rules)?;
    let mode = opened.metadata()?.mode() & 0o777;
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("it is not UTF-8"))?;
    Ok(Some((text, mode)))
}
