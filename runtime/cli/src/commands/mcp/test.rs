//! `toolcell mcp test`: starts a server, and shows what it offers.

use std::time::Instant;

use clap::Args;
use serde_json::json;
use toolcell_core::suggest::nearest;

use crate::commands::tool::list::first_sentence;
use crate::components::loader::ComponentLoader;
use crate::components::{lock, secrets, tool_lint};
use crate::config::units::Span;
use crate::config::{self, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::elicitor::TerminalElicitor;
use crate::mcp::lock::LockedServer;
use crate::mcp::servers::{self, Running};
use crate::mcp::start;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{FAINT, GUTTER, NAME, Name, Own, STRONG, text};

/// Start an MCP server of the configuration, or connect to it, and list its tools.
///
/// Nothing is called. The names are those that the model gets. Warnings are about descriptions that could mislead it,
/// and about tools that cannot be offered.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp test github
  toolcell mcp test github --json

{}", crate::exit::TABLE))]
pub(crate) struct Test {
    /// Name of the server in the configuration.
    server: String,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Test {
    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let settings = config::load(environment, overrides)?;
        let wanted = settings
            .mcp
            .get(&self.server)
            .ok_or_else(|| unknown(&self.server, &settings))?;
        let known = secrets::read(&settings, environment)?;
        let locked = lock::servers(environment)?.remove(&self.server);
        // Nothing is called; but some servers have more tools for a client that can ask.
        let elicitor = TerminalElicitor::at_terminal(environment, console);
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let begun = Instant::now();
        let started = {
            let _activity = console.activity("starting the MCP server");
            tokio::select! {
                started = start::start(wanted, &known, &loader, elicitor) => started?,
                () = servers::interrupted() => {
                    return Err(Failure::new(Exit::Cancelled, "cancelled while the MCP server was starting"));
                }
            }
        };
        let time = begun.elapsed();
        let version = match started.server.version().await {
            Some(version) => version.as_str(),
            None if wanted.transport.kind() == "plain" => "plain",
            None => "unknown",
        };
        let running = Running::new(wanted.clone(), started);
        let mut warnings: Vec<String> = running
            .left_out()
            .iter()
            .map(|left| {
                text!(
                    "the tool `{}` is not offered: {}",
                    left.tool,
                    servers::reason_of(left)
                )
                .inert()
            })
            .collect();
        let specs = || running.tools.iter().map(|tool| tool.spec());
        let names: Vec<String> = specs().map(|spec| spec.name.to_string()).collect();
        warnings.extend(tool_lint::findings_in_component(specs(), &names));
        if let Some(locked) = &locked {
            let differences = locked.differences(&LockedServer::of(&running));
            warnings.extend(differences.into_iter().map(|difference| match difference.tool {
                Some(tool) => text!("`{}` differs from `{}`: {}", tool, lock::FILE, difference.what).inert(),
                None => text!("it differs from `{}`: {}", lock::FILE, difference.what).inert(),
            }));
        }
        let shown = self.show(&running, version, time, &warnings, console);
        running.stop().await;
        shown?;
        Ok(Exit::Ok)
    }

    fn show(
        &self,
        running: &Running,
        version: &'static str,
        time: std::time::Duration,
        warnings: &[String],
        console: &Console,
    ) -> Result<(), Failure> {
        if self.json {
            let tools: Vec<_> = running.tools.iter().map(|tool| tool.spec()).collect();
            let object = json!({
                "server": self.server,
                "transport": running.settings.transport.kind(),
                "version": version,
                "start_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                "tools": tools,
                "warnings": warnings,
            });
            print_line(console, &object)?;
            return Ok(());
        }
        console.write(|s| {
            s.out.styled(NAME, text!("{}", Name(&self.server)))?;
            s.out.styled(
                FAINT,
                text!(
                    "  {}, ready in {}, {} {}",
                    match running.settings.transport.kind() {
                        "plain" => "plain endpoints".into(),
                        kind => text!("{}, protocol {}", Own(kind), Own(version)),
                    },
                    Span(time),
                    running.tools.len(),
                    Own(if running.tools.len() == 1 { "tool" } else { "tools" })
                ),
            )?;
            s.out.end_line()?;
            let names = running.tools.iter().map(|tool| tool.spec().name.as_str().len());
            let width = names.max().unwrap_or(0);
            for tool in &running.tools {
                let spec = tool.spec();
                s.out.text("  ")?;
                s.out.cell(STRONG, text!("{}", spec.name), width)?;
                // Words of the server, which must not pass for ours.
                s.out
                    .line(text!("  {}{}", Own(GUTTER), first_sentence(&spec.description)))?;
            }
            s.out.flush()
        })?;
        for warning in warnings {
            console.note(text!("warning: {}", warning));
        }
        Ok(())
    }
}

/// The failure for a name that no server has.
pub(super) fn unknown(name: &str, settings: &Settings) -> Failure {
    let failure = Failure::new(Exit::Usage, text!("there is no MCP server `{}`", name));
    let names: Vec<&str> = settings.mcp.keys().map(String::as_str).collect();
    match nearest(name, &names).first() {
        Some(near) => failure.hint(text!("did you mean `{}`?", near)),
        None => failure.hint("to see all: toolcell mcp list"),
    }
}
