//! Follows a text through a grammar.

use std::rc::Rc;

use super::{Grammar, Item, NONE};

/// Maximum depth of rules within rules, which bounds the depth of values in values. Documents of calls have about 10 values in each
/// other, each of which takes about 4.
const MAX_DEPTH: u32 = 256;

/// Maximum number of ways in which a text can be read at one time: patterns have some, JSON has one or two.
const MAX_STACKS: usize = 512;

/// Maximum number of rules that are entered for one byte.
const MAX_VISITS: usize = 20_000;

/// Place in a grammar, and the places to continue at after it.
#[derive(Debug)]
struct Frame {
    rule: u32,
    alternative: u32,
    item: u32,
    /// Texts of a repetition so far.
    count: u32,
    depth: u32,
    /// Length of the shortest rest of the whole text, in bytes.
    least: u64,
    parent: Option<Rc<Frame>>,
}

impl Frame {
    fn is(&self, other: &Self) -> bool {
        (self.rule, self.alternative, self.item, self.count)
            == (other.rule, other.alternative, other.item, other.count)
            && same(self.parent.as_ref(), other.parent.as_ref())
    }
}

fn same(one: Option<&Rc<Frame>>, other: Option<&Rc<Frame>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Rc::ptr_eq(one, other) || one.is(other),
        _ => false,
    }
}

/// State of a text in a grammar. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Matcher<'g> {
    grammar: &'g Grammar,
    /// Places of the next byte; `None` is the end of the text.
    places: Vec<Option<Rc<Frame>>>,
}

impl<'g> Matcher<'g> {
    /// State of the empty text.
    pub fn new(grammar: &'g Grammar) -> Self {
        let mut matcher = Self {
            grammar,
            places: Vec::new(),
        };
        let mut open = Vec::new();
        matcher.enter(grammar.root, None, &mut open);
        matcher.resolve(open);
        matcher
    }

    /// State after one more byte, or `None` if no text of the grammar goes on with it.
    pub fn after(&self, byte: u8) -> Option<Self> {
        let mut open = Vec::new();
        for frame in self.places.iter().flatten() {
            if let Some(Item::Bytes(ranges)) = self.item(frame)
                && ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte))
            {
                open.push(self.next(frame));
            }
        }
        let mut matcher = Self {
            grammar: self.grammar,
            places: Vec::with_capacity(open.len()),
        };
        matcher.resolve(open);
        (!matcher.places.is_empty()).then_some(matcher)
    }

    /// State after more bytes.
    pub fn after_all(&self, bytes: &[u8]) -> Option<Self> {
        let mut state = self.clone();
        for byte in bytes {
            state = state.after(*byte)?;
        }
        Some(state)
    }

    /// True if the text may end here.
    pub fn may_end(&self) -> bool {
        self.places.iter().any(Option::is_none)
    }

    /// True if the text must end here.
    pub fn must_end(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Length of the shortest rest of the text, in bytes.
    pub fn least(&self) -> u64 {
        let rests = self.places.iter();
        let rests = rests.map(|place| place.as_ref().map_or(0, |frame| frame.least));
        rests.min().unwrap_or(NONE)
    }

    fn item(&self, frame: &Frame) -> Option<&'g Item> {
        let sequence = self
            .grammar
            .alternatives(frame.rule)
            .get(frame.alternative as usize)?;
        sequence.items.get(frame.item as usize)
    }

    /// Place after the item of a place.
    fn next(&self, frame: &Rc<Frame>) -> Option<Rc<Frame>> {
        self.frame(
            frame.rule,
            frame.alternative,
            frame.item + 1,
            0,
            frame.parent.clone(),
        )
    }

    /// Place at an item, or that of the parent if there is no such item.
    fn frame(
        &self,
        rule: u32,
        alternative: u32,
        item: u32,
        count: u32,
        parent: Option<Rc<Frame>>,
    ) -> Option<Rc<Frame>> {
        let sequence = self.grammar.alternatives(rule).get(alternative as usize)?;
        let Some(at) = sequence.items.get(item as usize) else {
            return parent;
        };
        let after = sequence.least.get(item as usize + 1).copied().unwrap_or(0);
        let own = match at {
            Item::Repeat(_, least, _) => {
                let all = sequence.least[item as usize] - after;
                let each = if *least == 0 { 0 } else { all / u64::from(*least) };
                each * u64::from(least.saturating_sub(count))
            }
            _ => sequence.least[item as usize].saturating_sub(after),
        };
        let (depth, rest) = parent
            .as_ref()
            .map_or((0, 0), |parent| (parent.depth + 1, parent.least));
        Some(Rc::new(Frame {
            rule,
            alternative,
            item,
            count,
            depth,
            least: own.saturating_add(after).saturating_add(rest),
            parent,
        }))
    }

    /// Enters each alternative of a rule that has a text.
    fn enter(&self, rule: u32, parent: Option<Rc<Frame>>, open: &mut Vec<Option<Rc<Frame>>>) {
        if parent.as_ref().is_some_and(|parent| parent.depth >= MAX_DEPTH) {
            return;
        }
        for (index, sequence) in self.grammar.alternatives(rule).iter().enumerate() {
            if sequence.least.first() == Some(&NONE) {
                continue;
            }
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            open.push(self.frame(rule, index, 0, 0, parent.clone()));
        }
    }

    /// Goes on until each place is one of a byte or the end.
    fn resolve(&mut self, mut open: Vec<Option<Rc<Frame>>>) {
        let mut visits = 0;
        while let Some(place) = open.pop() {
            visits += 1;
            if visits > MAX_VISITS || self.places.len() > MAX_STACKS {
                // It cannot be told apart any more: no byte matches.
                self.places.clear();
                return;
            }
            let Some(frame) = place else {
                self.keep(None);
                continue;
            };
            match self.item(&frame) {
                Some(Item::Bytes(_)) => self.keep(Some(frame)),
                Some(Item::Rule(rule)) => {
                    let parent = self.next(&frame);
                    self.enter(*rule, parent, &mut open);
                }
                Some(Item::Repeat(rule, least, most)) => {
                    if frame.count >= *least {
                        open.push(self.next(&frame));
                    }
                    if most.is_none_or(|most| frame.count < most) {
                        // Texts beyond the least number are not counted if there is no most.
                        let count = match most {
                            None => frame.count.saturating_add(1).min(*least),
                            Some(_) => frame.count + 1,
                        };
                        let parent = self.frame(
                            frame.rule,
                            frame.alternative,
                            frame.item,
                            count,
                            frame.parent.clone(),
                        );
                        self.enter(*rule, parent, &mut open);
                    }
                }
                None => {}
            }
        }
    }

    fn keep(&mut self, place: Option<Rc<Frame>>) {
        let is_known = (self.places.iter()).any(|known| same(known.as_ref(), place.as_ref()));
        if !is_known {
            self.places.push(place);
        }
    }
}
