//! State of an answer: free text, in which calls begin at a marker, and calls, whose bytes follow a grammar.

use serde::{Deserialize, Serialize};

use crate::grammar::{Grammar, Matcher};

/// Rules of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AnswerRules {
    /// Any text.
    Free,
    /// The whole answer follows a grammar.
    Whole(Grammar),
    /// Text and calls.
    Calls(CallRules),
}

/// Rules of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRules {
    /// Grammar of the text after the marker, or with it.
    pub grammar: Grammar,
    /// Text at which a call begins.
    pub marker: String,
    /// True if the grammar has the marker too.
    pub has_marker: bool,
    /// True if a call can only be the whole answer.
    pub is_whole: bool,
    /// True if the answer must begin with a call.
    pub is_required: bool,
    /// True if the answer ends after one call.
    pub is_single: bool,
}

/// Part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of text.
    Text(Vec<u8>),
    /// All bytes of a call, after its marker or with it.
    Call(Vec<u8>),
}

/// State of an answer.
#[derive(Debug, Clone)]
pub struct Constraint<'g> {
    rules: &'g AnswerRules,
    state: State<'g>,
    /// Bytes of text that may be the beginning of a marker, or those of a call.
    held: Vec<u8>,
    calls: usize,
}

#[derive(Debug, Clone)]
enum State<'g> {
    /// Text, the last bytes of which are this many of the marker.
    Free {
        matched: usize,
        is_begun: bool,
    },
    /// The rest of the marker from this byte on.
    Marker(usize),
    Call(Matcher<'g>),
    Whole(Matcher<'g>),
    End,
}

impl<'g> Constraint<'g> {
    /// State of an empty answer.
    pub fn new(rules: &'g AnswerRules) -> Self {
        Self {
            rules,
            state: match rules {
                AnswerRules::Whole(grammar) => State::Whole(Matcher::new(grammar)),
                AnswerRules::Calls(calls) if calls.is_required => State::Marker(0),
                _ => State::Free {
                    matched: 0,
                    is_begun: false,
                },
            },
            held: Vec::new(),
            calls: 0,
        }
    }

    /// True if the answer may go on with these bytes.
    pub fn allows(&self, bytes: &[u8]) -> bool {
        self.state_after(bytes).is_some()
    }

    /// True if it may go on with them and comes closer to the end of a call.
    pub fn closes(&self, bytes: &[u8]) -> bool {
        self.state_after(bytes)
            .is_some_and(|state| self.least_of(&state) < self.least())
    }

    /// Number of bytes that are needed at least until the answer may end.
    pub fn least(&self) -> u64 {
        self.least_of(&self.state)
    }

    /// True if the answer may end here.
    pub fn may_end(&self) -> bool {
        match &self.state {
            State::Free { .. } | State::End => true,
            State::Marker(_) | State::Call(_) => false,
            State::Whole(matcher) => matcher.may_end(),
        }
    }

    /// True if nothing may follow.
    pub fn must_end(&self) -> bool {
        match &self.state {
            State::End => true,
            State::Whole(matcher) => matcher.must_end(),
            _ => false,
        }
    }

    /// True if any text is allowed and no grammar is followed.
    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Free { .. })
    }

    /// Appends bytes. Those that are not allowed end the answer.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for byte in bytes {
            let Some(state) = self.next(&self.state, *byte) else {
                self.state = State::End;
                break;
            };
            self.held.push(*byte);
            let before = std::mem::replace(&mut self.state, state);
            match (before, &self.state) {
                (State::Call(_), State::Call(_)) => {}
                (State::Call(_), _) => {
                    pieces.push(Piece::Call(std::mem::take(&mut self.held)));
                    self.calls += 1;
                }
                (_, State::Call(_)) => {
                    let length = self.marker().len();
                    let text = self.held.len().saturating_sub(length);
                    add_text(&mut pieces, self.held.drain(..text));
                    if !self.calls_rules().is_some_and(|rules| rules.has_marker) {
                        self.held.clear();
                    }
                }
                (_, State::Free { matched, .. }) => {
                    let known = self.held.len().saturating_sub(*matched);
                    add_text(&mut pieces, self.held.drain(..known));
                }
                (_, State::Marker(_)) => {}
                (_, State::Whole(_) | State::End) => add_text(&mut pieces, self.held.drain(..)),
            }
        }
        pieces
    }

    /// Ends the answer: returns text that could have been a marker. A call that was begun is dropped.
    pub fn finish(&mut self) -> Option<Piece> {
        let held = std::mem::take(&mut self.held);
        let is_text = matches!(self.state, State::Free { .. }) && !held.is_empty();
        is_text.then_some(Piece::Text(held))
    }

    /// Number of complete calls.
    pub fn calls(&self) -> usize {
        self.calls
    }

    fn calls_rules(&self) -> Option<&'g CallRules> {
        match self.rules {
            AnswerRules::Calls(calls) => Some(calls),
            _ => None,
        }
    }

    fn marker(&self) -> &'g [u8] {
        self.calls_rules().map_or(&[], |rules| rules.marker.as_bytes())
    }

    fn least_of(&self, state: &State<'g>) -> u64 {
        match state {
            State::Free { .. } | State::End => 0,
            State::Marker(at) => {
                let rest = self.marker().len().saturating_sub(*at) as u64;
                rest + self.calls_rules().map_or(0, |rules| rules.grammar.least())
            }
            State::Call(matcher) | State::Whole(matcher) => matcher.least(),
        }
    }

    fn state_after(&self, bytes: &[u8]) -> Option<State<'g>> {
        let (first, rest) = bytes.split_first()?;
        let mut state = self.next(&self.state, *first)?;
        for byte in rest {
            state = self.next(&state, *byte)?;
        }
        Some(state)
    }

    fn next(&self, state: &State<'g>, byte: u8) -> Option<State<'g>> {
        match state {
            State::End => None,
            State::Whole(matcher) => matcher.after(byte).map(State::Whole),
            State::Marker(at) => {
                let marker = self.marker();
                (marker.get(*at) == Some(&byte)).then_some(())?;
                match at + 1 == marker.len() {
                    true => self.call(),
                    false => Some(State::Marker(at + 1)),
                }
            }
            State::Call(matcher) => {
                let after = matcher.after(byte)?;
                Some(match after.must_end() {
                    false => State::Call(after),
                    true if self
                        .calls_rules()
                        .is_some_and(|rules| rules.is_single || rules.is_whole) =>
                    {
                        State::End
                    }
                    true => State::Free {
                        matched: 0,
                        is_begun: true,
                    },
                })
            }
            State::Free { matched, is_begun } => {
                let Some(rules) = self.calls_rules() else {
                    return Some(state.clone());
                };
                let matched = match rules.is_whole && *is_begun {
                    true => 0,
                    false => longest_prefix(rules.marker.as_bytes(), *matched, byte),
                };
                if matched == rules.marker.len() && matched > 0 {
                    return self.call();
                }
                let is_begun = *is_begun || (matched == 0 && !byte.is_ascii_whitespace());
                Some(State::Free { matched, is_begun })
            }
        }
    }

    fn call(&self) -> Option<State<'g>> {
        let rules = self.calls_rules()?;
        let matcher = Matcher::new(&rules.grammar);
        match rules.has_marker {
            true => matcher.after_all(rules.marker.as_bytes()).map(State::Call),
            false => Some(State::Call(matcher)),
        }
    }
}

fn add_text(pieces: &mut Vec<Piece>, bytes: impl Iterator<Item = u8>) {
    let mut bytes = bytes.peekable();
    if bytes.peek().is_none() {
        return;
    }
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.extend(bytes),
        _ => pieces.push(Piece::Text(bytes.collect())),
    }
}

/// Number of bytes of the marker with which a text ends that ended with `matched` of them, after one more byte.
fn longest_prefix(marker: &[u8], matched: usize, byte: u8) -> usize {
    let mut end: Vec<u8> = marker.get(..matched).unwrap_or(&[]).to_vec();
    end.push(byte);
    (0..=end.len().min(marker.len()))
        .rev()
        .find(|length| end.ends_with(&marker[..*length]))
        .unwrap_or(0)
}
