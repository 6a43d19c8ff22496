//! Input during a question, and input from before it.
//!
//! A terminal buffers input until a program reads it. An answer read from it could have been meant for something else:
//! the rest of a sentence, a line typed too early, a clipboard. Input that began before the question does not answer
//! it:
//!
//! - All pending input is read and set aside, until no key is pressed for [`QUIET`]; only then the prompt appears.
//! - After the prompt, each key including Enter must arrive separately: bytes with less than [`BURST_GAP`] in between
//!   are a burst, such as a paste, and answer nothing. Only the words of a refusal may be typed faster: a line that
//!   begins with `n` approves nothing, and its Enter must still arrive separately.
//! - Once input was set aside, further keys may belong to it, at any pace. Then the question waits for
//!   [`QUIET_AFTER_KEYS`], and an answer must contain digits that are shown with the prompt
//!   ([`Asking`](super::asking::Asking)).

use std::io;
use std::time::Duration;

/// Time without a key before the prompt appears: longer than between two letters of a word, shorter than it takes to
/// read a question.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

/// Time without a key after a key was pressed before the prompt: longer than a slow typist needs for one.
pub(crate) const QUIET_AFTER_KEYS: Duration = Duration::from_secs(1);

/// Maximum time between two bytes of a burst. Users do not press two keys that fast, and a remote terminal delivers a
/// paste that fast.
pub(crate) const BURST_GAP: Duration = Duration::from_millis(30);

/// Interval at which a wait checks if it was withdrawn.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Maximum size of input set aside for a later prompt, in bytes.
pub(crate) const MAX_TYPED: usize = 64 << 10;

/// Maximum size of a burst at a prompt for text, in bytes. More is a paste.
pub(crate) const MAX_LINE_AT_ONCE: usize = 256;

/// Start and end of a paste (xterm bracketed paste).
const PASTE: (&[u8], &[u8]) = (b"\x1b[200~", b"\x1b[201~");

/// Input from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A typed line.
    Line(String),
    /// A burst: a paste, or earlier input.
    Pasted(String),
    /// End of input: Ctrl-D on an empty line, or a closed terminal.
    End,
    /// The answer is no longer awaited.
    Withdrawn,
    /// The question must be redrawn: the terminal was resized, or the process was stopped and continued.
    Redraw,
}

/// Keys of a line that may arrive in a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each key separately.
    KeyByKey,
    /// Up to [`MAX_LINE_AT_ONCE`] bytes, with or without Enter at the end.
    Line,
}

/// Observer of a wait for a line.
pub(crate) trait LineObserver {
    /// Returns the reason to stop waiting, if any.
    fn ends(&mut self) -> Option<Typed>;
    /// Called when a key was pressed before the prompt.
    fn early(&mut self);
    /// Shows a typed character; `None` removes the last one.
    fn echo(&mut self, c: Option<char>);
}

