//! `toolcell session prune`.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use toolcell_core::SessionStore;
use toolcell_core::store::SessionInfo;

use super::list::{self, now, unused_for};
use crate::config::units::{Bytes, Span};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::in_use;
use crate::session::turn_runner::store_failure;
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Choice, Own, Question, Text, text};

/// Delete old sessions, after a question.
///
/// Sessions with a name and sessions in use are kept. With both conditions, only sessions that meet both are deleted.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("sessions").required(true).multiple(true).args(["older_than", "keep"]))]
#[command(after_help = "\
Examples:
  toolcell session prune --older-than 30d --dry-run
  toolcell session prune --keep 100 --yes")]
pub(crate) struct Prune {
    /// Delete sessions that were not used for this time, such as `30d` or `12h`.
    #[arg(long, value_name = "TIME")]
    older_than: Option<Span>,

    /// Delete all but the N sessions that were used last; those with a name do not count.
    #[arg(long, value_name = "N")]
    keep: Option<usize>,

    /// Delete sessions with a name as well.
    #[arg(long)]
    named: bool,

    /// Show what would be deleted.
    #[arg(long)]
    dry_run: bool,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl Prune {
    pub(super) async fn run(
        self,
        store: &dyn SessionStore,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let all = store.list().await.map_err(store_failure)?;
        let selected = self.selected(all);
        if selected.is_empty() {
            console.note("there is nothing to delete");
            return Ok(Exit::Ok);
        }
        let bytes = selected.iter().map(|info| info.bytes).sum();
        let what = text!("{}, {}", count(selected.len()), Bytes(bytes));
        if self.dry_run {
            list::print(&selected, console)?;
            console.note(text!("would delete {}", what));
            return Ok(Exit::Ok);
        }
        if !self.yes {
            list::print(&selected, console)?;
            if !confirmed(&what, environment, console).await? {
                console.note("nothing was deleted");
                return Ok(Exit::Ok);
            }
        }
        let deleted = delete(&selected, store, environment, console).await?;
        console.note(text!("deleted {}", count(deleted)));
        Ok(Exit::Ok)
    }

    /// Returns the sessions that meet the conditions, most recently used first.
    fn selected(&self, all: Vec<SessionInfo>) -> Vec<SessionInfo> {
        let now = now();
        let is_old =
            |info: &SessionInfo| (self.older_than).is_none_or(|Span(time)| unused_for(info, now) >= time);
        all.into_iter()
            .filter(|info| self.named || info.name.is_none())
            .skip(self.keep.unwrap_or(0))
            .filter(is_old)
            .collect()
    }
}

/// Number of sessions that are marked as in use at a time: each has an open file.
const AT_ONCE: usize = 64;

/// Deletes sessions, except those that were used since they were listed.
async fn delete(
    selected: &[SessionInfo],
    store: &dyn SessionStore,
    environment: &Environment,
    console: &Console,
) -> Result<usize, Failure> {
    let mut deleted = 0;
    for some in selected.chunks(AT_ONCE) {
        let mut marked = Vec::new();
        for info in some {
            match in_use::take(&info.id, environment)? {
                Err(user) => console.note(text!("kept `{}`: it is in use by {}", info.id, user.shown())),
                Ok(mark) => marked.push((info, mark)),
            }
        }
        // Read under the marks: nobody uses these sessions from here on.
        let present: BTreeMap<String, SessionInfo> = (store.list().await.map_err(store_failure)?)
            .into_iter()
            .map(|info| (info.id.clone(), info))
            .collect();
        for (info, _mark) in marked {
            match present.get(&info.id) {
                None => {}
                Some(present) if present == info => {
                    store.delete(&info.id).await.map_err(store_failure)?;
                    deleted += 1;
                }
                Some(_) => console.note(text!("kept `{}`: it was changed meanwhile", info.id)),
            }
        }
    }
    Ok(deleted)
}

async fn confirmed(what: &Text, environment: &Environment, console: &Console) -> Result<bool, Failure> {
    if !environment.terminals.stdin || !environment.terminals.stderr {
        return Err(Failure::new(
            Exit::Usage,
            text!(
                "{} would be deleted, which needs a confirmation, and there is no terminal",
                what
            ),
        )
        .hint("to delete without a question: --yes"));
    }
    let question = Question {
        title: text!("delete {}?", what),
        exhibit: None,
        facts: Vec::new(),
        choices: vec![
            Choice {
                key: 'y',
                word: "yes",
                means: "delete them for good",
            },
            Choice {
                key: 'n',
                word: "no",
                means: "keep them",
            },
        ],
        takes_words: false,
        needs_view: None,
        is_lasting: true,
    };
    let asking = console.clone();
    let asked = tokio::task::spawn_blocking(move || asking.ask(&|| false, |ask| ask.choose(&question)));
    Ok(matches!(asked.await, Ok(Ok(Answer::Key('y')))))
}

fn count(sessions: usize) -> Text {
    text!(
        "{} {}",
        sessions,
        Own(if sessions == 1 { "session" } else { "sessions" })
    )
}
