//! Text and reasoning of an answer.

/// Part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Text for the user.
    Text(String),
    /// Reasoning.
    Reasoning(String),
}

const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// Splitter of a stream of text at the tags `<think>` and `</think>`.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    held: String,
    is_reasoning: bool,
    /// True if text for the user was seen: a tag in it is text.
    has_text: bool,
    /// True directly after a tag: line breaks there are not part of the text.
    is_trimmed: bool,
}

impl Splitter {
    /// Creates a splitter of an answer that begins with reasoning if the prompt has opened it.
    pub fn new(is_reasoning: bool) -> Self {
        Self {
            is_reasoning,
            is_trimmed: is_reasoning,
            ..Self::default()
        }
    }

    /// Appends text, and returns what is known to be text or reasoning.
    pub fn push(&mut self, text: &str) -> Vec<Said> {
        self.held.push_str(text);
        let mut said = Vec::new();
        loop {
            let tag = if self.is_reasoning { END } else { BEGIN };
            let is_open = self.is_reasoning || !self.has_text;
            let found = if is_open { self.held.find(tag) } else { None };
            let before = found.filter(|at| self.is_reasoning || self.held[..*at].trim().is_empty());
            if let Some(at) = before {
                let before: String = self.held.drain(..at + tag.len()).take(at).collect();
                if self.is_reasoning {
                    self.say(before.trim_end().to_owned(), &mut said);
                }
                self.is_reasoning = !self.is_reasoning;
                self.is_trimmed = true;
                continue;
            }
            // The end can be the beginning of a tag; space before reasoning is not text.
            let kept = match is_open {
                false => 0,
                true if !self.is_reasoning => match tag.starts_with(self.held.trim_start()) {
                    true => self.held.len(),
                    false => 0,
                },
                true => (1..tag.len())
                    .rev()
                    .find(|length| self.held.ends_with(&tag[..*length]))
                    .unwrap_or(0),
            };
            let known: String = self.held.drain(..self.held.len() - kept).collect();
            self.say(known, &mut said);
            return said;
        }
    }

    /// Ends the answer.
    pub fn finish(mut self) -> Option<Said> {
        let mut said = Vec::new();
        let rest = std::mem::take(&mut self.held);
        if !rest.trim().is_empty() {
            self.say(rest, &mut said);
        }
        said.pop()
    }

    fn say(&mut self, text: String, said: &mut Vec<Said>) {
        let text = match self.is_trimmed {
            true => text.trim_start_matches('\n').to_owned(),
            false => text,
        };
        if text.is_empty() {
            return;
        }
        self.is_trimmed = false;
        self.has_text |= !self.is_reasoning;
        said.push(match self.is_reasoning {
            true => Said::Reasoning(text),
            false => Said::Text(text),
        });
    }
}
