//! What the user types while a question stands on the terminal, and what was typed before it stood there.
//!
//! A terminal keeps what is typed until somebody reads it. Whoever reads an answer from it could get what was meant for
//! something else: the rest of a sentence, a line that was typed too early, a clipboard. So a question reads everything
//! that is there and sets it aside, and goes on with that until no key is pressed for [`QUIET`]; only then it asks. A
//! paste never answers. What was set aside is kept for the next prompt ([`Console::take_typed`](crate::ui::render::Console)).

use std::time::{Duration, Instant};

/// Time without a key after which what is typed counts as an answer: longer than between two letters of a word, shorter
/// than it takes to read a question.
pub(crate) const QUIET: Duration = Duration::from_millis(250);

/// Most that is set aside for the next prompt, in bytes.
pub(crate) const MAX_TYPED: usize = 64 << 10;

/// Most bytes that come at once from a key and the one for the end of the line. More at once is a paste.
pub(crate) const MAX_KEYS: usize = 4;

/// Begins and ends a paste (xterm, bracketed paste).
#[cfg(unix)]
const PASTE: (&[u8], &[u8]) = (b"\x1b[200~", b"\x1b[201~");

/// What came from the keyboard.
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
    /// The size of the terminal is another one.
    Resized,
}

/// What happens while a line is waited for.
pub(crate) trait Watch {
    /// Whether waiting ends, and how.
    fn ends(&mut self) -> Option<Typed>;
    /// Shows a character that was typed; `None` takes the last one back.
    fn echo(&mut self, c: Option<char>);
}

/// A line in the making.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// Bytes of a character that is not complete.
    partial: Vec<u8>,
}

impl Line {
    /// Takes bytes that came at once; `most` of them are still typed by hand. Says what they make, if they end the line.
    fn take(&mut self, bytes: &[u8], most: usize, watch: &mut dyn Watch) -> Option<Typed> {
        let end = bytes.iter().position(|b| matches!(b, b'\n' | b'\r'));
        // An arrow key and the like.
        if bytes.first() == Some(&0x1b) && end.is_none() {
            return None;
        }
        let is_several = end.is_some_and(|end| end + 1 < bytes.len());
        if is_several || bytes.len() > most {
            let before = std::mem::take(&mut self.text);
            return Some(Typed::Pasted(before + &String::from_utf8_lossy(bytes)));
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

/// What was typed, without what is no text, so that it can stand in a prompt.
pub(crate) fn as_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes)
        .replace("\x1b[200~", "")
        .replace("\x1b[201~", "")
        .replace('\r', "\n");
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

#[cfg(unix)]
pub(crate) use unix::{Keyboard, restore};

#[cfg(unix)]
mod unix {
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

    use super::{Duration, Instant, Line, PASTE, QUIET, Typed, Watch, as_text};

    /// How often it is looked whether somebody still waits.
    const TICK: Duration = Duration::from_millis(50);

    /// How the terminal was before a question changed it.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Standard input while a question stands on the terminal: keys come one by one and are not echoed. Ctrl-C still makes
    /// a signal. Dropping it makes the terminal what it was.
    pub(crate) struct Keyboard {
        /// Bytes of a paste that is not complete.
        paste: Option<Vec<u8>>,
    }

    /// Makes the terminal what it was before a question, where the process ends in the middle of one.
    pub(crate) fn restore() {
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
        }
    }

    impl Drop for Keyboard {
        fn drop(&mut self) {
            restore();
        }
    }

    impl Keyboard {
        /// Takes the terminal over.
        ///
        /// # Errors
        /// When standard input is no terminal.
        pub(crate) fn open() -> io::Result<Self> {
            let before = tcgetattr(io::stdin())?;
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL;
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            BEFORE
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(before);
            // Now, and without throwing away what was typed.
            tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
            Ok(Self { paste: None })
        }

        /// Everything that was typed, until nothing more comes for [`QUIET`] and `earliest` is past.
        pub(crate) fn drain(&mut self, earliest: Instant, watch: &mut dyn Watch) -> (String, Option<Typed>) {
            let mut typed = Vec::new();
            let mut last = Instant::now();
            loop {
                if let Some(end) = watch.ends() {
                    return (as_text(&typed), Some(end));
                }
                match read() {
                    Ok(Some(bytes)) if bytes.is_empty() => return (as_text(&typed), Some(Typed::End)),
                    Ok(Some(bytes)) => {
                        typed.extend(bytes);
                        last = Instant::now();
                    }
                    Ok(None) => {
                        let now = Instant::now();
                        if now >= earliest && now.duration_since(last) >= QUIET {
                            return (as_text(&typed), None);
                        }
                    }
                    Err(_) => return (as_text(&typed), Some(Typed::End)),
                }
            }
        }

        /// A line. More than `most` bytes at once are a paste.
        pub(crate) fn line(&mut self, most: usize, watch: &mut dyn Watch) -> Typed {
            let mut line = Line::default();
            loop {
                if let Some(end) = watch.ends() {
                    return end;
                }
                let bytes = match read() {
                    Ok(Some(bytes)) if bytes.is_empty() => return Typed::End,
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => continue,
                    Err(_) => return Typed::End,
                };
                if let Some(mut paste) = self.paste.take() {
                    paste.extend(bytes);
                    if !contains(&paste, PASTE.1) {
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
                if let Some(typed) = line.take(&bytes, most, watch) {
                    return typed;
                }
            }
        }
    }

    fn contains(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    /// What came at once; nothing after [`TICK`], and no bytes at the end of input.
    fn read() -> io::Result<Option<Vec<u8>>> {
        let stdin = io::stdin();
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(TICK.subsec_nanos()),
        };
        let ready = match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&tick)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if ready == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; 4096];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(unix))]
pub(crate) use other::{Keyboard, restore};

/// Where keys cannot be read one by one, a line is read, and nothing can be set aside.
#[cfg(not(unix))]
mod other {
    use std::io;

