//! `toolcell policy explain`: what tools can do in combination.

use std::collections::BTreeSet;
use std::io;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_core::event::DataFlow;

use crate::components::data_flow::{self, Reason};
use crate::components::loader::{ComponentLoader, Loaded, LoadedHook};
use crate::components::selection;
use crate::config::file::FlowRule;
use crate::config::mcp::Transport;
use crate::config::{self, McpSettings, Overrides, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::mcp::servers;
use crate::ui::render::Console;
use crate::ui::render::console::Streams;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Name, STRONG, Shown, Text, WARN, text};
use anstyle::Style;

/// Explain what tools can do in combination.
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    Explain(Explain),
}

/// Show what each component can access, by its grants and imports, and which components together could leak private
/// data.
///
/// A grant allows access; a denial (`deny=private`, `deny-http=…`, `deny-keyvalue=…`) overrides every grant. Denials
/// are enforced where files are opened and requests are sent, for every tool and whatever its arguments. To keep data
/// from all tools, add it to your configuration: `deny = ["private", "~/mail"]`. Approval rules only check arguments,
/// and a tool can open a file that its arguments do not name.
///
/// Prompt injection can leak data if one session combines private data, untrusted content and network egress. The
/// data-flow guard stops the call that completes this combination (`--flow`, `[approval] flow`).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell policy explain
  toolcell policy explain --tool files --tool fetch --grant files:read=. --grant fetch:http=example.com
  toolcell policy explain --tool files --grant write=. --grant deny=private
  toolcell policy explain --json")]
pub(crate) struct Explain {
    /// Explain only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured
    /// ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A component and its data-flow labels.
struct Row {
    name: Text,
    reasons: Vec<Reason>,
    /// Bindings of its secrets, one line each.
    secrets: Vec<String>,
    flow: DataFlow,
    /// Denials that apply to it, as written.
    denied: Vec<String>,
    /// True for an MCP server outside of every cell, which no grant, denial or limit applies to.
    is_server: bool,
}

impl Row {
    fn has_access(&self) -> bool {
        self.flow != DataFlow::default() || self.changes().next().is_some() || self.is_server
    }

    /// Returns what its grants allow to change, in words.
    fn changes(&self) -> impl Iterator<Item = &'static str> {
        self.reasons.iter().filter_map(|reason| reason.changes)
    }

    /// Describes what it can access, and by what.
    fn lines(&self) -> Vec<Text> {
        if !self.has_access() {
            return vec!["has no access outside its cell".into()];
        }
        let flow = self.flow;
        let words = [
            (flow.reads_private || flow.reads_service, "reads private data"),
            (flow.untrusted_content, "brings in untrusted content"),
            (flow.can_send_elsewhere, "can send data out"),
            (
                flow.can_send_out && !flow.can_send_elsewhere,
                "can send data to its services only",
            ),
        ];
        let mut words: Vec<Text> = words
            .into_iter()
            .filter_map(|(on, word)| on.then_some(Text::from(word)))
            .collect();
        words.extend(
            self.changes()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .map(Text::from),
        );
        if words.is_empty() {
            words.push("has no effect on the flow of data, as its table says".into());
        }
        let mut lines = vec![Text::join(words, ", ")];
        if self.is_server {
            lines.push(
                "not in a cell: no grant, denial or limit applies to it (`data_flow` of its table says what it does)"
                    .into(),
            );
        }
        lines.extend(
            self.reasons
                .iter()
                .map(|reason| text!("by {}", Shown(&reason.grant))),
        );
        lines.extend(self.denied.iter().map(|line| text!("except {}", Shown(line))));
        lines.extend(
            self.secrets
                .iter()
                .map(|secret| text!("with the secret {}", secret)),
        );
        lines
    }
}

/// What the components of an agent can access.
pub(in crate::commands) struct Access {
    /// For each component its lines, in the order of tools, hooks and servers.
    pub(in crate::commands) lines: Vec<Vec<Text>>,
    /// Names of components that together could leak private data.
    pub(in crate::commands) combinations: Vec<Vec<Text>>,
}

