//! Text that is typed while a question stands on the terminal, and text that was typed before.
//!
//! A terminal keeps what is typed until a program reads it. A program that reads an answer from it could get what was meant
//! for something else: the rest of a sentence, a line that was typed too early, a clipboard. Nothing that began before the
//! question stood there answers it:
//!
//! - Everything that is there is read and set aside, until no key is pressed for [`QUIET`]; only then the prompt appears.
//! - After the prompt each key has to come by itself, and so has Enter: what comes with less than [`BURST_GAP`] in between
//!   came at once, as a paste does, and answers nothing.
//! - Once anything was set aside, further keys may belong to it, however slowly they come. Then the question waits for
//!   [`QUIET_AFTER_KEYS`], and an answer has to contain digits that appear with the prompt
//!   ([`Asking`](super::question::Asking)).

use std::io;
use std::time::Duration;

/// Time without a key after which the prompt appears: longer than between two letters of a word, shorter than it takes to
/// read a question.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

/// The same once a key was pressed before the prompt: longer than a slow typist takes for one.
pub(crate) const QUIET_AFTER_KEYS: Duration = Duration::from_secs(1);

/// Bytes with less time in between came at once. Nobody presses two keys within it, and a terminal that is far away
/// delivers a paste within it.
pub(crate) const BURST_GAP: Duration = Duration::from_millis(30);

/// Interval at which a wait looks whether it still has a purpose.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Maximum of what is set aside for the next prompt, in bytes.
pub(crate) const MAX_TYPED: usize = 64 << 10;

/// Maximum of what may come at once where a line of text is asked for, in bytes. More is a paste.
pub(crate) const MAX_LINE_AT_ONCE: usize = 256;

/// Begins and ends a paste (xterm, bracketed paste).
const PASTE: (&[u8], &[u8]) = (b"\x1b[200~", b"\x1b[201~");

/// Input from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line that was typed.
    Line(String),
    /// Text that came at once: a paste, or keys from before.
    Pasted(String),
    /// The end of input: Ctrl-D on an empty line, or the terminal is gone.
    End,
    /// Nobody waits for it any more.
    Withdrawn,
    /// The question has to be drawn again: the terminal has another size, or the process was stopped and continues.
    Redraw,
}

/// Keys of a line that may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each key by itself.
    KeyByKey,
    /// Up to [`MAX_LINE_AT_ONCE`] bytes, with Enter at their end or without.
    Line,
}

/// Events while a line is waited for.
pub(crate) trait Watch {
    /// Whether waiting ends, and how.
    fn ends(&mut self) -> Option<Typed>;
    /// Hears that a key was pressed before the prompt.
    fn early(&mut self);
    /// Shows a character that was typed; `None` takes the last one back.
    fn echo(&mut self, c: Option<char>);
}