    use super::{Instant, Typed, Watch};

    pub(crate) struct Keyboard;

    pub(crate) fn restore() {}

    impl Keyboard {
        pub(crate) fn open() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn drain(&mut self, _: Instant, _: &mut dyn Watch) -> (String, Option<Typed>) {
            (String::new(), None)
        }

        pub(crate) fn line(&mut self, _: usize, _: &mut dyn Watch) -> Typed {
            let mut line = String::new();
            match io::stdin().read_line(&mut line) {
                Ok(length) if length > 0 => Typed::Line(line.trim_end_matches(['\r', '\n']).to_owned()),
                _ => Typed::End,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(String);

    impl Watch for Seen {
        fn ends(&mut self) -> Option<Typed> {
            None
        }

        fn echo(&mut self, c: Option<char>) {
            match c {
                Some(c) => self.0.push(c),
                None => drop(self.0.pop()),
            }
        }
    }

    fn typed(chunks: &[&str]) -> Option<Typed> {
        let (mut line, mut seen) = (Line::default(), Seen::default());
        chunks
            .iter()
            .find_map(|chunk| line.take(chunk.as_bytes(), MAX_KEYS, &mut seen))
    }

    #[test]
    fn a_line_is_typed_key_by_key_and_a_paste_is_none() {
        let line = |text: &str| Some(Typed::Line(text.into()));
        let pasted = |text: &str| Some(Typed::Pasted(text.into()));
        for (chunks, expected) in [
            (&["y", "\n"][..], line("y")),
            (&["y\n"], line("y")),
            (&["yes\n"], line("yes")),
            (&["yes!\n"], pasted("yes!\n")),
            (&["y\ny"], pasted("y\ny")),
            (&["y\n\n"], pasted("y\n\n")),
            (&["x", "\u{7f}", "n", "\r"], line("n")),
            (&["abc", "\u{15}", "y", "\n"], line("y")),
            (&["\u{1b}[A", "y", "\n"], line("y")),
            (&["\u{4}"], Some(Typed::End)),
            (&["y", "\u{4}", "\n"], line("y")),
            (&["ü", "\n"], line("ü")),
        ] {
            assert_eq!(typed(chunks), expected, "{chunks:?}");
        }
        let (mut line, mut seen) = (Line::default(), Seen::default());
        assert_eq!(line.take(&"ü".as_bytes()[..1], 4, &mut seen), None);
        assert_eq!(line.take(&"ü".as_bytes()[1..], 4, &mut seen), None);
        assert_eq!((line.text.as_str(), seen.0.as_str()), ("ü", "ü"));
    }

    #[test]
    fn what_is_set_aside_is_text() {
        assert_eq!(
            as_text(b"\x1b[200~go on\rplease\x1b[201~\x04\x00"),
            "go on\nplease"
        );
    }
}
