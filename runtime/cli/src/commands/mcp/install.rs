//! `toolcell mcp install`: adds `toolcell mcp serve` to the servers of an MCP client.

use clap::{Args, Parser};

use super::edited::Edited;
use super::full_paths::{self, in_full};
use super::serve::Serve;
use crate::command_line;
use crate::components::lock;
use crate::config::{Overrides, layers};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::clients::{self, Client, Launch};
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// Add `toolcell mcp serve` to the MCP servers of a client, or remove it.
///
/// Shows the change of the client's file and writes it; everything else in the file stays as it is. Paths are written in full, because the client starts the server in a directory of its own, and the tools are loaded once before. The file before the change is kept beside it, with `.toolcell-backup` at the end of its name.
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
    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let launch = self.launch(overrides, environment, console).await?;
        let client = self.client;
        let file = client.file(environment);
        let edited = Edited::of(file, environment);
        let shown = edited.shown.clone();
        let fail = |exit| {
            Failure::new(
                exit,
                text!("the file `{}` of {} cannot be changed", shown, client.title()),
            )
        };
        let edited = edited
            .read()
            .map_err(|failure| fail(Exit::Config).because(failure))?;
        let text = edited.text();
        let entry = client.entry(&self.name, &launch);
        let (format, section) = (client.format(), client.section());
        let new = match self.remove {
            true => clients::remove(format, text, section, &self.name),
            false => clients::edit(format, text, section, &self.name, &entry),
        };
        let new = new.map_err(|reason| {
            let failure = fail(Exit::Config).why(Text::sentence(&reason, [text]));
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
        edited.show(&new, console)?;
        if self.dry_run {
            console.note("nothing was written");
            return Ok(Exit::Ok);
        }
        edited
            .write(&new)
            .map_err(|error| fail(Exit::Io).because(error))?;
        console.note(text!("written; {}", client.advice()));
        Ok(Exit::Ok)
    }

    /// Warns about files that a server finds by its working directory, which is that of the client.
    fn warn_of_directory(
        &self,
        is_locked: bool,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        if is_locked {
            console.note(text!(
                "warning: the server looks for `{}` in the directory in which {} starts it, and ends if there is none",
                lock::FILE,
                self.client.title()
            ));
        }
        if layers::has_project_file(environment)? {
            console.note(text!(
                "warning: `{}` of this project holds only if {} starts the server in the project",
                layers::PROJECT_FILE,
                self.client.title()
            ));
        }
        Ok(())
    }

    /// The command line that the client starts.
    ///
    /// # Errors
    /// Returns an error if the server would refuse its arguments, its configuration or a tool.
    async fn launch(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Launch, Failure> {
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
        let mut arguments: Vec<String> = ["mcp", "serve"].map(str::to_owned).into();
        if !self.remove {
            // Also one that a variable names, which the client does not have.
            if let Some(config) = &environment.named_config {
                arguments.splice(
                    0..0,
                    ["--config".to_owned(), full_paths::path(config, environment)?],
                );
            }
            let is_locked = checked.serve.is_locked();
            let settings = checked.serve.check(overrides, environment, console).await?;
            arguments.extend(in_full(&self.arguments, &settings, environment)?);
            self.warn_of_directory(is_locked, environment, console)?;
        }
        Ok(Launch {
            program: program.to_owned(),
            arguments,
        })
    }
}
