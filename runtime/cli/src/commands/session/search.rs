//! `toolcell session search`.

use clap::Args;
use serde::Serialize;
use toolcell_core::store::SessionInfo;
use toolcell_core::{Event, SessionStore as _, StoreError};
use toolcell_store::{SqliteSessions, without_case};

use super::list::{age, now};
use crate::error::{Exit, Failure};
use crate::session::turn_runner::store_failure;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{FAINT, GUTTER, NAME, Name, Own, STRONG, inert_line, text};

/// Maximum number of messages shown of a session.
pub(in crate::commands) const MAX_MATCHES: usize = 3;

/// Number of characters shown before the first word that was found, and in total.
const BEFORE: usize = 30;
const MAX_SHOWN: usize = 120;

/// Search the messages of all sessions, most recently used first.
///
/// A message matches if it contains all words, in any case and order, also as parts of other words. Names match as well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session search invoice march
  toolcell session search \"exact words in a row\" --json")]
pub(crate) struct Search {
    /// Words to search for.
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Session with messages that match.
#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    info: SessionInfo,
    /// The first messages that match.
    matches: Vec<Match>,
}

/// Message that matches.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Match {
    pub(in crate::commands) role: &'static str,
    /// Excerpt of the message, on one line.
    pub(in crate::commands) text: String,
}

impl Search {
    pub(super) async fn run(self, store: &SqliteSessions, console: &Console) -> Result<Exit, Failure> {
        let words: Vec<String> = self.words.iter().map(|word| without_case(word)).collect();
        if words.iter().any(|word| word.trim().is_empty()) {
            return Err(Failure::new(Exit::Usage, "a word to search for is empty")
                .hint("`toolcell session list` lists all sessions"));
        }
        let candidates = store.candidates(&words).await.map_err(store_failure)?;
        let mut all = Vec::new();
        for info in store.list().await.map_err(store_failure)? {
            let has_name = (info.name.as_ref()).is_some_and(|name| contains_all(&without_case(name), &words));
            if !candidates.contains(&info.id) {
                if has_name {
                    let matches = Vec::new();
                    all.push(Found { info, matches });
                }
                continue;
            }
            let wanted = words.clone();
            let search = store.search(&info.id, MAX_MATCHES, move |event| matching(event, &wanted));
            let search = match search.await {
                Ok(search) => search,
                // Deleted meanwhile.
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(store_failure(error)),
            };
            if search.unreadable > 0 {
                console.note(text!(
                    "not searched: {} of the session `{}` cannot be read",
                    match search.unreadable {
                        1 => "one entry".into(),
                        many => text!("{} entries", many),
                    },
                    info.id
                ));
            }
            let matches = search.found;
            if has_name || !matches.is_empty() {
                all.push(Found { info, matches });
            }
        }
        if self.json {
            print_line(console, &all)?;
        } else if all.is_empty() {
            console.note("no session matches");
        } else {
            print(&all, console)?;
        }
        Ok(Exit::Ok)
    }
}

fn print(all: &[Found], console: &Console) -> Result<(), Failure> {
    let now = now();
    console.write(|s| {
        for Found { info, matches } in all {
            s.out.styled(NAME, text!("{}  ", Name(&info.id)))?;
            s.out.styled(FAINT, text!("{}  ", age(info, now)))?;
            if let Some(name) = &info.name {
                s.out.styled(NAME, text!("{}  ", Name(name)))?;
            }
            s.out.styled(STRONG, inert_line(&info.title))?;
            s.out.end_line()?;
            for Match { role, text } in matches {
                s.out.styled(FAINT, text!("    {} {}", Own(role), Own(GUTTER)))?;
                s.out.line(text!("{}", inert_line(text)))?;
            }
        }
        s.out.flush()
    })?;
    Ok(())
}

/// Returns the message of an event if it has all words, which are without case.
pub(in crate::commands) fn matching(event: &Event, words: &[String]) -> Option<Match> {
    let (role, message) = match event {
        Event::TurnStarted { message, .. } => ("user", message),
        Event::StepFinished { message, .. } => ("assistant", message),
        _ => return None,
    };
    let text = message.text();
    let lower = without_case(&text);
    if !contains_all(&lower, words) {
        return None;
    }
    Some(Match {
        role,
        text: excerpt(&text, &lower, &words[0]),
    })
}

fn contains_all(lower: &str, words: &[String]) -> bool {
    words.iter().all(|word| lower.contains(word.as_str()))
}

/// The surroundings of a word on one line. `lower` is the text without case, in which positions are about the same.
fn excerpt(text: &str, lower: &str, word: &str) -> String {
    let at = lower.find(word).unwrap_or(0);
    let at = lower[..at].chars().count();
    let from = at.saturating_sub(BEFORE);
    let mut shown: String = text.chars().skip(from).take(MAX_SHOWN).collect();
    let is_cut = text.chars().nth(from + MAX_SHOWN).is_some();
    shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    if from > 0 {
        shown.insert(0, '…');
    }
    if is_cut {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use toolcell_core::Message;

    use super::*;

    fn said(text: &str) -> Event {
        Event::TurnStarted {
            version: 1,
            session: "s".into(),
            provider: "p".into(),
            model: "m".into(),
            message: Message::user(text),
            unanswered: false,
        }
    }

    #[test]
    fn message_matches_with_all_words_in_any_case() {
        let found = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
            matching(&said(text), &words).map(|found| found.text)
        };
        assert_eq!(
            found("Where is the Invoice?", &["INVOICE", "is"]).as_deref(),
            Some("Where is the Invoice?")
        );
        assert_eq!(found("Where is it?", &["invoice"]), None);
        // Lower case is longer here.
        assert!(found(&"İ".repeat(100), &["i"]).is_some());
        let long = format!("{} needle\n{}", "a".repeat(100), "b ".repeat(200));
        let shown = found(&long, &["needle"]).unwrap();
        assert!(shown.starts_with("…aaa") && shown.contains(" needle b b") && shown.ends_with('…'));
    }
}
