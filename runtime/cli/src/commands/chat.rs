//! `toolcell chat`: an interactive session of many turns.

use std::io;

use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};
use toolcell_agent::Session;
use toolcell_core::suggest::nearest;

use crate::agent::setup;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::history::{self, History};
use crate::session::prompt;
use crate::session::store;
use crate::session::turn_runner::{TurnRunner, store_failure};
use crate::ui::render::Console;
use crate::ui::terminal::{FAINT, NAME, STRONG, text};

/// Commands of the chat, with their help.
const COMMANDS: [(&str, &str); 6] = [
    ("/help", "show this"),
    ("/tools", "list the offered tools"),
    ("/session", "show the identifier of the session"),
    ("/new", "start a new session"),
    ("/resume", "resume an interrupted turn"),
    ("/quit", "quit (also Ctrl-D)"),
];

/// Chat with a model that can call tools.
///
/// A line that ends in `\\` continues on the next one. Ctrl-C cancels the running turn; `/help` lists the commands.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell chat --grant read=.
  toolcell chat --provider ollama --model llama3.2 --tool files --grant write=.

{}", crate::exit::TABLE))]
pub(crate) struct Chat {
    #[command(flatten)]
    agent: AgentFlags,

    /// Continue this session instead of a new one.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,

    /// Do not save the session.
    #[arg(long, conflicts_with = "session")]
    no_session: bool,
}

impl Chat {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let store = if self.no_session {
            None
        } else {
            Some(store::open(environment)?)
        };
        let agent = setup::assemble(&self.agent, overrides, environment, console, store).await?;
        console.note(agent.note.clone());
        let mut turns = TurnRunner::new(agent, console, false);
        let mut session = match &self.session {
            Some(id) => turns.agent().load(id).await.map_err(store_failure)?,
            None => turns.agent().session(),
        };
        let mut lines = Lines::new(environment, console)?;
        if lines.is_terminal() {
            console.keep_typed();
            console.note("/help shows what can be said; Ctrl-D leaves");
        }
        let mut last = Exit::Ok;
        while let Some(line) = lines.next(&console.take_typed())? {
            let line = line.trim();
            match line.split_whitespace().next() {
                None => continue,
                Some("/quit" | "/exit") => break,
                Some("/new") => {
                    session = turns.agent().session();
                    console.note("started a new session");
                }
                Some("/resume") => last = report(console, turns.turn(&mut session, None).await),
                Some(command) if command.starts_with('/') => answer(command, &turns, &session, console)?,
                Some(_) => {
                    let ended = match prompt::of_line(line, environment, console) {
                        Ok(message) => turns.turn(&mut session, Some(message)).await,
                        Err(failure) => Err(failure),
                    };
                    last = report(console, ended);
                }
            }
            if turns.is_output_closed() {
                return Ok(Exit::Ok);
            }
        }
        turns.print_changes();
        // At a terminal the user has seen how each turn ended; a script needs the exit code.
        Ok(if lines.is_terminal() { Exit::Ok } else { last })
    }
}

/// Prints the failure of a turn, if any, and returns its exit code.
fn report(console: &Console, ended: Result<Exit, Failure>) -> Exit {
    ended.unwrap_or_else(|failure| {
        if failure.exit == Exit::Cancelled {
            console.note("cancelled");
        } else {
            console.report(&failure);
        }
        failure.exit
    })
}

fn answer(command: &str, turns: &TurnRunner, session: &Session, console: &Console) -> io::Result<()> {
    console.write(|s| {
        match command {
            "/help" => {
                for (name, what) in COMMANDS {
                    s.err.styled(NAME, text!("  {}", format!("{name:10}")))?;
                    s.err.line(what)?;
                }
            }
            "/tools" => {
                for spec in turns.agent().tools() {
                    s.err.styled(STRONG, text!("  {}", spec.name))?;
                    s.err.styled(
                        FAINT,
                        text!("  {}", spec.description.lines().next().unwrap_or_default()),
                    )?;
                    s.err.end_line()?;
                }
            }
            "/session" => s.err.line(text!("  {}", session.id()))?,
            other => {
                let known = COMMANDS.map(|(name, _)| name);
                let hint = match nearest(other, &known).first() {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`/help` lists the commands".into(),
                };
                s.err.line(text!("  unknown command `{}`; {}", other, hint))?;
            }
        }
        s.err.flush()
    })
}

/// Source of input lines.
enum Lines {
    Terminal {
        editor: Box<Editor<MultiLine, MemHistory>>,
        history: Option<History>,
    },
    Pipe(io::Lines<io::StdinLock<'static>>),
}

/// Treats a line that ends in a backslash as incomplete.
struct MultiLine;

impl Helper for MultiLine {}

impl rustyline::completion::Completer for MultiLine {
    type Candidate = String;
}

impl rustyline::hint::Hinter for MultiLine {
    type Hint = String;
}

impl rustyline::highlight::Highlighter for MultiLine {}

impl Validator for MultiLine {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if context.input().ends_with('\\') {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Lines {
    fn new(environment: &Environment, console: &Console) -> Result<Self, Failure> {
        if !environment.terminals.stdin || !environment.terminals.stderr {
            return Ok(Self::Pipe(io::stdin().lines()));
        }
        let fail = |e: ReadlineError| Failure::new(Exit::Internal, "could not use the terminal").because(e);
        let config = rustyline::Config::builder()
            .max_history_size(history::MAX_ENTRIES)
            .map_err(fail)?
            .auto_add_history(true)
            .behavior(rustyline::Behavior::PreferTerm)
            .build();
        let kept = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, kept).map_err(fail)?;
        editor.set_helper(Some(MultiLine));
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
            history,
        })
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Returns the next line, starting with `typed`, or `None` at the end of input.
    fn next(&mut self, typed: &str) -> Result<Option<String>, Failure> {
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
                match editor.readline_with_initial("› ", (typed.trim_end_matches('\n'), "")) {
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
