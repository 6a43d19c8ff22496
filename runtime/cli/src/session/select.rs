//! Choice of a saved session: by its name, its identifier or a part of it, or the last one.

use clap::Args;
use toolcell_core::SessionStore;
use toolcell_core::store::SessionInfo;

use crate::error::{Exit, Failure};
use crate::session::turn_runner::store_failure;
use crate::ui::terminal::text;

/// Word for the session that was used last.
pub(crate) const LAST: &str = "last";

/// Minimum length of a part of an identifier, in bytes: a shorter one may fit by accident.
const MIN_PART: usize = 4;

/// Session argument.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Name of the session, its identifier or the beginning or end of it, or `last`.
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Flags that continue a session instead of a new one.
#[derive(Debug, Default, Args)]
pub(crate) struct Continue {
    /// Continue the session that was used last.
    #[arg(long = "continue", conflicts_with = "session")]
    is_last: bool,

    /// Continue this session: its name, its identifier or the beginning or end of it, or `last`.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

impl Which {
    /// Finds the session.
    ///
    /// # Errors
    /// Returns an error if no session or several match, or the store cannot be read.
    pub(crate) async fn find(&self, store: &dyn SessionStore) -> Result<SessionInfo, Failure> {
        find(&self.session, store).await
    }
}

impl Continue {
    /// True if a session is to be continued.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_last || self.session.is_some()
    }

    /// Finds the session; `None` if a new one is wanted.
    ///
    /// # Errors
    /// As [`Which::find`].
    pub(crate) async fn find(&self, store: &dyn SessionStore) -> Result<Option<SessionInfo>, Failure> {
        let wanted = self.session.as_deref().or(self.is_last.then_some(LAST));
        match wanted {
            Some(wanted) => find(wanted, store).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn find(wanted: &str, store: &dyn SessionStore) -> Result<SessionInfo, Failure> {
    let all = store.list().await.map_err(store_failure)?;
    choose(wanted, all)
}

/// True if a text selects a session as a part of its identifier.
pub(crate) fn is_part(text: &str, id: &str) -> bool {
    text.len() >= MIN_PART && (id.starts_with(text) || id.ends_with(text))
}

/// Chooses among sessions, the last used one first. One of a client of `toolcell serve`, who chose its name and its words, is
/// found by its whole identifier only.
fn choose(wanted: &str, mut all: Vec<SessionInfo>) -> Result<SessionInfo, Failure> {
    if let Some(at) = all.iter().position(|info| info.id == wanted) {
        return Ok(all.swap_remove(at));
    }
    all.retain(|info| info.owner.as_deref().unwrap_or_default().is_empty());
    if wanted == LAST {
        return all.into_iter().next().ok_or_else(|| {
            Failure::new(Exit::Usage, "there are no sessions")
                .hint("toolcell run \"…\" and toolcell chat create one")
        });
    }
    let is_exact = |info: &SessionInfo| info.name.as_deref() == Some(wanted);
    let fits = |info: &SessionInfo| is_part(wanted, &info.id);
    let exact: Vec<_> = all.iter().filter(|info| is_exact(info)).cloned().collect();
    let mut found = if exact.is_empty() {
        all.into_iter().filter(fits).collect()
    } else {
        exact
    };
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(
            Failure::new(Exit::Usage, text!("there is no session `{}`", wanted)).hint(text!(
                "`toolcell session list` lists them; a part of an identifier has at least {} characters",
                MIN_PART
            )),
        ),
        (Some(_), others) => Err(Failure::new(
            Exit::Usage,
            text!("`{}` matches {} sessions", wanted, others + 1),
        )
        .hint("use a longer part of the identifier")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str, name: Option<&str>) -> SessionInfo {
        SessionInfo {
            id: id.into(),
            created_ms: 0,
            used_ms: 0,
            events: 0,
            title: String::new(),
            name: name.map(Into::into),
            messages: 0,
            bytes: 0,
            usage: toolcell_core::provider::Usage::default(),
            cost_micros: None,
            agent: None,
            owner: None,
            parent: None,
        }
    }

    #[test]
    fn session_of_a_client_is_found_by_its_whole_identifier_only() {
        let of_client = |id: &str, name| SessionInfo {
            owner: Some("ada".into()),
            ..info(id, name)
        };
        let all = vec![
            of_client("bcde-10", Some("abcd")),
            of_client("bcde-20", Some("abcd-10")),
            info("abcd-10", None),
        ];
        let chosen = |wanted: &str| choose(wanted, all.clone()).map(|info| info.id).ok();
        for (wanted, id) in [
            ("last", Some("abcd-10")),
            ("abcd", Some("abcd-10")),
            ("abcd-10", Some("abcd-10")),
            ("bcde", None),
            ("bcde-10", Some("bcde-10")),
        ] {
            assert_eq!(chosen(wanted).as_deref(), id, "{wanted}");
        }
    }

    #[test]
    fn session_is_found_by_name_identifier_and_part() {
        let all = vec![
            info("abcd-10", None),
            info("abce-20", Some("ab")),
            info("abce-30", Some("abcd-10x")),
        ];
        let chosen = |wanted: &str| {
            choose(wanted, all.clone())
                .map(|info| info.id)
                .map_err(|e| e.to_string())
        };
        for (wanted, id) in [
            ("last", "abcd-10"),
            ("abcd-10", "abcd-10"),
            ("abcd", "abcd-10"),
            ("ab", "abce-20"),
            ("e-30", "abce-30"),
            ("abcd-10x", "abce-30"),
        ] {
            assert_eq!(chosen(wanted).as_deref(), Ok(id), "{wanted}");
        }
        assert_eq!(chosen("abce").unwrap_err(), "`abce` matches 2 sessions");
        // One that is too short matches nothing, and an empty one not everything.
        for wanted in ["q", "-30", "abc", ""] {
            assert_eq!(
                chosen(wanted).unwrap_err(),
                format!("there is no session `{wanted}`")
            );
        }
        assert!(choose("last", Vec::new()).is_err());
    }
}
