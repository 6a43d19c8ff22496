//! Input of a chat: lines of a terminal, with history and completion, or of a pipe.

use std::io;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use super::completion;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::history::{self, History};
use crate::ui::render::Console;
use crate::ui::terminal::{LineEditing, text};

/// Source of input lines.
pub(super) enum Lines {
    Terminal {
        editor: Box<Editor<ChatHelper, MemHistory>>,
        /// History that entries are added to.
        history: Option<History>,
    },
    Pipe(io::Lines<io::StdinLock<'static>>),
}

/// Completes commands and file names, and treats a line that ends in a backslash as incomplete.
pub(super) struct ChatHelper {
    directory: PathBuf,
}

impl Helper for ChatHelper {}

impl Completer for ChatHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completion::of(&line[..position], &self.directory))
    }
}

impl rustyline::hint::Hinter for ChatHelper {
    type Hint = String;
}

impl rustyline::highlight::Highlighter for ChatHelper {}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if context.input().ends_with('\\') {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Lines {
    /// Opens standard input. What is typed at a terminal is added to the history of the user if it `is_kept`.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be used.
    pub(super) fn new(environment: &Environment, console: &Console, is_kept: bool) -> Result<Self, Failure> {
        if !environment.terminals.stdin || !environment.terminals.stderr {
            return Ok(Self::Pipe(io::stdin().lines()));
        }
        let fail = |e: ReadlineError| Failure::new(Exit::Internal, "could not use the terminal").because(e);
        let config = rustyline::Config::builder()
            .max_history_size(history::MAX_ENTRIES)
            .map_err(fail)?
            .auto_add_history(true)
            .completion_type(rustyline::CompletionType::List)
            .behavior(rustyline::Behavior::PreferTerm)
            .build();
        let kept = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, kept).map_err(fail)?;
        let directory = environment.cwd.clone();
        editor.set_helper(Some(ChatHelper { directory }));
        let history = environment.state_dir.as_deref().map(History::new);
        let entries = history.as_ref().map(History::read).transpose();
        let entries = entries.unwrap_or_else(|error| {
            console.note(text!("the input history is not used: {}", error));
            None
        });
        for entry in entries.into_iter().flatten() {
            let _ = editor.add_history_entry(entry);
        }
        Ok(Self::Terminal {
            editor: Box::new(editor),
            history: history.filter(|_| is_kept),
        })
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Returns the next line, starting with `typed`, or `None` at the end of input.
    pub(super) fn next(&mut self, typed: &str) -> Result<Option<String>, Failure> {
        let fail = |e: anyhow::Error| Failure::new(Exit::Internal, "could not read the input").because(e);
        match self {
            Self::Pipe(lines) => {
                let Some(line) = lines.next() else {
                    return Ok(None);
                };
                let mut line = line.map_err(|e| fail(e.into()))?;
                while let Some(before) = line.strip_suffix('\\') {
                    let Some(next) = lines.next() else { break };
                    line = format!("{before}\n{}", next.map_err(|e| fail(e.into()))?);
                }
                Ok(Some(line))
            }
            Self::Terminal { editor, history } => loop {
                let editing = LineEditing::begin();
                let line = editor.readline_with_initial("› ", (typed.trim_end_matches('\n'), ""));
                drop(editing);
                match line {
                    Ok(line) => {
                        if let Some(history) = history {
                            // A history that cannot be saved does not stop the chat.
                            let _ = history.add(&line);
                        }
                        return Ok(Some(line.replace("\\\n", "\n")));
                    }
                    // Ctrl-C clears the line, as in a shell.
                    Err(ReadlineError::Interrupted) => {}
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(fail(error.into())),
                }
            },
        }
    }
}
