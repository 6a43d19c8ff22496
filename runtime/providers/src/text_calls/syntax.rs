//! Formats in which models write calls, by their markers.

use super::names::Offered;
use super::object::Found;
use super::tags::{enclosed, function_tag};
use super::tokens::{deepseek, kimi, labels, mistral, to_the_end};

/// Format with a start marker that does not occur in ordinary answers.
pub(super) struct Syntax {
    pub(super) marker: &'static str,
    /// True if the marker is valid only at the start of a line.
    pub(super) at_line_start: bool,
    read: fn(&str, &Offered, bool) -> Found,
}

/// All formats with markers. Of two markers at one position, the longer one applies.
pub(super) const SYNTAXES: &[Syntax] = &[
    // Hermes, Qwen: `<tool_call>{"name": …, "arguments": …}</tool_call>`; Qwen-Coder: `<function=…>` inside.
    Syntax {
        marker: "<tool_call>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</tool_call>", o, e),
    },
    Syntax {
        marker: "<function_call>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</function_call>", o, e),
    },
    // `<tool>{"server_name": …, "tool_name": …, "arguments": …}</tool>`, or the same as XML.
    Syntax {
        marker: "<tool>",
        at_line_start: false,
        read: |t, o, e| enclosed(t, "</tool>", o, e),
    },
    // Llama 3.1 and Qwen-Coder without the tag around it.
    Syntax {
        marker: "<function=",
        at_line_start: false,
        read: function_tag,
    },
    // Mistral: `[TOOL_CALLS][{…}]`, newer `[TOOL_CALLS]name[ARGS]{…}`.
    Syntax {
        marker: "[TOOL_CALLS]",
        at_line_start: false,
        read: mistral,
    },
    // Llama 3: `<|python_tag|>{"name": …, "parameters": …}`.
    Syntax {
        marker: "<|python_tag|>",
        at_line_start: false,
        read: |t, o, e| to_the_end(t, &["<|eom_id|>", "<|eot_id|>"], o, e),
    },
    Syntax {
        marker: "<｜tool▁calls▁begin｜>",
        at_line_start: false,
        read: deepseek,
    },
    Syntax {
        marker: "<|tool_calls_section_begin|>",
        at_line_start: false,
        read: |t, o, e| kimi(t, "<|tool_calls_section_end|>", o, e),
    },
    Syntax {
        marker: "<|tool_call_begin|>",
        at_line_start: false,
        read: |t, o, e| kimi(t, "<|tool_call_end|>", o, e),
    },
    // Labelled lines: `TOOL_CALL: name`, and on the next line `ARGUMENTS: {…}`.
    Syntax {
        marker: "TOOL_CALL:",
        at_line_start: true,
        read: labels,
    },
];

impl Syntax {
    /// Parses a text that starts with the marker; `is_end` if there is no more text.
    pub(super) fn read(&self, text: &str, offered: &Offered, is_end: bool) -> Found {
        (self.read)(text, offered, is_end)
    }
}
