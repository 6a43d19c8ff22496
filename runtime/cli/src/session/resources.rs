//! Resources of MCP servers that a message names as `@SERVER:URI`, attached like files.
//!
//! They are read by the tool that the model would use: `only` and `except`, the lock and the rules of the user apply. A rule that
//! asks lets pass what the user typed, and refuses what a command's text names, which a script may have from others.

use serde_json::json;
use toolcell_agent::{TurnStart, Verdict};
use toolcell_core::event::DataFlow;
use toolcell_core::{CallContext, CallResult, Content, Tool, ToolCall};

use super::prompt::Draft;
use crate::agent::setup::AgentSetup;
use crate::error::{Exit, Failure};
use crate::mcp::servers;
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// Maximum length of the words of a server in an error, in characters.
const MAX_ERROR: usize = 1_000;

impl Draft {
    /// Reads the resources that the text names, and returns the start of its turn. A name of no server stays text.
    ///
    /// # Errors
    /// Returns an error if a resource cannot be read or sent, or the user cancels.
    pub(crate) async fn start(mut self, setup: &AgentSetup, console: &Console) -> Result<TurnStart, Failure> {
        let mut flow = DataFlow::default();
        for (server, uri) in std::mem::take(&mut self.resources) {
            let name = format!("{server}:{uri}");
            let Some(running) = setup.servers.find(&server) else {
                console.note(text!(
                    "`@{}` is sent as text, because there is no such file, and no MCP server `{}` in use",
                    name,
                    server
                ));
                continue;
            };
            let Some(reader) = running.resource_reader() else {
                console.note(text!(
                    "`@{}` is sent as text, because the MCP server `{}` offers no resources",
                    name,
                    server
                ));
                continue;
            };
            if let Some(rule) = self.refused_by(&*reader, &uri, setup) {
                console.note(text!("`@{}` is not attached, because of {}", name, rule));
                continue;
            }
            let arguments = json!({ "uri": uri });
            let read = read(&*reader, arguments, console).await?;
            let failed = || Failure::new(Exit::Failed, text!("could not attach `{}`", name));
            if let Some(error) = read.error {
                return Err(failed().why(text!("{}", error.to_string()).excerpt(MAX_ERROR)));
            }
            flow = flow.union(of_content(running.settings.flow));
            for part in read.content {
                let bytes = match part {
                    Content::Text { text } => text.into_bytes(),
                    Content::Blob(blob) => blob.data,
                    _ => return Err(failed().why("it has a part that is neither a text nor data")),
                };
                self.attach(&name, bytes, console)?;
            }
        }
        let message = self.message();
        Ok(match flow == DataFlow::default() {
            true => TurnStart::Message(message),
            false => TurnStart::Attached { message, flow },
        })
    }

    /// Returns the rule that keeps a resource from being attached.
    fn refused_by(&self, reader: &dyn Tool, uri: &str, setup: &AgentSetup) -> Option<Text> {
        let arguments = json!({ "uri": uri });
        let places = reader.places(&arguments);
        let name = reader.spec().name.as_str();
        match setup.approvals.verdict(name, &arguments, &places) {
            (Verdict::Allow, _) => None,
            (Verdict::Ask, _) if self.is_typed => None,
            (_, rule) => {
                let rule = rule.map(ToString::to_string).unwrap_or_default();
                Some(text!("the rule `{}`", rule))
            }
        }
    }
}

/// Calls a tool of a server for the user, who can cancel it.
///
/// # Errors
/// Returns an error if the user cancels.
pub(crate) async fn read(
    tool: &dyn Tool,
    arguments: serde_json::Value,
    console: &Console,
) -> Result<CallResult, Failure> {
    let call = ToolCall {
        id: "attached".into(),
        name: tool.spec().name.clone(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    };
    let _activity = console.activity("reading from the MCP server");
    tokio::select! {
        read = tool.call(call, CallContext::unobserved()) => Ok(read),
        () = servers::interrupted() => {
            Err(Failure::new(Exit::Cancelled, "cancelled while the MCP server was read"))
        }
    }
}

/// Data flow of what a server has returned: what the user sends to it is no egress of the session.
pub(crate) fn of_content(flow: DataFlow) -> DataFlow {
    DataFlow {
        can_send_out: false,
        can_send_elsewhere: false,
        ..flow
    }
}
