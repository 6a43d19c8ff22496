//! Events that the driver waits for, and their translation into inputs of the machine.

use toolcell_core::event::TurnOutcome;
use toolcell_core::{Event, StoreError};

use super::listen::StreamItem;
use super::notes::Note;
use super::tasks::TaskEnd;
use super::{Driver, RunningCall, Summary};
use crate::budget::Budget;
use crate::context;
use crate::error::AgentError;
use crate::hook::FailurePhase;
use crate::machine::Input;

/// Event that the driver waits for.
pub(super) enum DriverEvent {
    Cancelled,
    Deadline(TurnOutcome),
    Note(Note),
    StreamItem(StreamItem),
    TaskEnded(TaskEnd),
    TaskFailed(String),
    Stored(Result<(), StoreError>),
}

impl Driver<'_> {
    /// Waits for the next event.
    pub(super) async fn next_event(&mut self) -> DriverEvent {
        let deadline = self.deadline.clone();
        let deadline = async move {
            match deadline {
                Some((at, outcome)) => {
                    tokio::time::sleep_until(at).await;
                    outcome
                }
                None => std::future::pending().await,
            }
        };
        let model = &mut self.model;
        let stream_item = async move {
            match model {
                Some(model) => model.next().await,
                None => std::future::pending().await,
            }
        };
        let tasks = &mut self.tasks;
        let done = async move {
            match tasks.join_next().await {
                Some(Ok(end)) => DriverEvent::TaskEnded(end),
                Some(Err(error)) => DriverEvent::TaskFailed(error.to_string()),
                None => std::future::pending().await,
            }
        };
        let notes = &mut self.notes.1;
        let is_full = self.journal.is_full();
        let stored = self.journal.flow(self.sink);
        // Polled fairly: a call that floods the queue does not keep the others from ending.
        let other = async move {
            tokio::select! {
                stored = stored => DriverEvent::Stored(stored),
                Some(note) = notes.next(), if !is_full => DriverEvent::Note(note),
                event = done, if !is_full => event,
                stream_item = stream_item, if !is_full => DriverEvent::StreamItem(stream_item),
            }
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => DriverEvent::Cancelled,
            outcome = deadline => DriverEvent::Deadline(outcome),
            event = other => event,
        }
    }

    /// Translates an event into an input of the machine, if there is one.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub(super) async fn take(&mut self, event: DriverEvent) -> Result<Option<Input>, AgentError> {
        Ok(match event {
            DriverEvent::Stored(stored) => {
                stored.map_err(|source| self.failed(source))?;
                self.release();
                None
            }
            DriverEvent::Cancelled => Some(self.halt(TurnOutcome::Cancelled).await),
            DriverEvent::Deadline(outcome) => Some(self.halt(outcome).await),
            DriverEvent::TaskFailed(message) => Some(self.halt(TurnOutcome::HostFailed { message }).await),
            DriverEvent::Note(note) => {
                self.show_note(note);
                None
            }
            DriverEvent::StreamItem(StreamItem::TooLong { tokens }) => {
                let reason = Budget::answer_too_long(tokens);
                Some(self.halt(TurnOutcome::Budget { reason }).await)
            }
            DriverEvent::StreamItem(stream_item) => self.on_stream_item(stream_item),
            DriverEvent::TaskEnded(end) => self.on_task_end(end).await,
        })
    }

    fn on_stream_item(&mut self, stream_item: StreamItem) -> Option<Input> {
        match stream_item {
            StreamItem::Nothing | StreamItem::TooLong { .. } => None,
            StreamItem::Piece(event) => {
                // The text of a summary is not shown to the user.
                if self.summary.is_none() || matches!(event, Event::Retry { .. }) {
                    self.show(event);
                }
                None
            }
            StreamItem::Answer(completion, cut) => {
                self.model = None;
                match self.summary.take() {
                    Some(summary) => {
                        self.spawn_summarised(summary, completion);
                        None
                    }
                    None => Some(Input::Answered { completion, cut }),
                }
            }
            StreamItem::Failure(error, partial) => {
                self.model = None;
                match self.summary.take() {
                    Some(_) => Some(Input::SummaryFailed {
                        reason: error.to_string(),
                        usage: None,
                        outcome: None,
                    }),
                    None => {
                        self.spawn_failure(FailurePhase::Model, error.to_string());
                        Some(Input::AnswerFailed { error, partial })
                    }
                }
            }
        }
    }

    /// Converts the end of a task into the input of the machine. Most tasks end with that input, which passes unchanged.
    async fn on_task_end(&mut self, end: TaskEnd) -> Option<Input> {
        self.show_notes();
        match end {
            TaskEnd::Input(input) => {
                if let Input::Returned { id, .. } | Input::Suspended { id, .. } = input.as_ref() {
                    self.on_call_end(id);
                }
                Some(*input)
            }
            TaskEnd::Decided(decisions) => {
                self.asking = false;
                for (id, decision) in decisions {
                    self.step(Input::Decided { id, decision });
                }
                self.ask_next();
                None
            }
            TaskEnd::Reported => None,
            TaskEnd::Aborted { by, reason } => Some(self.halt(TurnOutcome::Aborted { by, reason }).await),
            TaskEnd::SummaryBegun {
                removed,
                replaced,
                request,
                max_output,
            } => {
                let overhead = context::estimate_overhead(&request.instructions, &request.tools);
                self.summary = Some(Summary {
                    removed,
                    replaced,
                    input: context::estimate(&request.messages).saturating_add(overhead),
                });
                self.listen(request, max_output);
                None
            }
        }
    }

    /// Releases what belongs to a running call.
    fn on_call_end(&mut self, id: &str) {
        if let Some(RunningCall { observer, ticket }) = self.running.remove(id) {
            self.ended.push(ticket);
            if let Some(lost) = observer.take_lost() {
                self.show(lost);
            }
            observer.set_counted();
        }
    }
}
