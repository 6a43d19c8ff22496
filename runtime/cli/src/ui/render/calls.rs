//! Calls of a turn, as their lines name them: if a step calls one tool several times, by their place among those calls.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use toolcell_core::tool::{LogLevel, LogLine, LogSource};
use toolcell_core::{Message, Part};

use super::{Console, content};
use crate::ui::terminal::{BAD, FAINT, GUTTER, Name, Own, Text, WARN, text};

/// Maximum number of remembered calls. Those beyond it are named by their tool alone.
const MAX_CALLS: usize = 10_000;

/// Names of the calls of a turn. Identifiers are those within a session; those of subagents follow the one of their call
/// (`outer/inner`).
#[derive(Default)]
pub(super) struct CallNames(BTreeMap<String, CallName>);

struct CallName {
    tool: String,
    /// Number of the call among those of the same tool in its step, and how many those are.
    place: Option<(usize, usize)>,
}

impl CallNames {
    /// Remembers the calls of a step. `scope` is the path of the agent, empty for the main one.
    pub(super) fn step(&mut self, scope: &str, message: &Message) {
        let Message::Assistant { parts } = message else {
            return;
        };
        let calls = || {
            parts.iter().filter_map(|part| match part {
                Part::Call(call) => Some(call),
                _ => None,
            })
        };
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for call in calls() {
            let all = calls().filter(|other| other.name == call.name).count();
            let number = seen.entry(&call.name).or_default();
            *number += 1;
            let name = CallName {
                tool: call.name.clone(),
                place: (all > 1).then_some((*number, all)),
            };
            if self.0.len() < MAX_CALLS {
                self.0.insert(path(scope, &call.id), name);
            }
        }
    }

    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Remembers the tool of a call whose step is not known, such as one of a resumed turn.
    pub(super) fn tool(&mut self, scope: &str, id: &str, tool: &str) {
        if self.0.len() < MAX_CALLS {
            let name = CallName {
                tool: tool.to_owned(),
                place: None,
            };
            self.0.entry(path(scope, id)).or_insert(name);
        }
    }

    /// Name of a call: its tool, with its place among the calls of that tool in the step if there are several.
    pub(super) fn of(&self, scope: &str, id: &str, tool: &str) -> Text {
        match self.0.get(&path(scope, id)).and_then(|name| name.place) {
            Some((number, all)) => text!("{} ({} of {})", Name(tool), number, all),
            None => text!("{}", Name(tool)),
        }
    }

    /// Says that a call was approved, or not: `approved: files_write (1 of 2)`.
    pub(super) fn decided(&self, scope: &str, id: &str, approved: bool, reason: Option<&String>) -> Text {
        let decided = Own(if approved { "approved" } else { "not approved" });
        let decided = match self.0.get(&path(scope, id)) {
            Some(name) => text!("{}: {}", decided, self.of(scope, id, &name.tool)),
            None => text!("{}", decided),
        };
        match reason {
            Some(reason) => text!("{}: {}", decided, reason),
            None => decided,
        }
    }
}

/// Path of a call of an agent.
pub(super) fn path(scope: &str, id: &str) -> String {
    if scope.is_empty() {
        return id.to_owned();
    }
    format!("{scope}/{id}")
}

/// Text of a tool behind the name of its call and the gutter, so that it is not read as words of Toolcell.
pub(super) fn said(name: &Text, text: String) -> Text {
    text!("{} {}{}", *name, Own(GUTTER), text)
}

/// Arguments of a call on one line. What is not JSON stands behind the gutter.
pub(super) fn arguments_of(arguments: &Value) -> Text {
    let line = content::arguments(arguments);
    match arguments {
        Value::String(_) => text!("{}{}", Own(GUTTER), line),
        _ => Text::foreign(line),
    }
}

/// Writes a line of a tool's log to standard error, with the name of its call unless that is clear.
pub(crate) fn log(console: &Console, call: Option<&Text>, line: &LogLine) -> io::Result<()> {
    let style = match line.level {
        LogLevel::Error => BAD,
        LogLevel::Warn => WARN,
        _ => FAINT,
    };
    let source = match line.source {
        LogSource::Log => "log",
        LogSource::Stdout => "stdout",
        LogSource::Stderr => "stderr",
        LogSource::Host => "host",
        LogSource::Backtrace => "backtrace",
    };
    console.write(|s| {
        s.end_open_line()?;
        s.err.text("  ")?;
        if let Some(call) = call {
            s.err.styled(FAINT, call.clone())?;
            s.err.text(" ")?;
        }
        s.err.hang(2 + source.len() + 1);
        s.err.styled(style, source)?;
        s.err.text(" ")?;
        s.err.styled(style, GUTTER)?;
        s.err.line(line.message.clone())
    })
}

#[cfg(test)]
mod tests {
    use toolcell_core::message::CallRequest;

    use super::*;

    fn step(calls: &[(&str, &str)]) -> Message {
        let part = |(id, name): &(&str, &str)| {
            Part::Call(CallRequest {
                id: (*id).to_owned(),
                name: (*name).to_owned(),
                arguments: String::new(),
                opaque: Value::Null,
            })
        };
        Message::Assistant {
            parts: calls.iter().map(part).collect(),
        }
    }

    #[test]
    fn several_calls_of_a_tool_are_numbered_and_others_are_not() {
        let mut names = CallNames::default();
        names.step("", &step(&[("1", "read"), ("2", "list"), ("3", "read")]));
        names.step("1", &step(&[("1", "read")]));
        let of = |scope, id, tool| names.of(scope, id, tool).plain();
        assert_eq!(of("", "1", "read"), "read (1 of 2)");
        assert_eq!(of("", "2", "list"), "list");
        assert_eq!(of("", "3", "read"), "read (2 of 2)");
        assert_eq!(of("1", "1", "read"), "read");
        assert_eq!(of("", "4", "read"), "read");
    }

    #[test]
    fn decision_names_its_call() {
        let mut names = CallNames::default();
        names.step("", &step(&[("1", "write"), ("2", "write")]));
        names.tool("", "9", "list");
        let decided = |id, approved, reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            names.decided("", id, approved, reason.as_ref()).plain()
        };
        assert_eq!(decided("2", true, None), "approved: write (2 of 2)");
        assert_eq!(decided("9", false, Some("late")), "not approved: list: late");
        assert_eq!(decided("0", true, None), "approved");
    }
}
