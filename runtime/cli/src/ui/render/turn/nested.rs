//! Events of subagents.

use std::io;

use toolcell_core::event::{Event, NoticeLevel};

use super::{State, TurnView, set_apart};
use crate::ui::render::calls::{arguments_of, path, said};
use crate::ui::render::content;
use crate::ui::terminal::{BAD, GOOD, GUTTER, NAME, Own, Text, WARN, text};

/// Maximum depth of subagents with additional indentation.
const MAX_SHOWN_DEPTH: usize = 8;

impl TurnView {
    /// Shows calls and notes of a subagent, indented by its depth. `scope` is the path of its call.
    pub(super) fn nested(
        &self,
        state: &mut State,
        event: &Event,
        scope: &str,
        depth: usize,
    ) -> io::Result<()> {
        let line = |style, mark: &'static str, rest: Text| {
            self.console.write(|s| {
                s.end_open_line()?;
                (0..depth.min(MAX_SHOWN_DEPTH)).try_for_each(|_| s.err.text("  "))?;
                s.err.hang(2 * depth.min(MAX_SHOWN_DEPTH) + 2);
                s.err.styled(style, mark)?;
                s.err.text(" ")?;
                s.err.line(set_apart(rest))
            })
        };
        match event {
            Event::Nested { id, event } => self.nested(state, event, &path(scope, id), depth + 1),
            Event::StepFinished { message, .. } => {
                state.names.step(scope, message);
                Ok(())
            }
            Event::ApprovalRequested { id, tool, .. } => {
                state.names.tool(scope, id, tool);
                Ok(())
            }
            Event::HookFinished { hook, receipt, .. } => {
                let denials = self.new_denials(state, hook, receipt);
                denials.into_iter().try_for_each(|denied| line(WARN, "!", denied))
            }
            Event::CallStarted { id, tool, arguments } => {
                let name = state.names.of(scope, id, tool);
                line(NAME, "●", text!("{} {}", name, arguments_of(arguments)))
            }
            Event::CallFinished { id, tool, result } => {
                let name = state.names.of(scope, id, tool);
                match &result.error {
                    Some(error) => line(BAD, "✗", said(&name, error.to_string())),
                    None => line(GOOD, "✓", said(&name, content::summary(&result.content))),
                }
            }
            Event::ApprovalDecided { id, approved, reason } => {
                let decided = state.names.decided(scope, id, *approved, reason.as_ref());
                let (style, mark) = if *approved { (GOOD, "✓") } else { (WARN, "✗") };
                line(style, mark, decided)
            }
            Event::StepInterrupted { reason, .. } => line(
                WARN,
                "!",
                text!("the answer was interrupted: {}{}", Own(GUTTER), reason),
            ),
            Event::Notice {
                level: NoticeLevel::Warning | NoticeLevel::Error,
                hook,
                text,
            } => line(WARN, "!", super::notice(hook.as_deref(), text)),
            _ => Ok(()),
        }
    }
}