/// A source of keyboard input with its clock.
pub(crate) trait KeySource {
    /// Reads available bytes, or waits for them up to `time`: `None` on timeout, and no bytes at the end of input.
    fn read(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>>;
    /// Returns the time since a fixed instant.
    fn now(&self) -> Duration;
}

/// Reads answers from a keyboard.
#[derive(Debug)]
pub(crate) struct KeyReader<S> {
    source: S,
    /// Bytes of an incomplete paste.
    paste: Option<Vec<u8>>,
}

impl<S: KeySource> KeyReader<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, paste: None }
    }

    /// Reads all input until no key is pressed, but at least for `reading`.
    pub(crate) fn drain(
        &mut self,
        reading: Duration,
        observer: &mut dyn LineObserver,
    ) -> (String, Option<Typed>) {
        let start = self.source.now();
        let (mut last, mut quiet) = (start, QUIET);
        let mut typed = Vec::new();
        let end = loop {
            if let Some(end) = observer.ends() {
                break Some(end);
            }
            match self.source.read(TICK) {
                Ok(Some(bytes)) if !bytes.is_empty() => {
                    if quiet != QUIET_AFTER_KEYS {
                        observer.early();
                    }
                    // Excess input is discarded.
                    typed.extend(bytes.iter().take(MAX_TYPED.saturating_sub(typed.len())));
                    (last, quiet) = (self.source.now(), QUIET_AFTER_KEYS);
                }
                Ok(None) => {
                    let now = self.source.now();
                    if now.saturating_sub(start) >= reading && now.saturating_sub(last) >= quiet {
                        break None;
                    }
                }
                Ok(Some(_)) | Err(_) => break Some(Typed::End),
            }
        };
        (as_text(&typed), end)
    }

    /// Reads a line.
    pub(crate) fn line(&mut self, pace: Pace, observer: &mut dyn LineObserver) -> Typed {
        let mut line = Line::default();
        loop {
            if let Some(end) = observer.ends() {
                return end;
            }
            let bytes = match self.source.read(TICK) {
                Ok(Some(bytes)) if !bytes.is_empty() => self.burst(bytes),
                Ok(None) => continue,
                Ok(Some(_)) | Err(_) => return Typed::End,
            };
            if let Some(mut paste) = self.paste.take() {
                paste.extend(bytes);
                paste.truncate(MAX_TYPED);
                if !contains(&paste, PASTE.1) && paste.len() < MAX_TYPED {
                    self.paste = Some(paste);
                    continue;
                }
                return Typed::Pasted(line.text + &as_text(&paste));
            }
            if contains(&bytes, PASTE.0) {
                if contains(&bytes, PASTE.1) {
                    return Typed::Pasted(line.text + &as_text(&bytes));
                }
                self.paste = Some(bytes);
                continue;
            }
            if let Some(typed) = line.take(&bytes, pace, observer) {
                return typed;
            }
        }
    }

    /// Reads the rest of a burst.
    fn burst(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        while bytes.len() < MAX_TYPED {
            match self.source.read(BURST_GAP) {
                Ok(Some(more)) if !more.is_empty() => bytes.extend(more),
                // The next read sees the end of input again.
                _ => break,
            }
        }
        bytes
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A line being typed.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// Bytes of an incomplete character.
    partial: Vec<u8>,
}

impl Line {
    /// Handles a burst of bytes. Returns the result if they end the line.
    fn take(&mut self, bytes: &[u8], pace: Pace, observer: &mut dyn LineObserver) -> Option<Typed> {
        let end = bytes.iter().position(|b| matches!(b, b'\n' | b'\r'));
        // An arrow key or similar.
        if bytes.first() == Some(&0x1b) && end.is_none() {
            return None;
        }
        let is_typed = match pace {
            Pace::KeyByKey => is_one_key(bytes) || self.continues_refusal(bytes),
            Pace::Line => bytes.len() <= MAX_LINE_AT_ONCE && end.is_none_or(|end| end + 1 == bytes.len()),
        };
        if !is_typed {
            let before = std::mem::take(&mut self.text);
            return Some(Typed::Pasted(before + &as_text(bytes)));
        }
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => return Some(Typed::Line(std::mem::take(&mut self.text))),
                // Ctrl-D; Ctrl-C if it sends no signal.
                0x03 | 0x04 if self.text.is_empty() => return Some(Typed::End),
                // Backspace, Ctrl-H.
                0x7f | 0x08 => {
                    if self.text.pop().is_some() {
                        observer.echo(None);
                    }
                }
                // Ctrl-U.
                0x15 => {
                    while self.text.pop().is_some() {
                        observer.echo(None);
                    }
                }
                0x00..=0x1f => {}
                byte => {
                    self.partial.push(*byte);
                    self.take_partial(observer);
                }
            }
        }
        None
    }

    /// True if the line begins with `n` together with the bytes, which neither end nor change it.
    fn continues_refusal(&self, bytes: &[u8]) -> bool {
        let first = self.text.bytes().next().or(bytes.first().copied());
        self.partial.is_empty()
            && first.is_some_and(|key| key.eq_ignore_ascii_case(&b'n'))
            && std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
    }

    fn take_partial(&mut self, observer: &mut dyn LineObserver) {
        let Ok(text) = std::str::from_utf8(&self.partial) else {
            if self.partial.len() >= 4 {
                self.partial.clear();
            }
            return;
        };
        for c in text.chars().filter(|c| !c.is_control()) {
            self.text.push(c);
            observer.echo(Some(c));
        }
        self.partial.clear();
    }
}

