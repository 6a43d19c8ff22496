//! Commands of a chat.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_agent::{Session, TurnStart};
use toolcell_core::SessionStore;
use toolcell_core::suggest::nearest;

use super::editor;
use super::reload::Seen;
use crate::agent::setup;
use crate::config::{Origin, Overrides, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::session::in_use::Mark;
use crate::session::prompt;
use crate::session::turn_runner::{TurnRunner, cannot_go_on};
use crate::ui::render::{Console, usage};
use crate::ui::terminal::{FAINT, GUTTER, NAME, Own, STRONG, Text, text};

/// Commands with their arguments and help.
pub(super) const COMMANDS: [(&str, &str, &str); 14] = [
    ("/help", "", "show this"),
    ("/model", "[NAME]", "show the model, or continue with another one"),
    ("/tools", "", "list the offered tools"),
    (
        "/attach",
        "[FILE]",
        "send a file with the next message, or show which ones",
    ),
    (
        "/edit",
        "[TEXT]",
        "write the next message in the editor of VISUAL or EDITOR",
    ),
    (
        "/prompts",
        "",
        "list the prompts of the MCP servers; `/SERVER:PROMPT NAME=VALUE` sends one",
    ),
    ("/cost", "", "show what the session has used"),
    (
        "/compact",
        "",
        "replace the older part of the conversation by a summary",
    ),
    ("/undo", "", "remove the last turn from the conversation"),
    ("/resume", "", "resume an interrupted turn"),
    ("/session", "", "show the identifier of the session"),
    ("/clear", "", "start a new session; the old one stays saved"),
    ("/new", "", "the same as /clear"),
    ("/quit", "", "quit (also Ctrl-D)"),
];

/// Chat with its session.
pub(super) struct Conversation<'a> {
    pub(super) flags: AgentFlags,
    pub(super) overrides: Overrides,
    pub(super) turns: TurnRunner,
    pub(super) session: Session,
    /// Mark of the session, if it is saved.
    pub(super) mark: Option<Mark>,
    pub(super) store: Option<Arc<dyn SessionStore>>,
    /// Files to send with the next message.
    pub(super) attached: Vec<PathBuf>,
    /// Text of the next prompt, from the editor.
    pub(super) draft: String,
    /// Files of components that were compared with what is loaded.
    pub(super) seen: Seen,
    pub(super) environment: &'a Environment,
    pub(super) console: &'a Console,
}

/// Splits a line into a command and its argument; `None` for a message. A path, such as `/etc/hosts`, is no command.
pub(super) fn of(line: &str) -> Option<(&str, &str)> {
    let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = command.strip_prefix('/')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_command = match name.split_once(':') {
        // A prompt of a server.
        Some((server, prompt)) => {
            !server.is_empty() && !prompt.is_empty() && server.chars().all(is_plain) && !prompt.contains('/')
        }
        None => !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
    };
    is_command.then(|| (command, argument.trim()))
}

