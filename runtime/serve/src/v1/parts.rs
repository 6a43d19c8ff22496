//! Parts of a stored turn. A turn with calls of the client's tools has a part for each request of the client: the first ends when
//! the turn waits for results, and the next begins when they are there. Each part is a response, which does not change afterwards.

use serde_json::Value;
use toolcell_core::provider::Usage;
use toolcell_core::store::{Entry, SessionInfo};
use toolcell_core::{ApprovalCause, Event};

use super::feed::text::Text;
use super::response_id::ResponseId;
use crate::answer::Failure;
use crate::host::{CallPlace, ClientCall, TurnEnd};
use crate::server::Server;

/// Maximum number of entries of a turn.
const MAX_TURN: usize = 100_000;

/// Maximum size of the entries of a turn, in bytes.
const MAX_TURN_BYTES: usize = 64 << 20;

/// Part of a turn in a journal, as far as it is there.
#[derive(Default)]
pub(super) struct Part {
    /// Number of events when the part before was over, at which its request can have come.
    from: u64,
    /// Number of events before its first event.
    pub(super) at: u64,
    /// Number of events when it paused, if it did.
    until: u64,
    /// Its end, or its text and tokens so far, with the calls that wait for results.
    pub(super) end: TurnEnd,
    /// True if the turn ended in it.
    pub(super) is_finished: bool,
}

impl Part {
    /// True if it ended with calls for the client.
    pub(super) fn is_paused(&self) -> bool {
        !self.end.waiting.is_empty()
    }
}

/// Turn in a journal.
pub(super) struct StoredTurn {
    /// At least one.
    pub(super) parts: Vec<Part>,
    /// Number of events before the next turn, if there is one.
    next: Option<u64>,
    /// Time of the beginning, in milliseconds since 1970-01-01 UTC.
    pub(super) at_ms: u64,
}

impl StoredTurn {
    /// Reads the turn with this number of events before it; `None` if none begins there.
    pub(super) async fn read(
        server: &Server,
        info: &SessionInfo,
        turn: u64,
    ) -> Result<Option<Self>, Failure> {
        let host = &server.turns.host;
        let entries = host
            .store()
            .entries(&info.id, turn, MAX_TURN, MAX_TURN_BYTES)
            .await?;
        Ok(Self::of(&entries))
    }

    fn of(entries: &[Entry]) -> Option<Self> {
        let (first, rest) = entries.split_first()?;
        if !matches!(serde_json::from_str(&first.json), Ok(Event::TurnStarted { .. })) {
            return None;
        }
        let mut reader = Reader {
            part: Part {
                from: first.seq - 1,
                at: first.seq - 1,
                ..Part::default()
            },
            parts: Vec::new(),
            step: 0,
            calls: Vec::new(),
            waiting: Vec::new(),
            is_stopped: false,
            text: Text::default(),
            last: String::new(),
            usage: Usage::default(),
        };
        let mut next = None;
        for entry in rest {
            match serde_json::from_str(&entry.json) {
                Ok(Event::TurnStarted { .. }) => {
                    next = Some(entry.seq - 1);
                    break;
                }
                // What follows the end is of no part.
                Ok(event) if !reader.part.is_finished => reader.read(event, entry.seq),
                _ => {}
            }
        }
        Some(Self {
            parts: reader.parts(),
            next,
            at_ms: first.at_ms.unwrap_or(0),
        })
    }

    /// Finds the part of a response. One whose request has written nothing yet is the last, and empty.
    pub(super) fn part_of(&mut self, id: &ResponseId) -> Option<usize> {
        let found = self
            .parts
            .iter()
            .position(|part| (part.from..=part.at).contains(&id.at));
        if found.is_some() || self.next.is_some() {
            return found;
        }
        let last = self.parts.last()?;
        if !last.is_paused() || id.at < last.until {
            return None;
        }
        self.parts.push(Part {
            from: id.at,
            at: id.at,
            ..Part::default()
        });
        Some(self.parts.len() - 1)
    }

    /// Returns the number of events before what followed a part, if something did.
    pub(super) fn after(&self, index: usize) -> Option<u64> {
        self.parts.get(index + 1).map(|part| part.at).or(self.next)
    }
}

/// Call of the latest answer.
struct Called {
    id: String,
    /// True while it runs, or waits for an answer of the server's user.
    is_in_progress: bool,
}