/// True if the bytes are those of one key.
fn is_one_key(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().count() == 1,
        // Part of one character.
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none_or(|_| bytes.len() == 1),
    }
}

/// Returns the text of typed bytes, for use in a prompt.
pub(crate) fn as_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes)
        .replace("\x1b[200~", "")
        .replace("\x1b[201~", "")
        .replace('\r', "\n");
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::VecDeque;

    /// Keys pressed at given times, in ms, on a clock that advances only by reading.
    #[derive(Default)]
    struct Script {
        keys: VecDeque<(u64, Vec<u8>)>,
        now: u64,
    }

    impl Script {
        fn reader(keys: &[(u64, &str)]) -> KeyReader<Self> {
            let keys = keys.iter().map(|(at, key)| (*at, key.as_bytes().to_vec()));
            KeyReader::new(Self {
                keys: keys.collect(),
                now: 0,
            })
        }
    }

    impl KeySource for Script {
        fn read(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>> {
            let until = self.now + u64::try_from(time.as_millis()).unwrap();
            match self.keys.front() {
                Some((at, _)) if *at <= until => {
                    let (at, first) = self.keys.pop_front().unwrap();
                    self.now = self.now.max(at);
                    let mut bytes = first;
                    // A terminal returns all available bytes.
                    while self.keys.front().is_some_and(|(at, _)| *at <= self.now) {
                        bytes.extend(self.keys.pop_front().unwrap().1);
                    }
                    Ok(Some(bytes))
                }
                _ => {
                    self.now = until;
                    Ok(None)
                }
            }
        }

        fn now(&self) -> Duration {
            Duration::from_millis(self.now)
        }
    }

    /// Displayed line, and number of early keys. Waiting ends after a number of checks.
    struct Seen {
        text: String,
        early: usize,
        looks: usize,
    }

    impl Default for Seen {
        fn default() -> Self {
            Self {
                text: String::new(),
                early: 0,
                looks: 10_000,
            }
        }
    }

    impl LineObserver for Seen {
        fn ends(&mut self) -> Option<Typed> {
            self.looks = self.looks.saturating_sub(1);
            (self.looks == 0).then_some(Typed::Withdrawn)
        }

        fn early(&mut self) {
            self.early += 1;
        }

        fn echo(&mut self, c: Option<char>) {
            match c {
                Some(c) => self.text.push(c),
                None => drop(self.text.pop()),
            }
        }
    }

    fn line(text: &str) -> Typed {
        Typed::Line(text.into())
    }

    fn pasted(text: &str) -> Typed {
        Typed::Pasted(text.into())
    }

    #[test]
    fn answer_is_typed_key_by_key() {
        for (keys, expected) in [
            (&[(0, "y"), (100, "\n")][..], line("y")),
            (&[(0, "y"), (200, "e"), (300, "s"), (400, "\n")], line("yes")),
            (&[(0, "x"), (100, "\u{7f}"), (200, "n"), (300, "\r")], line("n")),
            (
                &[(0, "a"), (50, "b"), (100, "\u{15}"), (200, "y"), (300, "\n")],
                line("y"),
            ),
            (&[(0, "\u{1b}[A"), (100, "y"), (200, "\n")], line("y")),
            (&[(0, "\u{4}")], Typed::End),
            (&[(0, "\u{3}")], Typed::End),
            (&[(0, "\u{9b}"), (100, "y"), (200, "\n")], line("y")),
            (&[(0, "\u{1b}\n")], pasted("\n")),
            (
                &[(0, "a"), (100, "\u{1b}[200~b"), (300, "\u{1b}[201~")],
                pasted("ab"),
            ),
            (&[(0, "y"), (100, "\u{4}"), (200, "\n")], line("y")),
            (&[(0, "ü"), (100, "\n")], line("ü")),
            (&[(0, "y\n")], pasted("y\n")),
            (&[(0, "y"), (0, "\n")], pasted("y\n")),
            (&[(0, "\n\n")], pasted("\n\n")),
            (&[(0, "y"), (100, "\ny")], pasted("y\ny")),
            (&[(0, "yes"), (100, "\n")], pasted("yes")),
            // Words of a refusal, typed fast; neither the Enter nor another answer may come with them.
            (
                &[(0, "n"), (100, "o,"), (110, " us"), (200, "e b"), (300, "\n")],
                line("no, use b"),
            ),
            (&[(0, "No"), (100, "\n")], line("No")),
            (&[(0, "no\n")], pasted("no\n")),
            (&[(0, "n"), (100, "o\n")], pasted("no\n")),
            (&[(0, "n"), (100, "\u{7f}y"), (200, "\n")], pasted("ny")),
            (&[(0, "n"), (100, "\u{15}y"), (200, "\n")], pasted("ny")),
            (&[(0, "\u{1b}[200~no\u{1b}[201~")], pasted("no")),
            (&[(0, "\u{1b}[200~y\n\u{1b}[201~")], pasted("y\n")),
            (&[(0, "\u{1b}[200~y\n"), (500, "\u{1b}[201~")], pasted("y\n")),
        ] {
            let typed = Script::reader(keys).line(Pace::KeyByKey, &mut Seen::default());
            assert_eq!(typed, expected, "{keys:?}");
        }
    }

    #[test]
    fn keys_within_gap_are_burst_and_beyond_are_separate() {
        let gap = u64::try_from(BURST_GAP.as_millis()).unwrap();
        for (at, expected) in [(gap, pasted("y\n")), (gap + 1, line("y"))] {
            let mut reader = Script::reader(&[(100, "y"), (100 + at, "\n")]);
            assert_eq!(reader.line(Pace::KeyByKey, &mut Seen::default()), expected);
        }
    }

    #[test]
    fn text_line_may_be_burst_up_to_maximum_length() {
        let text = "x".repeat(MAX_LINE_AT_ONCE - 1);
        for (keys, expected) in [
            (format!("{text}\n"), line(&text)),
            (format!("{text}y\n"), pasted(&format!("{text}y\n"))),
            ("a\nb".to_owned(), pasted("a\nb")),
        ] {
            let mut reader = Script::reader(&[(0, &keys)]);
            assert_eq!(reader.line(Pace::Line, &mut Seen::default()), expected);
        }
    }

    #[test]
    fn character_may_arrive_in_parts() {
        let mut reader = KeyReader::new(Script {
            keys: VecDeque::from([(0, vec![0xc3]), (100, vec![0xbc]), (200, vec![b'\n'])]),
            now: 0,
        });
        let mut seen = Seen::default();
        assert_eq!(reader.line(Pace::KeyByKey, &mut seen), line("ü"));
        assert_eq!(seen.text, "ü");
    }

    #[test]
    fn bytes_that_are_no_character_belong_to_no_answer() {
        for (bytes, is_one) in [
            (&b"\xc3"[..], true),
            (b"\xff", true),
            (b"\xff\xff", false),
            (b"y\xc3", false),
        ] {
            assert_eq!(is_one_key(bytes), is_one, "{bytes:?}");
        }
        for (keys, expected) in [
            (&[&b"\xff"[..], b"a", b"b", b"c", b"y", b"\n"][..], line("y")),
            // It is no refusal, which would begin with `n`.
            (&[b"\xc3", b"no"], pasted("no")),
        ] {
            let keys = keys.iter().zip(0..).map(|(key, at)| (at * 100, key.to_vec()));
            let mut reader = KeyReader::new(Script {
                keys: keys.collect(),
                now: 0,
            });
            assert_eq!(reader.line(Pace::KeyByKey, &mut Seen::default()), expected);
        }
    }

    #[test]
    fn paste_without_an_end_ends_at_its_maximum_size() {
        let flood = "x".repeat(MAX_TYPED);
        let mut reader = Script::reader(&[(0, "\u{1b}[200~"), (100, &flood)]);
        let typed = reader.line(Pace::KeyByKey, &mut Seen::default());
        assert_eq!(typed, pasted(&flood[PASTE.0.len()..]));
    }

    /// Drains, and returns the time of the end, in ms, and the input set aside.
    fn drained(keys: &[(u64, &str)], reading: Duration) -> (u64, String, usize) {
        let mut reader = Script::reader(keys);
        let mut seen = Seen::default();
        let (text, end) = reader.drain(reading, &mut seen);
        assert_eq!(end, None);
        (reader.source.now, text, seen.early)
    }

    #[test]
    fn prompt_appears_after_time_without_key() {
        let (quiet, after) = (500, 1_000);
        assert_eq!(drained(&[], Duration::ZERO), (quiet, String::new(), 0));
        assert_eq!(drained(&[], Duration::from_secs(2)), (2_000, String::new(), 0));
        // A key at the last moment, and one that is too late to be early.
        let (end, text, early) = drained(&[(quiet, "y")], Duration::ZERO);
        assert_eq!((end, text.as_str(), early), (quiet + after, "y", 1));
        let (end, text, early) = drained(&[(quiet + 1, "y")], Duration::ZERO);
        assert_eq!((end, text.as_str(), early), (quiet, "", 0));
    }

    #[test]
    fn continuous_keys_never_end_the_wait() {
        for interval in [10, 300, 999] {
            let keys: Vec<(u64, &str)> = (0..200)
                .map(|i| (i * interval, if i % 2 == 0 { "y" } else { "\n" }))
                .collect();
            let (end, text, early) = drained(&keys, Duration::ZERO);
            assert_eq!(text, "y\n".repeat(100));
            assert_eq!(early, 1, "the user is notified once");
            assert!(end >= 199 * interval + 1_000, "{interval}: {end}");
        }
    }

    #[test]
    fn flood_is_set_aside_up_to_maximum_size() {
        let flood = "x".repeat(MAX_TYPED);
        for more in [&[][..], &[(100, "y")]] {
            let keys: Vec<(u64, &str)> = [&[(0, &*flood)], more].concat();
            let (_, text, _) = drained(&keys, Duration::ZERO);
            assert_eq!(text.len(), MAX_TYPED);
        }
        let keys: Vec<(u64, &str)> = (0..100_000).map(|i| (i * 10, "y")).collect();
        let typed = Script::reader(&keys).line(Pace::KeyByKey, &mut Seen::default());
        assert_eq!(typed, pasted(&"y".repeat(MAX_TYPED)));
    }

    #[test]
    fn withdrawn_wait_ends() {
        let keys: Vec<(u64, &str)> = (0..10_000).map(|i| (i * 100, "y")).collect();
        let mut seen = Seen {
            looks: 5,
            ..Seen::default()
        };
        let (_, end) = Script::reader(&keys).drain(Duration::ZERO, &mut seen);
        assert_eq!(end, Some(Typed::Withdrawn));
    }

    #[test]
    fn early_input_is_kept_as_text() {
        assert_eq!(
            as_text(b"\x1b[200~go on\rplease\x1b[201~\x04\x00"),
            "go on\nplease"
        );
    }
}
