//! Text of an answer, from the bytes of tokens: whole characters, up to a text at which the answer ends.

/// Builder of text.
#[derive(Debug, Clone)]
pub(super) struct TextStream {
    stop: Vec<String>,
    /// Bytes of an incomplete character.
    bytes: Vec<u8>,
    /// Text that may be the beginning of one at which the answer ends.
    held: String,
    /// True if the next space is left out.
    skips_space: bool,
}

impl TextStream {
    /// Creates an empty text. `skips_space`: the tokenizer writes a space before the first word.
    pub(super) fn new(stop: &[String], skips_space: bool) -> Self {
        Self {
            stop: stop.iter().filter(|text| !text.is_empty()).cloned().collect(),
            bytes: Vec::new(),
            held: String::new(),
            skips_space,
        }
    }

    /// Appends bytes; returns the text that is complete, and true if the answer ends with it.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (String, bool) {
        let bytes = match bytes.split_first() {
            Some((b' ', rest)) if self.skips_space => rest,
            _ => bytes,
        };
        self.skips_space = false;
        self.bytes.extend_from_slice(bytes);
        while !self.bytes.is_empty() {
            match std::str::from_utf8(&self.bytes) {
                Ok(text) => {
                    self.held.push_str(text);
                    self.bytes.clear();
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    self.held.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                    let Some(length) = error.error_len() else {
                        self.bytes.drain(..valid);
                        break;
                    };
                    self.held.push('\u{fffd}');
                    self.bytes.drain(..valid + length);
                }
            }
        }
        let found = self
            .stop
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()))
            .min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begins = |text: &str| self.stop.iter().any(|stop| stop.starts_with(text));
        let mut starts = self.held.char_indices().map(|(at, _)| at);
        let kept = starts
            .find(|at| begins(&self.held[*at..]))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Ends the text.
    pub(super) fn finish(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.held);
        if !self.bytes.is_empty() {
            self.bytes.clear();
            rest.push('\u{fffd}');
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_whole_and_stop_texts_end_the_answer() {
        let said = |stop: &[&str], text: &[u8], skips_space| {
            let stop: Vec<String> = stop.iter().map(|text| (*text).to_owned()).collect();
            let mut stream = TextStream::new(&stop, skips_space);
            let mut said = String::new();
            for byte in text {
                let (more, is_end) = stream.push(&[*byte]);
                said.push_str(&more);
                if is_end {
                    return (said, true);
                }
            }
            (said + &stream.finish(), false)
        };
        assert_eq!(said(&[], "aä€𝄞".as_bytes(), false), ("aä€𝄞".into(), false));
        assert_eq!(
            said(&[], b"a\xffb\xe2\x82", false),
            ("a\u{fffd}b\u{fffd}".into(), false)
        );
        assert_eq!(
            said(&["END", "äx"], "an END.".as_bytes(), false),
            ("an ".into(), true)
        );
        assert_eq!(
            said(&["END", "äx"], "an EN äy äx".as_bytes(), false),
            ("an EN äy ".into(), true)
        );
        assert_eq!(said(&[], b"  a", true), (" a".into(), false));
    }
}