/// Reads the events of a turn.
struct Reader {
    part: Part,
    /// Parts that are over.
    parts: Vec<Part>,
    step: u32,
    calls: Vec<Called>,
    /// Calls of the client's tools without a result, with their identifiers in the journal.
    waiting: Vec<(String, ClientCall)>,
    /// True if a call has ended without its result: the turn was given up.
    is_stopped: bool,
    /// Text of the part, as its client had it, without lines of Toolcell.
    text: Text,
    /// The latest text of the model in the part.
    last: String,
    /// Tokens of the parts that are over.
    usage: Usage,
}

impl Reader {
    fn is_waiting(&self, id: &str) -> bool {
        self.waiting.iter().any(|(known, _)| known == id)
    }

    /// True if a call waits for its result, and none is in progress. Later calls of the answer have not begun if there is one at a
    /// time.
    fn is_paused(&self) -> bool {
        let mut calls = self.calls.iter();
        !self.waiting.is_empty() && calls.all(|call| !call.is_in_progress)
    }

    fn set_in_progress(&mut self, id: &str, is_in_progress: bool) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
            call.is_in_progress = is_in_progress;
        }
    }

    fn read(&mut self, event: Event, seq: u64) {
        // The results of one request are there together, before any of their calls is over.
        let goes_on = match &event {
            Event::ApprovalDecided { id, .. }
            | Event::CallStarted { id, .. }
            | Event::CallFinished { id, .. } => self.is_waiting(id),
            Event::TurnFinished { .. } => true,
            _ => false,
        };
        if goes_on && !self.is_stopped && self.is_paused() {
            self.next_part(seq - 1);
            self.is_stopped = !matches!(event, Event::ApprovalDecided { .. });
        }
        match event {
            Event::StepStarted { step } => {
                self.step = step;
                self.text.end_paragraph();
            }
            Event::StepFinished { message, usage, .. } => {
                self.said(message.text(), usage);
                let of_step = message.calls().map(|call| Called {
                    id: call.id.clone(),
                    is_in_progress: false,
                });
                self.calls = of_step.collect();
            }
            Event::StepInterrupted { message, usage, .. } => {
                self.said(message.map(|message| message.text()).unwrap_or_default(), usage);
            }
            Event::ApprovalRequested {
                id,
                tool,
                arguments,
                cause: ApprovalCause::Client,
                ..
            } => {
                let index = self.calls.iter().position(|call| call.id == id);
                let place = CallPlace {
                    step: self.step,
                    index: index.unwrap_or(self.calls.len()),
                };
                let call = ClientCall {
                    place,
                    name: tool,
                    arguments,
                };
                self.waiting.push((id, call));
                self.note_pause(seq);
            }
            Event::ApprovalRequested { id, .. } => self.set_in_progress(&id, true),
            Event::ApprovalDecided { id, .. } => {
                self.waiting.retain(|(known, _)| *known != id);
                self.set_in_progress(&id, true);
            }
            Event::CallStarted { id, .. } => self.set_in_progress(&id, true),
            Event::CallFinished { id, .. } => {
                self.waiting.retain(|(known, _)| *known != id);
                self.set_in_progress(&id, false);
                self.note_pause(seq);
            }
            Event::TurnFinished {
                outcome,
                text,
                usage,
                result,
                ..
            } => {
                let is_json =
                    || serde_json::from_str(text.trim()).is_ok_and(|json: Value| Some(json) == result);
                if result.is_some() && is_json() {
                    // By a schema: its client had nothing else.
                    self.text = Text::default();
                    self.text.push(text.trim());
                } else if text != self.last && TurnEnd::has_text(&outcome) {
                    self.text.paragraph(&text);
                }
                let end = &mut self.part.end;
                end.outcome = Some(outcome);
                end.usage = without(usage, self.usage);
                self.part.is_finished = true;
            }
            _ => {}
        }
    }

    fn said(&mut self, text: String, usage: Option<Usage>) {
        self.text.push(&text);
        if !text.is_empty() {
            self.last = text;
        }
        self.part.end.usage.add(usage.unwrap_or_default());
    }

    fn note_pause(&mut self, seq: u64) {
        if self.is_paused() {
            self.part.until = seq;
        }
    }

    fn next_part(&mut self, at: u64) {
        self.usage.add(self.part.end.usage);
        self.last.clear();
        let next = Part {
            from: self.part.until,
            at,
            ..Part::default()
        };
        let mut over = std::mem::replace(&mut self.part, next);
        over.end.text = std::mem::take(&mut self.text).into_string();
        over.end.waiting = self.handed_out();
        self.parts.push(over);
    }

    fn handed_out(&self) -> Vec<ClientCall> {
        self.waiting.iter().map(|(_, call)| call.clone()).collect()
    }

    fn parts(mut self) -> Vec<Part> {
        if !self.part.is_finished && self.is_paused() {
            self.part.end.waiting = self.handed_out();
        }
        self.part.end.text = self.text.into_string();
        let mut parts = self.parts;
        parts.push(self.part);
        parts
    }
}