impl Conversation<'_> {
    /// Sends a message.
    pub(super) async fn say(&mut self, line: &str) -> Result<Exit, Failure> {
        self.check_over()?;
        self.reload().await;
        let draft = prompt::of_line(line, &mut self.attached, self.environment, self.console)?;
        let start = draft.start(self.turns.setup(), self.console).await?;
        self.attached.clear();
        self.turns.turn(&mut self.session, start).await
    }

    /// Fails while a turn is open.
    pub(super) fn check_over(&self) -> Result<(), Failure> {
        match self.session.is_open() {
            true => Err(Failure::new(Exit::Usage, "the last turn is not over")
                .hint("/resume continues it, and /clear begins a new session")),
            false => Ok(()),
        }
    }

    /// Runs a command.
    pub(super) async fn command(&mut self, command: &str, argument: &str) -> Result<Exit, Failure> {
        if let Some((server, prompt)) = command.strip_prefix('/').and_then(|name| name.split_once(':')) {
            return self.send_prompt(server, prompt, argument).await;
        }
        let known = COMMANDS.iter().find(|(name, _, _)| *name == command);
        let Some((_, takes, _)) = known else {
            return Err(unknown(command));
        };
        if takes.is_empty() && !argument.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                text!("`{}` takes no argument, and was given `{}`", command, argument),
            ));
        }
        match command {
            "/help" => self.help()?,
            "/tools" => {
                self.reload().await;
                self.tools()?;
            }
            "/session" => self.console.note(text!("{}", self.session.id())),
            "/cost" => self.cost(),
            "/prompts" => self.prompts().await?,
            "/attach" => self.attach(argument)?,
            "/edit" => self.draft = editor::edit(argument, self.environment)?,
            "/model" => self.model(argument).await?,
            "/undo" => self.undo().await?,
            "/compact" => return self.turns.turn(&mut self.session, TurnStart::Compact).await,
            "/resume" if !self.session.is_open() => {
                return Err(Failure::new(Exit::Usage, "no turn was interrupted")
                    .hint("type a message to begin a turn"));
            }
            "/resume" => return self.turns.turn(&mut self.session, TurnStart::Resume).await,
            _ => {
                self.turns.setup().servers.renew().await;
                (self.session, self.mark) = self.turns.new_session(self.environment)?;
                self.attached.clear();
                self.console.note("started a new session");
            }
        }
        Ok(Exit::Ok)
    }

    fn help(&self) -> Result<(), Failure> {
        self.console.write(|s| {
            for (name, argument, what) in COMMANDS {
                let line = text!("  {} {}", Text::from(name), Text::from(argument));
                s.err.cell(NAME, line, 19)?;
                s.err.line(what)?;
            }
            s.err.line(
                "  A line that ends in a backslash goes on, `@NAME` attaches a file, and Tab completes names",
            )?;
            s.err.flush()
        })?;
        Ok(())
    }

    fn tools(&self) -> Result<(), Failure> {
        self.console.write(|s| {
            for spec in self.turns.agent().tools() {
                s.err.styled(STRONG, text!("  {}", spec.name))?;
                let first = spec.description.lines().next().unwrap_or_default();
                s.err.styled(FAINT, text!("  {}{}", Own(GUTTER), first))?;
                s.err.end_line()?;
            }
            s.err.flush()
        })?;
        Ok(())
    }

    /// Shows tokens and cost of the session, over all its turns.
    fn cost(&self) {
        let state = self.session.state();
        let spent = state.spent();
        let (usage, cost) = state.cost();
        let mut parts = vec![
            text!(
                "{} {}",
                state.turns,
                Own(if state.turns == 1 { "turn" } else { "turns" })
            ),
            text!(
                "{} {}",
                spent.calls,
                Own(if spent.calls == 1 { "call" } else { "calls" })
            ),
        ];
        parts.extend(usage::parts(&usage, cost));
        if cost.is_none() {
            parts.push("the cost is not known: the model has no `[prices]`".into());
        }
        self.console.note(Text::join(parts, " · "));
    }

    fn attach(&mut self, name: &str) -> Result<(), Failure> {
        if name.is_empty() {
            for path in &self.attached {
                self.console.note(text!("`{}`", self.environment.shown(path)));
            }
            if self.attached.is_empty() {
                self.console.note("nothing is attached to the next message");
            }
            return Ok(());
        }
        let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = quoted.unwrap_or(name);
        let path = self.environment.path(name, &self.environment.cwd);
        prompt::check_file(&path, name)?;
        let real = |path: &PathBuf| path.canonicalize().ok();
        if self.attached.iter().any(|attached| real(attached) == real(&path)) {
            self.console.note(text!("`{}` is attached already", name));
            return Ok(());
        }
        self.console.note(text!("`{}` goes with the next message", name));
        self.attached.push(path);
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), Failure> {
        let undone = self.session.undo().await;
        let removed = undone.map_err(|error| cannot_go_on(self.session.id(), error))?;
        self.console.note(text!(
            "removed the last turn ({} messages); what its calls did is not undone",
            removed
        ));
        Ok(())
    }

    /// Sets the agent up anew with another model, and continues the session with it.
    async fn model(&mut self, name: &str) -> Result<(), Failure> {
        if !name.is_empty() {
            let model = Sourced {
                value: name.to_owned(),
                origin: Origin::Flag("--model"),
            };
            let former = self.flags.set_model(Some(model));
            let (store, overrides) = (self.store.clone(), self.overrides.clone());
            let set_up = setup::assemble(&self.flags, overrides, self.environment, self.console, store).await;
            let agent = match set_up {
                Ok(agent) => agent,
                Err(failure) => {
                    self.flags.set_model(former);
                    return Err(failure);
                }
            };
            self.session.switch_to(&agent.agent);
            self.turns.replace(agent);
        }
        self.console.note(self.turns.note());
        Ok(())
    }
}

fn unknown(command: &str) -> Failure {
    let known = COMMANDS.map(|(name, _, _)| name);
    let failure = Failure::new(Exit::Usage, text!("unknown command `{}`", command));
    // The slash, which all have in common, makes them nearer than they are.
    let begins_same = |near: &&&str| near.chars().nth(1) == command.chars().nth(1);
    let failure = match nearest(command, &known).iter().find(begins_same) {
        Some(near) => failure.hint(text!("did you mean `{}`?", near)),
        None => failure,
    };
    failure.hint(text!(
        "the commands are {}",
        Text::join(known.map(Text::from), ", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_at_start_of_message_is_no_command() {
        assert_eq!(of("/model  gpt-5 "), Some(("/model", "gpt-5")));
        assert_eq!(of("/nwe"), Some(("/nwe", "")));
        assert_eq!(of("/my_srv:a.b x=1 "), Some(("/my_srv:a.b", "x=1")));
        for message in [
            "/note: this",
            "/:x",
            "/a:/b",
            "/etc/hosts has what?",
            "/",
            "/ x",
            "hello /help",
            "/a.txt",
        ] {
            assert_eq!(of(message), None, "{message}");
        }
    }
}
