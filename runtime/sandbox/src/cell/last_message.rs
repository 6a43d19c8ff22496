//! Last message that a guest wrote to standard error before it crashed: that of an exception which it did not catch.
//!
//! Language runtimes write a stack trace around it and, when they then end themselves, messages of their own.

use crate::cell::failure;

/// Maximum length of the message, in bytes.
const MAX_MESSAGE: usize = 500;

/// Lines that runtimes write around the message of an exception, by their beginning: the trace of JavaScript, the advice of
/// Rust, the end of SpiderMonkey.
const AROUND: [&str; 5] = [
    "at ",
    "note: ",
    "Stack:",
    "thread '",
    "Redirecting call to abort()",
];

/// First line of the trace of Python, whose first line without indentation is the message.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// Beginning of the first line of a panic of Rust, whose message follows on lines of its own.
const PANIC: &str = "thread '";

/// Beginnings of the lines after the message of a panic.
const AFTER_PANIC: [&str; 2] = ["note: run with ", "stack backtrace:"];

/// Kind of a message, from the weakest sign of a crash to the strongest. A later message replaces one of its own kind or a weaker one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    #[default]
    Line,
    /// It names an exception, as lines of a log do, too.
    Named,
    /// Panic of Rust, also of a runtime in which an exception was not caught.
    Panic,
    /// Exception of Python.
    Traceback,
}

/// Message found so far.
#[derive(Debug, Default)]
pub(crate) struct LastMessage {
    pub(crate) text: Option<String>,
    kind: Kind,
    in_traceback: bool,
    /// Message of the panic that is being read.
    panic: Option<String>,
}

impl LastMessage {
    /// Looks at the next line of standard error.
    pub(crate) fn note(&mut self, line: &str) {
        let text = line.trim_end();
        if text.starts_with(PANIC) && text.contains("' ") && text.contains("panicked at ") {
            self.panic = Some(String::new());
            return;
        }
        if let Some(mut panic) = self.panic.take() {
            if !AFTER_PANIC.iter().any(|begin| text.starts_with(begin)) {
                if panic.len() <= MAX_MESSAGE {
                    panic.push_str(if panic.is_empty() { "" } else { "\n" });
                    panic.push_str(text);
                }
                self.found(Kind::Panic, panic.trim_end());
                self.panic = Some(panic);
            }
            return;
        }
        if text == TRACEBACK {
            self.in_traceback = true;
            return;
        }
        let is_around = text.is_empty()
            || text.starts_with([' ', '\t'])
            || AROUND.iter().any(|begin| text.starts_with(begin))
            || is_place(text);
        if is_around {
            return;
        }
        let kind = match (std::mem::take(&mut self.in_traceback), names_exception(text)) {
            (true, _) => Kind::Traceback,
            (false, true) => Kind::Named,
            (false, false) => Kind::Line,
        };
        self.found(kind, text);
    }

    fn found(&mut self, kind: Kind, text: &str) {
        if kind >= self.kind && !text.is_empty() {
            self.kind = kind;
            self.text = Some(failure::cut(text.to_owned(), MAX_MESSAGE));
        }
    }
}

/// Returns `true` for a place in a stack trace, such as `run@tool.js:3:5`.
fn is_place(text: &str) -> bool {
    let mut parts = text.rsplitn(3, ':');
    let numbers = [parts.next(), parts.next()];
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.contains('@') && numbers.iter().all(|part| part.is_some_and(is_number))
}

/// Returns `true` if a word such as `ValueError:` is in the text.
fn names_exception(text: &str) -> bool {
    ["Error:", "Exception:"].iter().any(|end| text.contains(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_an_exception_is_found_in_its_trace() {
        let python = "\nthread '<unnamed>' (1) panicked at runtime/src/lib.rs:1293:29:\n\
            Python function threw an unexpected exception\nnote: run with `RUST_BACKTRACE=1`";
        let python =
            |message: &str| format!("{TRACEBACK}\n  File \"app.py\", line 16, in run\n{message}\n{python}");
        let javascript = "invalid variant (received `TypeError: boom`)\nStack:\n  run@a.js:548:17\nrun@a.js:3:5\n\n\
            Redirecting call to abort() to mozalloc_abort\n";
        for (written, message) in [
            (python("ValueError: boom").as_str(), Some("ValueError: boom")),
            (python("Boom: own class").as_str(), Some("Boom: own class")),
            (javascript, Some("invalid variant (received `TypeError: boom`)")),
            (
                "\nthread 'main' panicked at src/lib.rs:3:5:\nboom\nnote: run with RUST_BACKTRACE=1",
                Some("boom"),
            ),
            ("starting\nfatal: no space", Some("fatal: no space")),
            (
                "thread '<unnamed>' (1) panicked at src/lib.rs:10:30:\nl1\n  l2\n)\nnote: run with `RUST_BACKTRACE=1` to",
                Some("l1\n  l2\n)"),
            ),
            (
                "thread 'a' panicked at b.rs:1:1:\nat the end\nnote: run with `RUST_BACKTRACE=1` to",
                Some("at the end"),
            ),
            (
                "thread 'a' panicked at b.rs:1:1:\nnote: bad\nnote: run with `RUST_BACKTRACE=1` to",
                Some("note: bad"),
            ),
            (
                "log: Error: retried\nthread 'a' panicked at b.rs:1:1:\nboom\nstack backtrace:\n  0: x\nend",
                Some("boom"),
            ),
            (
                "thread 'a' panicked at b.rs:1:1:\nfirst\nthread 'a' panicked at b.rs:2:1:\nsecond",
                Some("second"),
            ),
            ("\n  \n", None),
        ] {
            let mut last = LastMessage::default();
            written.lines().for_each(|line| last.note(line));
            assert_eq!(last.text.as_deref(), message, "{written}");
        }
    }

    #[test]
    fn message_at_the_limit_is_kept_and_a_longer_one_cut() {
        for (length, is_cut) in [(MAX_MESSAGE, false), (MAX_MESSAGE + 1, true)] {
            let mut last = LastMessage::default();
            last.note(&"x".repeat(length));
            assert_eq!(last.text.unwrap().ends_with("cut]"), is_cut, "{length}");
        }
        let mut last = LastMessage::default();
        last.note("thread 'a' panicked at b.rs:1:1:");
        (0..100_000).for_each(|_| last.note("x"));
        assert!(last.text.unwrap().ends_with("cut]"));
        assert!(last.panic.unwrap().len() <= MAX_MESSAGE + 2);
    }
}