/// Returns the tokens of a turn without those of its earlier parts.
fn without(all: Usage, earlier: Usage) -> Usage {
    Usage {
        input: all.input.saturating_sub(earlier.input),
        cache_read: all.cache_read.saturating_sub(earlier.cache_read),
        cache_write: all.cache_write.saturating_sub(earlier.cache_write),
        output: all.output.saturating_sub(earlier.output),
        reasoning: all.reasoning.saturating_sub(earlier.reasoning),
        ..all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_core::event::TurnOutcome;
    use toolcell_core::message::CallRequest;
    use toolcell_core::provider::StopReason;
    use toolcell_core::{CallResult, Message, Part as MessagePart};

    use super::*;

    /// Answer of a step with calls. Those whose names begin with `c` are of tools of the client.
    fn step(step: u32, calls: &[&str]) -> Event {
        let calls = calls.iter().map(|id| {
            MessagePart::Call(CallRequest {
                id: (*id).to_owned(),
                name: (*id).to_owned(),
                arguments: "{}".into(),
                opaque: json!(null),
            })
        });
        Event::StepFinished {
            step,
            message: Message::Assistant {
                parts: calls.collect(),
            },
            stop: StopReason::Complete,
            usage: Some(Usage {
                input: 10,
                ..Usage::default()
            }),
        }
    }

    fn asked(id: &str) -> Event {
        Event::ApprovalRequested {
            id: id.into(),
            tool: id.into(),
            arguments: json!({}),
            cause: match id.starts_with('c') {
                true => ApprovalCause::Client,
                false => ApprovalCause::Rule,
            },
            reason: String::new(),
            places: Vec::new(),
        }
    }

    fn decided(id: &str) -> Event {
        Event::ApprovalDecided {
            id: id.into(),
            approved: true,
            reason: None,
        }
    }

    fn started(id: &str) -> Event {
        Event::CallStarted {
            id: id.into(),
            tool: id.into(),
            arguments: json!({}),
        }
    }

    fn over(id: &str) -> Event {
        Event::CallFinished {
            id: id.into(),
            tool: id.into(),
            result: CallResult::text("x"),
        }
    }

    fn end(outcome: TurnOutcome) -> Event {
        Event::TurnFinished {
            outcome,
            text: "end".into(),
            result: None,
            steps: 2,
            usage: Usage {
                input: 25,
                ..Usage::default()
            },
            wall_ms: 0,
            cost_micros: None,
        }
    }

    fn turn(events: Vec<Event>) -> StoredTurn {
        let begin = Event::TurnStarted {
            version: 1,
            session: "s".into(),
            provider: "p".into(),
            model: "m".into(),
            message: Message::user("x"),
            unanswered: false,
        };
        let events = std::iter::once(begin).chain(events);
        let entries: Vec<Entry> = (1..)
            .zip(events)
            .map(|(seq, event)| Entry {
                seq,
                at_ms: None,
                json: serde_json::to_string(&event).unwrap(),
            })
            .collect();
        StoredTurn::of(&entries).unwrap()
    }

    /// Number of events before each part, with the names of the calls that it hands out.
    fn parts(turn: &StoredTurn) -> Vec<(u64, Vec<&str>)> {
        let parts = turn.parts.iter().map(|part| {
            let waiting = part.end.waiting.iter().map(|call| call.name.as_str());
            (part.at, waiting.collect())
        });
        parts.collect()
    }

    #[test]
    fn results_of_one_request_begin_one_part() {
        let of = |results: &[Event]| {
            let mut events = vec![step(1, &["c1", "c2"]), asked("c1"), asked("c2")];
            events.extend(results.iter().cloned());
            events.extend([step(2, &[]), end(TurnOutcome::Completed)]);
            turn(events)
        };
        let both = of(&[decided("c1"), decided("c2"), over("c1"), over("c2")]);
        assert_eq!(parts(&both), [(0, vec!["c1", "c2"]), (4, vec![])]);
        // The tokens of the first part are not counted again.
        assert_eq!(both.parts[1].end.usage.input, 15);
        let single = of(&[decided("c1"), over("c1"), decided("c2"), over("c2")]);
        assert_eq!(
            parts(&single),
            [(0, vec!["c1", "c2"]), (4, vec!["c2"]), (6, vec![])]
        );
    }

    #[test]
    fn turn_pauses_before_calls_that_have_not_begun() {
        let one_at_a_time = turn(vec![
            step(1, &["c1", "s1", "c2"]),
            asked("c1"),
            decided("c1"),
            started("c1"),
            over("c1"),
            started("s1"),
            over("s1"),
            asked("c2"),
        ]);
        assert_eq!(parts(&one_at_a_time), [(0, vec!["c1"]), (3, vec!["c2"])]);
        let running = turn(vec![step(1, &["c1", "s1"]), asked("c1"), started("s1")]);
        assert_eq!(parts(&running), [(0, vec![])]);
    }

    #[test]
    fn approved_call_of_the_server_begins_no_part() {
        let beside = turn(vec![
            step(1, &["c1", "s1"]),
            asked("c1"),
            asked("s1"),
            decided("s1"),
            over("s1"),
            decided("c1"),
            over("c1"),
            end(TurnOutcome::Completed),
        ]);
        assert_eq!(parts(&beside), [(0, vec!["c1"]), (6, vec![])]);
    }

    #[test]
    fn end_of_a_paused_turn_leaves_its_part_as_it_was() {
        let given_up = turn(vec![
            step(1, &["c1", "c2"]),
            asked("c1"),
            asked("c2"),
            started("c1"),
            over("c1"),
            started("c2"),
            over("c2"),
            end(TurnOutcome::Cancelled),
        ]);
        assert_eq!(parts(&given_up), [(0, vec!["c1", "c2"]), (4, vec![])]);
        assert!(!given_up.parts[0].is_finished && given_up.parts[1].is_finished);
    }

    #[test]
    fn part_is_found_by_the_place_of_its_request() {
        let id = |at| ResponseId {
            session: "s".into(),
            turn: 0,
            at,
        };
        let events = vec![step(1, &["c1", "c2"]), asked("c1"), asked("c2")];
        let mut open = turn(events.clone());
        assert_eq!([0, 1, 3].map(|at| open.part_of(&id(at))), [Some(0), None, None]);
        // A request came, and has written nothing yet.
        assert_eq!(open.part_of(&id(4)), Some(1));
        let further = [decided("c1"), decided("c2"), over("c1"), over("c2")];
        let mut gone_on = turn(events.into_iter().chain(further).collect());
        assert_eq!(
            [0, 3, 4, 5].map(|at| gone_on.part_of(&id(at))),
            [Some(0), None, Some(1), None]
        );
    }

    #[test]
    fn text_of_a_part_is_what_its_client_had() {
        let said = |number, text: &str, call: Option<&str>| {
            let Event::StepFinished {
                usage,
                stop,
                message,
                step,
            } = step(number, call.as_slice())
            else {
                unreachable!()
            };
            let Message::Assistant { mut parts } = message else {
                unreachable!()
            };
            if !text.is_empty() {
                parts.insert(0, MessagePart::text(text));
            }
            let message = Message::Assistant { parts };
            [
                Event::StepStarted { step: number },
                Event::StepFinished {
                    step,
                    message,
                    stop,
                    usage,
                },
            ]
        };
        let texts = |first: &str, last: [Event; 2]| {
            let mut events = Vec::new();
            events.extend(said(1, "a", Some("s1")));
            events.extend([started("s1"), over("s1")]);
            events.extend(said(2, first, Some("c1")));
            events.extend([asked("c1"), decided("c1"), started("c1"), over("c1")]);
            events.extend(last);
            events.push(end(TurnOutcome::Completed));
            let turn = turn(events);
            let parts = turn.parts.into_iter();
            parts.map(|part| part.end.text).collect::<Vec<_>>()
        };
        // The text of the end is `end`.
        assert_eq!(texts("b", said(3, "end", None)), ["a\n\nb", "end"]);
        assert_eq!(texts("b", said(3, "", None)), ["a\n\nb", "end"]);
        assert_eq!(texts("b", said(3, "c", None)), ["a\n\nb", "c\n\nend"]);
        // What an earlier part said is not in this one.
        assert_eq!(texts("end", said(3, "", None)), ["a\n\nend", "end"]);
    }
}
