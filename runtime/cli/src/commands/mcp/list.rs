//! `toolcell mcp list`: the servers of the configuration, without starting them.

use clap::Args;
use serde_json::json;

use crate::components::lock;
use crate::config::mcp::Transport;
use crate::config::{self, ComponentSource, McpSettings, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::lock::LockedServer;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{BAD, FAINT, NAME, Name, Own, Text, WARN, text};

/// List the MCP servers of the configuration. None is started.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell mcp list
  toolcell mcp list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let locked = lock::servers(environment)?;
        if self.json {
            let array = settings.mcp.values().map(|server| {
                let locked = locked.get(&server.name);
                json!({
                    "server": server.name,
                    "transport": server.transport.kind(),
                    "address": server.address(),
                    "enabled": server.enabled.value,
                    "required": server.required,
                    "only": server.only,
                    "except": server.except,
                    "data_flow": server.flow_words(),
                    "secrets": server.secrets().collect::<Vec<_>>(),
                    "problem": problem(server).map(|problem| problem.plain()),
                    "locked": locked.map(|locked| locked.tools().map(|(name, _)| name).collect::<Vec<_>>()),
                })
            });
            print_line(console, &array.collect::<Vec<_>>())?;
            return Ok(Exit::Ok);
        }
        let width = settings.mcp.keys().map(String::len).max().unwrap_or(0);
        console.write(|s| {
            for server in settings.mcp.values() {
                s.out.cell(NAME, text!("{}", Name(&server.name)), width)?;
                s.out.text(text!("  {}", Own(server.transport.kind())))?;
                if !server.enabled.value {
                    s.out.styled(BAD, "  off")?;
                }
                if let Some(problem) = problem(server) {
                    s.out.styled(WARN, text!("  {}", problem))?;
                }
                if let Some(locked) = locked.get(&server.name) {
                    s.out.styled(FAINT, text!("  {}", tools_of(locked)))?;
                }
                s.out.end_line()?;
                s.out.styled(FAINT, text!("    {}", address(server)))?;
                s.out.end_line()?;
            }
            s.out.flush()
        })?;
        console.note(match settings.mcp.is_empty() {
            true => "there are no MCP servers; to add one: toolcell mcp add",
            false => "to see the tools of a server: toolcell mcp test NAME",
        });
        Ok(Exit::Ok)
    }
}

/// Number of the tools in the lock file.
pub(crate) fn tools_of(locked: &LockedServer) -> Text {
    match locked.tools().count() {
        1 => text!("1 tool in `{}`", lock::FILE),
        count => text!("{} tools in `{}`", count, lock::FILE),
    }
}

/// The command line or the address.
pub(crate) fn address(server: &McpSettings) -> Text {
    // In backticks, so that nothing in it can pass for our words.
    text!("`{}`", server.address())
}

/// Reason for which it cannot start, as far as that is known without starting it.
pub(crate) fn problem(server: &McpSettings) -> Option<Text> {
    match &server.transport {
        Transport::Process(process) if process.program.is_none() => {
            Some(text!("there is no program `{}` in PATH", process.command))
        }
        Transport::Process(process) => {
            let program = process.program.as_ref()?;
            (!program.is_file()).then(|| text!("there is no program `{}`", program))
        }
        Transport::Cell { component, .. } => match &component.component {
            ComponentSource::File(path) if !path.value.is_file() => Some(text!(
                "there is no file `{}`",
                path.value.to_string_lossy().into_owned()
            )),
            _ => None,
        },
        _ => None,
    }
}
