//! `toolcell session list`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use toolcell_core::SessionStore;
use toolcell_core::store::SessionInfo;

use crate::config::units::Bytes;
use crate::error::{Exit, Failure};
use crate::session::turn_runner::store_failure;
use crate::ui::render::json::print_line;
use crate::ui::render::{Console, usage};
use crate::ui::terminal::{FAINT, NAME, Name, Own, STRONG, Text, inert_line, text};

/// Width of an age, in columns.
const AGE: usize = 12;

/// List all sessions, most recently used first, with name, age, messages, size, tokens and cost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session list
  toolcell session list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, store: &dyn SessionStore, console: &Console) -> Result<Exit, Failure> {
        let all = store.list().await.map_err(store_failure)?;
        if self.json {
            print_line(console, &all)?;
            return Ok(Exit::Ok);
        }
        print(&all, console)?;
        if all.is_empty() {
            console.note("there are no sessions");
        }
        Ok(Exit::Ok)
    }
}

/// Prints sessions on two lines each.
pub(super) fn print(all: &[SessionInfo], console: &Console) -> Result<(), Failure> {
    let now = now();
    console.write(|s| {
        for info in all {
            s.out.styled(NAME, text!("{}  ", Name(&info.id)))?;
            s.out.cell(FAINT, age(info, now), AGE)?;
            s.out.text("  ")?;
            if let Some(name) = &info.name {
                s.out.styled(NAME, text!("{}  ", Name(name)))?;
            }
            if let Some(owner) = info.owner.as_deref().filter(|owner| !owner.is_empty()) {
                s.out.styled(FAINT, text!("of the client `{}`  ", owner))?;
            }
            s.out.styled(STRONG, inert_line(&info.title))?;
            s.out.end_line()?;
            s.out.styled(FAINT, text!("    {}", totals(info)))?;
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(())
}

/// Time since 1970-01-01 UTC.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time since the last use of a session.
pub(super) fn unused_for(info: &SessionInfo, now: Duration) -> Duration {
    now.saturating_sub(Duration::from_millis(info.used_ms))
}

/// Describes the time since the last use in its largest unit.
pub(super) fn age(info: &SessionInfo, now: Duration) -> Text {
    let seconds = unused_for(info, now).as_secs();
    match seconds {
        0..60 => "just now".into(),
        60..3_600 => text!("{} min ago", seconds / 60),
        3_600..172_800 => text!("{} h ago", seconds / 3_600),
        _ => text!("{} days ago", seconds / 86_400),
    }
}

fn totals(info: &SessionInfo) -> Text {
    let messages = match info.messages {
        1 => "message",
        _ => "messages",
    };
    let mut parts = vec![
        text!("{} {}", info.messages, Own(messages)),
        text!("{}", Bytes(info.bytes)),
    ];
    parts.extend(usage::parts(&info.usage, info.cost_micros));
    parts.extend((info.parent.as_ref()).map(|parent| text!("forked from {}", Name(parent))));
    Text::join(parts, " · ")
}