/// Describes what components, hooks and servers can access.
pub(in crate::commands) fn access<'a>(
    loaded: &[Loaded],
    hooks: &[LoadedHook],
    servers: impl Iterator<Item = &'a McpSettings>,
) -> Access {
    let rows = loaded.iter().map(row).chain(hooks.iter().map(hook_row));
    let rows: Vec<Row> = rows.chain(servers.map(server_row)).collect();
    Access {
        lines: rows.iter().map(Row::lines).collect(),
        combinations: combinations(&rows),
    }
}

/// Returns the denials of a component, without duplicates.
fn denied(settings: &ToolSettings) -> Vec<String> {
    let mut lines = Vec::new();
    for line in settings.grants.iter().filter(|line| line.grant.is_denial()) {
        let text = line.grant.to_string();
        if !lines.contains(&text) {
            lines.push(text);
        }
    }
    lines
}

impl Policy {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        match self {
            Self::Explain(command) => command.run(overrides, environment, console).await,
        }
    }
}

impl Explain {
    async fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let (components, servers) = servers::select(&self.tools, &settings);
        let loaded = match (self.tools.is_empty(), components.is_empty()) {
            // Only servers are named.
            (false, true) => Vec::new(),
            _ => selection::load(&loader, &components, console).await?,
        };
        let hooks = loader.hooks().await?;
        let rows = loaded.iter().map(row).chain(hooks.iter().map(hook_row));
        let rows: Vec<Row> = rows.chain(servers.iter().map(server_row)).collect();
        let paths = combinations(&rows);
        if self.json {
            let object = json!({
                "components": rows.iter().map(|row| json!({
                    "component": row.name.plain(),
                    "flow": row.flow,
                    "changes": row.changes().collect::<BTreeSet<_>>(),
                    "grants": row.reasons.iter().map(|reason| &reason.grant).collect::<Vec<_>>(),
                    "denied": row.denied,
                    "secrets": row.secrets,
                })).collect::<Vec<_>>(),
                "combinations": paths.iter().map(|path| path.iter().map(Text::plain).collect::<Vec<_>>()).collect::<Vec<_>>(),
                "guard": format!("{:?}", settings.flow.value).to_lowercase(),
            });
            print_line(console, &object)?;
        } else {
            console.write(|s| print(s, &rows, &paths, &settings))?;
        }
        Ok(Exit::Ok)
    }
}

fn row(loaded: &Loaded) -> Row {
    let reasons = data_flow::reasons(&loaded.settings, &loaded.component.abilities());
    Row {
        name: text!("{}", Name(&loaded.settings.name)),
        denied: denied(&loaded.settings),
        flow: data_flow::total(&reasons),
        reasons,
        secrets: secrets(&loaded.settings),
        is_server: false,
    }
}

fn secrets(settings: &ToolSettings) -> Vec<String> {
    settings.bindings.iter().map(ToString::to_string).collect()
}

/// A hook is called for every call of every tool.
fn hook_row(hook: &LoadedHook) -> Row {
    let reasons = data_flow::of_hook(hook);
    Row {
        name: text!("hook {}", Name(&hook.settings.component.name)),
        denied: denied(&hook.settings.component),
        flow: data_flow::total(&reasons),
        reasons,
        secrets: secrets(&hook.settings.component),
        is_server: false,
    }
}

/// The tools of a server have the labels of its configuration.
fn server_row(server: &McpSettings) -> Row {
    let in_cell = matches!(server.transport, Transport::Cell { .. });
    Row {
        name: text!("MCP server {}", Name(&server.name)),
        denied: Vec::new(),
        flow: server.flow,
        reasons: match &server.transport {
            Transport::Cell { component, .. } => data_flow::reasons_of_program(component),
            _ => Vec::new(),
        },
        secrets: server
            .secrets()
            .map(|name| match in_cell {
                true => format!("`{name}`"),
                false => format!("`{name}`, which it gets itself"),
            })
            .collect(),
        is_server: !in_cell,
    }
}