/// A source of bytes from a keyboard, and its clock.
pub(crate) trait KeySource {
    /// The bytes that are there, or come within `time`: `None` if none do, and no bytes at the end of input.
    fn read(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>>;
    /// Time since some moment in the past.
    fn now(&self) -> Duration;
}

/// Reads answers from a keyboard.
#[derive(Debug)]
pub(crate) struct KeyReader<S> {
    source: S,
    /// Bytes of a paste that is not complete.
    paste: Option<Vec<u8>>,
}

impl<S: KeySource> KeyReader<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, paste: None }
    }

    /// Everything that is typed until no key is pressed any more, at least for the time of `reading`.
    pub(crate) fn drain(&mut self, reading: Duration, watch: &mut dyn Watch) -> (String, Option<Typed>) {
        let start = self.source.now();
        let (mut last, mut quiet) = (start, QUIET);
        let mut typed = Vec::new();
        let end = loop {
            if let Some(end) = watch.ends() {
                break Some(end);
            }
            match self.source.read(TICK) {
                Ok(Some(bytes)) if !bytes.is_empty() => {
                    if quiet != QUIET_AFTER_KEYS {
                        watch.early();
                    }
                    // The rest of a flood goes nowhere.
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

    /// A line.
    pub(crate) fn line(&mut self, pace: Pace, watch: &mut dyn Watch) -> Typed {
        let mut line = Line::default();
        loop {
            if let Some(end) = watch.ends() {
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
            if let Some(typed) = line.take(&bytes, pace, watch) {
                return typed;
            }
        }
    }

    /// Bytes, and all that come at once with them.
    fn burst(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        while bytes.len() < MAX_TYPED {
            match self.source.read(BURST_GAP) {
                Ok(Some(more)) if !more.is_empty() => bytes.extend(more),
                // The end of input is seen again by whoever reads next.
                _ => break,
            }
        }
        bytes
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A line in the making.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// Bytes of a character that is not complete.
    partial: Vec<u8>,
}

impl Line {
    /// Takes bytes that came at once. Returns what they make, if they end the line.
    fn take(&mut self, bytes: &[u8], pace: Pace, watch: &mut dyn Watch) -> Option<Typed> {
        let end = bytes.iter().position(|b| matches!(b, b'\n' | b'\r'));
        // An arrow key and the like.
        if bytes.first() == Some(&0x1b) && end.is_none() {
            return None;
        }
        let is_typed = match pace {
            Pace::KeyByKey => is_one_key(bytes),
            Pace::Line => bytes.len() <= MAX_LINE_AT_ONCE && end.is_none_or(|end| end + 1 == bytes.len()),
        };
        if !is_typed {
            let before = std::mem::take(&mut self.text);
            return Some(Typed::Pasted(before + &as_text(bytes)));
        }
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => return Some(Typed::Line(std::mem::take(&mut self.text))),
                // Ctrl-D, Ctrl-C where it makes no signal.
                0x03 | 0x04 if self.text.is_empty() => return Some(Typed::End),
                // Backspace, Ctrl-H.
                0x7f | 0x08 => {
                    if self.text.pop().is_some() {
                        watch.echo(None);
                    }
                }
                // Ctrl-U.
                0x15 => {
                    while self.text.pop().is_some() {
                        watch.echo(None);
                    }
                }
                0x00..=0x1f => {}
                byte => {
                    self.partial.push(*byte);
                    self.take_partial(watch);
                }
            }
        }
        None
    }

    fn take_partial(&mut self, watch: &mut dyn Watch) {
        let Ok(text) = std::str::from_utf8(&self.partial) else {
            if self.partial.len() >= 4 {
                self.partial.clear();
            }
            return;
        };
        for c in text.chars().filter(|c| !c.is_control()) {
            self.text.push(c);
            watch.echo(Some(c));
        }
        self.partial.clear();
    }
}

/// Whether bytes are those of one key.
fn is_one_key(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().count() == 1,
        // A part of one character.
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none_or(|_| bytes.len() == 1),
    }
}

/// The text among bytes that were typed, so that it can stand in a prompt.
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

    /// Keys that are pressed at given moments, in ms, on a clock that advances by reading alone.
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
                    // A terminal gives all that is there.
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

    /// What a line shows, and how many times keys were early. Waiting ends after so many looks.
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

    impl Watch for Seen {
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
    fn an_answer_is_typed_key_by_key() {
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
            (&[(0, "y"), (100, "\u{4}"), (200, "\n")], line("y")),
            (&[(0, "ü"), (100, "\n")], line("ü")),
            (&[(0, "y\n")], pasted("y\n")),
            (&[(0, "y"), (0, "\n")], pasted("y\n")),
            (&[(0, "\n\n")], pasted("\n\n")),
            (&[(0, "y"), (100, "\ny")], pasted("y\ny")),
            (&[(0, "yes"), (100, "\n")], pasted("yes")),
            (&[(0, "\u{1b}[200~y\n\u{1b}[201~")], pasted("y\n")),
            (&[(0, "\u{1b}[200~y\n"), (500, "\u{1b}[201~")], pasted("y\n")),
        ] {
            let typed = Script::reader(keys).line(Pace::KeyByKey, &mut Seen::default());
            assert_eq!(typed, expected, "{keys:?}");
        }
    }

    #[test]
    fn keys_come_at_once_up_to_a_gap_and_by_themselves_beyond() {
        let gap = u64::try_from(BURST_GAP.as_millis()).unwrap();
        for (at, expected) in [(gap, pasted("y\n")), (gap + 1, line("y"))] {
            let mut reader = Script::reader(&[(100, "y"), (100 + at, "\n")]);
            assert_eq!(reader.line(Pace::KeyByKey, &mut Seen::default()), expected);
        }
    }

    #[test]
    fn a_line_of_text_comes_at_once_up_to_a_length() {
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
    fn a_character_may_come_in_parts() {
        let mut reader = KeyReader::new(Script {
            keys: VecDeque::from([(0, vec![0xc3]), (100, vec![0xbc]), (200, vec![b'\n'])]),
            now: 0,
        });
        let mut seen = Seen::default();
        assert_eq!(reader.line(Pace::KeyByKey, &mut seen), line("ü"));
        assert_eq!(seen.text, "ü");
    }

    /// Drains, and says when that ended, in ms, and what was set aside.
    fn drained(keys: &[(u64, &str)], reading: Duration) -> (u64, String, usize) {
        let mut reader = Script::reader(keys);
        let mut seen = Seen::default();
        let (text, end) = reader.drain(reading, &mut seen);
        assert_eq!(end, None);
        (reader.source.now, text, seen.early)
    }

    #[test]
    fn the_prompt_appears_after_a_time_without_a_key() {
        let (quiet, after) = (500, 1_000);
        assert_eq!(drained(&[], Duration::ZERO), (quiet, String::new(), 0));
        assert_eq!(drained(&[], Duration::from_secs(2)), (2_000, String::new(), 0));
        // A key on the last moment, and one that is too late to be early.
        let (end, text, early) = drained(&[(quiet, "y")], Duration::ZERO);
        assert_eq!((end, text.as_str(), early), (quiet + after, "y", 1));
        let (end, text, early) = drained(&[(quiet + 1, "y")], Duration::ZERO);
        assert_eq!((end, text.as_str(), early), (quiet, "", 0));
    }

    #[test]
    fn keys_that_keep_coming_never_end_the_wait() {
        for interval in [10, 300, 999] {
            let keys: Vec<(u64, &str)> = (0..200)
                .map(|i| (i * interval, if i % 2 == 0 { "y" } else { "\n" }))
                .collect();
            let (end, text, early) = drained(&keys, Duration::ZERO);
            assert_eq!(text, "y\n".repeat(100));
            assert_eq!(early, 1, "the user is told once");
            assert!(end >= 199 * interval + 1_000, "{interval}: {end}");
        }
    }

    #[test]
    fn a_flood_is_set_aside_up_to_a_size() {
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
    fn a_wait_ends_when_nobody_waits() {
        let keys: Vec<(u64, &str)> = (0..10_000).map(|i| (i * 100, "y")).collect();
        let mut seen = Seen {
            looks: 5,
            ..Seen::default()
        };
        let (_, end) = Script::reader(&keys).drain(Duration::ZERO, &mut seen);
        assert_eq!(end, Some(Typed::Withdrawn));
    }

    #[test]
    fn what_is_set_aside_is_text() {
        assert_eq!(
            as_text(b"\x1b[200~go on\rplease\x1b[201~\x04\x00"),
            "go on\nplease"
        );
    }
}
