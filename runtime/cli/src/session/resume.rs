//! A session that a chat continues: its end is shown, and what to do if another process uses it is asked at once.

use std::sync::Arc;

use toolcell_core::SessionStore;

use crate::environment::Environment;
use crate::error::Failure;
use crate::session::follow::Recorded;
use crate::session::in_use::{self, Mark, User};
use crate::session::turn_runner::store_failure;
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Choice, Question, text};

/// Session to continue, marked as in use.
pub(crate) struct Continued {
    pub(crate) id: String,
    pub(crate) mark: Mark,
}

/// Decision on a session that another process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Follow,
    Fork,
    Leave,
}

/// Marks a session and shows its end at a terminal. If another process uses it, the user decides what happens; `None` if
/// nothing is to be continued.
///
/// # Errors
/// Returns an error if the session cannot be read, or if another process uses it and there is no terminal for a question.
pub(crate) async fn open(
    id: String,
    store: &Arc<dyn SessionStore>,
    environment: &Environment,
    console: &Console,
) -> Result<Option<Continued>, Failure> {
    let terminals = environment.terminals;
    let is_attended = terminals.can_ask();
    let mut recorded = Recorded::new(console);
    let (mut id, mut is_shown) = (id, false);
    loop {
        let taken = in_use::take(&id, environment)?;
        let user = match taken {
            Ok(mark) => {
                if is_attended && !is_shown {
                    let events = store.load(&id).await.map_err(store_failure)?;
                    recorded.show_end(&id, &events, console);
                }
                return Ok(Some(Continued { id, mark }));
            }
            Err(user) if is_attended => user,
            Err(user) => return Err(user.failure()),
        };
        match ask(&id, &user, console).await {
            Way::Leave => return Ok(None),
            Way::Fork => {
                let new = uuid::Uuid::now_v7().to_string();
                store.fork(&id, &new, None).await.map_err(store_failure)?;
                console.note(text!("continuing from a copy, `{}`", new));
                id = new;
            }
            Way::Follow => {
                console.note("following; Ctrl-C leaves, and what you type is not read");
                // A session without a turn is not saved yet.
                let events = store.load(&id).await.unwrap_or_default();
                recorded.show_end(&id, &events, console);
                recorded.follow(&id, &**store, environment).await?;
                is_shown = true;
                console.note("the other process has ended; the session continues here");
            }
        }
    }
}

async fn ask(id: &str, user: &User, console: &Console) -> Way {
    let question = Question {
        title: text!("the session `{}` is in use by {}; what now?", id, user.shown()),
        exhibit: None,
        facts: Vec::new(),
        choices: vec![
            Choice {
                key: 'f',
                word: "follow",
                means: "watch it, and continue here when the other process ends",
            },
            Choice {
                key: 'c',
                word: "copy",
                means: "continue from a copy of it",
            },
            Choice {
                key: 'n',
                word: "no",
                means: "leave",
            },
        ],
        takes_words: false,
        needs_view: None,
        is_lasting: false,
    };
    let asking = console.clone();
    let asked = tokio::task::spawn_blocking(move || asking.ask(&|| false, |ask| ask.choose(&question)));
    match asked.await {
        Ok(Ok(Answer::Key('f'))) => Way::Follow,
        Ok(Ok(Answer::Key('c'))) => Way::Fork,
        _ => Way::Leave,
    }
}