/// Returns the minimal sets of components that have all three labels together. No set has more than three.
fn combinations(rows: &[Row]) -> Vec<Vec<Text>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let touching: Vec<usize> = (0..rows.len())
        .filter(|i| rows[*i].flow != DataFlow::default())
        .collect();
    let mut sets: Vec<Vec<usize>> = touching.iter().map(|i| vec![*i]).collect();
    for _ in 0..3 {
        let mut larger = Vec::new();
        for set in sets {
            let contains_smaller = found.iter().any(|known| known.iter().all(|i| set.contains(i)));
            if contains_smaller {
                continue;
            }
            let flow = set
                .iter()
                .fold(DataFlow::default(), |flow, i| flow.union(rows[*i].flow));
            if flow.is_complete() {
                found.push(set);
                continue;
            }
            let last = set.last().copied().unwrap_or(0);
            larger.extend(touching.iter().filter(|i| **i > last).map(|i| {
                let mut next = set.clone();
                next.push(*i);
                next
            }));
        }
        sets = larger;
    }
    let name = |set: Vec<usize>| set.into_iter().map(|i| rows[i].name.clone()).collect();
    found.into_iter().map(name).collect()
}

fn print(s: &mut Streams, rows: &[Row], paths: &[Vec<Text>], settings: &Settings) -> io::Result<()> {
    let out = &mut s.out;
    let width = rows
        .iter()
        .map(|row| row.name.plain().chars().count())
        .max()
        .unwrap_or(0);
    for row in rows {
        out.cell(NAME, row.name.clone(), width)?;
        out.text("  ")?;
        let style = match row.has_access() {
            true => STRONG,
            false => FAINT,
        };
        for (i, line) in row.lines().into_iter().enumerate() {
            if i == 0 {
                out.styled(style, line)?;
                out.end_line()?;
            } else {
                out.cell(Style::new(), "", width)?;
                out.line(text!("    {}", line))?;
            }
        }
    }
    out.end_line()?;
    if paths.is_empty() {
        out.styled(GOOD, "✓ ")?;
        out.line("no combination can read private data, read untrusted content, and send data out")?;
    }
    for path in paths {
        out.styled(WARN, "! ")?;
        out.line(match path.as_slice() {
            [alone] => text!(
                "`{}` alone can leak private data if content it reads instructs the model to",
                alone
            ),
            together => text!(
                "`{}` together can leak private data if content they read instructs the model to",
                Text::join(together.iter().cloned(), "` and `")
            ),
        })?;
    }
    if !paths.is_empty() {
        let (style, does) = match settings.flow.value {
            FlowRule::Ask => (
                GOOD,
                "the flow guard asks before the call that completes the combination; without a terminal the call is refused",
            ),
            FlowRule::Refuse => (
                GOOD,
                "the flow guard refuses the call that completes the combination",
            ),
            FlowRule::Off => (BAD, "the flow guard is off: the combination is not prevented"),
        };
        out.text("  ")?;
        out.styled(style, does)?;
        out.styled(FAINT, text!(" ({})", Shown(&settings.flow.origin.to_string())))?;
        out.end_line()?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, reads_private: bool, untrusted_content: bool, can_send_out: bool) -> Row {
        Row {
            name: name.into(),
            reasons: Vec::new(),
            denied: Vec::new(),
            secrets: Vec::new(),
            is_server: false,
            flow: DataFlow {
                reads_private,
                untrusted_content,
                can_send_out,
                ..DataFlow::default()
            },
        }
    }

    #[test]
    fn smallest_sets_with_all_three_labels_are_found() {
        let rows = [
            row("files", true, false, false),
            row("fetch", false, true, true),
            row("mail", false, true, false),
            row("post", false, false, true),
            row("all", true, true, true),
            row("text", false, false, false),
        ];
        assert_eq!(
            combinations(&rows),
            [
                vec![Text::from("all")],
                vec!["files".into(), "fetch".into()],
                vec!["files".into(), "mail".into(), "post".into()]
            ]
        );
        assert!(combinations(&rows[..1]).is_empty());
    }
}
