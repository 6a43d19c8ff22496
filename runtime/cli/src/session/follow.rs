//! Recorded events on the screen: a whole session, its end, or what another process adds to it.

use std::time::Duration;

use toolcell_core::{Event, EventSink as _, SessionStore};

use crate::environment::Environment;
use crate::error::Failure;
use crate::session::in_use;
use crate::session::turn_runner::store_failure;
use crate::ui::escape;
use crate::ui::hints::AllowHints;
use crate::ui::render::Console;
use crate::ui::render::output::Output;
use crate::ui::render::turn::TurnView;
use crate::ui::terminal::text;

/// Pause between two looks at a session that another process uses.
const PAUSE: Duration = Duration::from_millis(300);

/// Number of turns shown when a session is continued.
const LAST_TURNS: usize = 2;

/// Shows recorded events.
pub(crate) struct Recorded {
    view: TurnView,
    output: Output,
    shown: usize,
}

impl Recorded {
    /// Creates a view that has shown nothing.
    pub(crate) fn new(console: &Console) -> Self {
        let output = Output::default();
        Self {
            view: TurnView::of_recorded(console.clone(), AllowHints::default().into(), output.clone()),
            output,
            shown: 0,
        }
    }

    /// Shows the events that were not shown yet.
    pub(crate) fn show(&mut self, events: &[Event]) {
        for event in events.get(self.shown..).unwrap_or_default() {
            if self.output.has_failed() {
                break;
            }
            self.view.event(event);
        }
        self.shown = events.len();
    }

    /// Shows the last turns of a session, and how to see the rest.
    pub(crate) fn show_end(&mut self, id: &str, events: &[Event], console: &Console) {
        let starts = |event: &Event| matches!(event, Event::TurnStarted { .. });
        let turns: Vec<usize> = (0..events.len()).filter(|&i| starts(&events[i])).collect();
        let earlier = turns.len().saturating_sub(LAST_TURNS);
        if earlier > 0 {
            let hint = escape::shell(id);
            console.note(match earlier {
                1 => text!("1 earlier turn: toolcell session show {}", hint),
                _ => text!("{} earlier turns: toolcell session show {}", earlier, hint),
            });
        }
        self.shown = turns.get(earlier).copied().unwrap_or(0);
        self.show(events);
    }

    /// Shows what is added to a session until no other process uses it.
    ///
    /// # Errors
    /// Returns an error if the session cannot be read, or was deleted.
    pub(crate) async fn follow(
        &mut self,
        id: &str,
        store: &dyn SessionStore,
        environment: &Environment,
    ) -> Result<(), Failure> {
        loop {
            // Before the look at the events, so that the last ones are not missed.
            let is_over = in_use::take(id, environment)?.is_ok();
            let all = store.list().await.map_err(store_failure)?;
            let events = all.iter().find(|info| info.id == id).map(|info| info.events);
            if events != Some(self.shown as u64) {
                // A new session is saved with its first message.
                match store.load(id).await {
                    Err(toolcell_core::StoreError::NotFound { .. }) if self.shown == 0 && !is_over => {}
                    loaded => self.show(&loaded.map_err(store_failure)?),
                }
            }
            if is_over || self.output.has_failed() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
