//! Questions of MCP servers to the user, at the terminal. The words of the server are framed as its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Map;
use toolcell_core::BoxFuture;
use toolcell_mcp::client::{Elicitation, ElicitationAnswer, ElicitationField, Elicitor, FieldKind};

use crate::approval::terminal::blocking;
use crate::environment::Environment;
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Asking, Choice, Exhibit, Fact, Own, Question, Text, text};

/// Maximum number of attempts for a value, and for a whole form.
const MAX_TRIES: usize = 3;

/// Asks the user at the terminal.
pub(crate) struct TerminalElicitor {
    console: Console,
}

impl TerminalElicitor {
    /// Creates an elicitor; `None` without a terminal, so that servers know that no user can be asked.
    pub(crate) fn at_terminal(environment: &Environment, console: &Console) -> Option<Arc<dyn Elicitor>> {
        let terminals = environment.terminals;
        let elicitor = Self {
            console: console.clone(),
        };
        terminals
            .can_ask()
            .then(|| Arc::new(elicitor) as Arc<dyn Elicitor>)
    }
}

impl std::fmt::Debug for TerminalElicitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TerminalElicitor")
    }
}

impl Elicitor for TerminalElicitor {
    fn elicit(&self, elicitation: Elicitation) -> BoxFuture<'_, ElicitationAnswer> {
        let console = self.console.clone();
        Box::pin(async move {
            let answered = blocking(move |withdrawn: &AtomicBool| {
                let is_withdrawn = || withdrawn.load(Ordering::Relaxed);
                console.ask(&is_withdrawn, |asking| {
                    // Another question may have been on the screen until now.
                    if is_withdrawn() {
                        return Ok(ElicitationAnswer::Cancel);
                    }
                    let answer = ask(&elicitation, asking)?;
                    if answer == ElicitationAnswer::Cancel && is_withdrawn() {
                        asking.say("  not sent: the server does not wait for the answer any more")?;
                    }
                    Ok(answer)
                })
            });
            match answered.await {
                Some(Ok(answer)) => answer,
                _ => ElicitationAnswer::Cancel,
            }
        })
    }
}

fn ask(elicitation: &Elicitation, asking: &mut Asking<'_>) -> io::Result<ElicitationAnswer> {
    match asking.choose(&question(elicitation))? {
        Answer::Key('y') => {}
        Answer::Key(_) | Answer::Words(_) => return Ok(ElicitationAnswer::Decline),
        _ => return Ok(ElicitationAnswer::Cancel),
    }
    for _ in 0..MAX_TRIES {
        let mut values = Map::new();
        for field in &elicitation.fields {
            match value(field, asking)? {
                Value::Of(value) => _ = values.insert(field.name.clone(), value),
                Value::Skipped => {}
                Value::None => return Ok(ElicitationAnswer::Cancel),
            }
        }
        match elicitation.check(&values) {
            Ok(()) => return Ok(ElicitationAnswer::Accept(values)),
            Err(why) => asking.say(text!("  the form is not complete:\n{}", why))?,
        }
    }
    Ok(ElicitationAnswer::Cancel)
}

/// The question whether to answer at all.
fn question(elicitation: &Elicitation) -> Question {
    let fields = elicitation.fields.iter().map(|field| {
        let mut line = format!("- {} ({})", field.name, kind(field).plain());
        if !field.about.is_empty() {
            line.push_str(&format!(": {}", field.about));
        }
        line
    });
    let lines: Vec<String> = std::iter::once(elicitation.message.clone())
        .chain(fields)
        .collect();
    let choice = |key, word, means| Choice { key, word, means };
    Question {
        title: text!("the MCP server `{}` asks you", elicitation.server),
        exhibit: Some(Exhibit::text(&lines.join("\n"))),
        facts: vec![
            Fact::Plain("these are words of the server; what you enter is sent to it".into()),
            Fact::Plain("enter no passwords and no keys".into()),
        ],
        choices: vec![
            choice('y', "yes", "answer it"),
            choice('n', "no", "refuse to answer"),
        ],
        is_lasting: false,
        takes_words: false,
        needs_view: None,
    }
}

/// Result of asking for a value.
enum Value {
    Of(serde_json::Value),
    /// The user leaves an optional one out.
    Skipped,
    /// No answer.
    None,
}

fn value(field: &ElicitationField, asking: &mut Asking<'_>) -> io::Result<Value> {
    for _ in 0..MAX_TRIES {
        let question = text!("  `{}`, {}", field.name, kind(field));
        let Answer::Line(typed) = asking.line(question, "  value, then Enter: ")? else {
            return Ok(Value::None);
        };
        if typed.trim().is_empty() {
            if !field.is_required {
                return Ok(Value::Skipped);
            }
            asking.say("  a value is required")?;
            continue;
        }
        match field.value(&typed) {
            Some(value) => return Ok(Value::Of(value)),
            None => asking.say("  the value is of another kind")?,
        }
    }
    Ok(Value::None)
}

/// Kind of value, in our words.
fn kind(field: &ElicitationField) -> Text {
    let kind: Text = match &field.kind {
        FieldKind::Number => "a number".into(),
        FieldKind::Integer => "a whole number".into(),
        FieldKind::Boolean => "yes or no".into(),
        FieldKind::Choice(choices) => {
            let choices = choices.iter().map(|choice| text!("`{}`", choice));
            text!("one of {}", Text::join(choices, ", "))
        }
        _ => "a text".into(),
    };
    let end = if field.is_required {
        ""
    } else {
        "; empty to leave it out"
    };
    text!("{}{}", kind, Own(end))
}
