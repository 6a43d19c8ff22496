//! JSON on standard output: the result of `--json` and each event line.
//!
//! Its values come from tools, models and projects, and the output may be a terminal. Characters that a terminal
//! executes, hides or reorders are written as `\\uXXXX`, which every JSON parser reads as the same value. On a terminal,
//! lines wrap behind the gutter, so that no value appears at the start of a line. Elsewhere the text is written while it
//! is made: escaped, the output of a tool has six times its size, and it is there twice if it is structured.

use std::io::{self, Write};

use serde::Serialize;
use toolcell_core::inert::JsonEscaper;

use super::Console;
use crate::ui::terminal::Screen;

/// Size of a piece that is written to an output other than a terminal, in bytes.
const PIECE: usize = 64 << 10;

/// Prints a value on one line.
pub(crate) fn print_line(console: &Console, value: &impl Serialize) -> io::Result<()> {
    console.write(|s| write_line(&mut s.out, |writer| Ok(serde_json::to_writer(writer, value)?)))
}

/// Prints a value on several lines, indented.
pub(crate) fn print_pretty(console: &Console, value: &impl Serialize) -> io::Result<()> {
    console.write(|s| {
        write_line(&mut s.out, |writer| {
            Ok(serde_json::to_writer_pretty(writer, value)?)
        })
    })
}

/// Prints serialized JSON and a line end.
pub(crate) fn print(console: &Console, json: &str) -> io::Result<()> {
    console.write(|s| write_line(&mut s.out, |writer| writer.write_all(json.as_bytes())))
}

fn write_line<W: Write>(
    screen: &mut Screen<W>,
    write: impl FnOnce(&mut JsonWriter<'_, W>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = JsonWriter {
        screen,
        escaper: JsonEscaper::default(),
        pending: Vec::new(),
    };
    write(&mut writer)?;
    writer.finish()?;
    screen.end_line()?;
    screen.flush()
}

/// Writes serialized JSON, in UTF-8, to a screen.
struct JsonWriter<'a, W> {
    screen: &'a mut Screen<W>,
    escaper: JsonEscaper,
    pending: Vec<u8>,
}

impl<W: Write> JsonWriter<'_, W> {
    /// Takes the characters that are complete.
    fn take(&mut self) -> String {
        let end = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.pending.split_off(end);
        let bytes = std::mem::replace(&mut self.pending, rest);
        self.escaper.push(&String::from_utf8_lossy(&bytes))
    }

    fn finish(mut self) -> io::Result<()> {
        let text = self.take();
        match self.screen.size() {
            Some(_) => self.screen.data(&text),
            None => self.screen.inner().write_all(text.as_bytes()),
        }
    }
}

impl<W: Write> Write for JsonWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE && self.screen.size().is_none() {
            let text = self.take();
            self.screen.inner().write_all(text.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::Size;

    /// Counts bytes, and the longest piece.
    #[derive(Default)]
    struct Pieces {
        text: Vec<u8>,
        longest: usize,
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text.extend_from_slice(bytes);
            self.longest = self.longest.max(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn large_json_is_written_in_pieces() {
        let value = "\u{1}e\u{301}\u{202e}日👩".repeat(100_000);
        let mut screen = Screen::new(Pieces::default(), false, Size::NONE);
        write_line(&mut screen, |writer| Ok(serde_json::to_writer(writer, &value)?)).unwrap();
        let Pieces { text, longest } = std::mem::take(screen.inner());
        assert_eq!(serde_json::from_slice::<String>(&text).unwrap(), value);
        assert!(!text.windows(3).any(|bytes| bytes == "\u{202e}".as_bytes()));
        // An escape has six bytes for a character of two or more.
        assert!(longest <= 4 * PIECE, "{longest} of {}", text.len());
    }
}
