//! The answer of a tool, and arguments on one line.

use std::io::{self, Write};

use serde_json::Value;
use toolcell_core::Content;

use crate::config::units::Bytes;
use crate::ui::terminal::{FAINT, Screen};

/// Most characters of arguments or of a result on one line.
const MAX_LINE: usize = 240;

/// Writes all parts of an answer, as far as a terminal can show them.
pub(crate) fn write<W: Write>(screen: &mut Screen<W>, content: &[Content]) -> io::Result<()> {
    for part in content {
        match part {
            Content::Text { text } => {
                screen.data(text)?;
                if !text.ends_with('\n') || screen.size().is_some() {
                    screen.end_line()?;
                }
            }
            other => {
                screen.styled(FAINT, describe(other))?;
                screen.end_line()?;
            }
        }
    }
    screen.flush()
}

/// What a part is, where it cannot be shown.
fn describe(part: &Content) -> String {
    match part {
        Content::Text { text } => text.clone(),
        Content::Blob(blob) => format!(
            "[{}, {}; --json holds the bytes]",
            blob.media_type,
            Bytes(blob.data.len() as u64)
        ),
        Content::Link(link) => format!("[{}: {}]", link.name, link.uri),
    }
}

/// The first line of an answer, and how much more there is.
pub(crate) fn summary(content: &[Content]) -> String {
    let Some(first) = content.first() else {
        return "(an empty answer)".into();
    };
    let text = describe(first);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = cut(lines.next().unwrap_or("(an empty answer)").trim_end());
    let more = lines.count();
    let mut parts = vec![line];
    if more > 0 {
        parts.push(format!("+{more} {}", if more == 1 { "line" } else { "lines" }));
    }
    if content.len() > 1 {
        parts.push(format!(
            "+{} {}",
            content.len() - 1,
            if content.len() == 2 { "part" } else { "parts" }
        ));
    }
    parts.join("  ")
}

/// Arguments as compact JSON, cut with a mark.
pub(crate) fn arguments(arguments: &Value) -> String {
    match arguments {
        // What the model wrote is no JSON: its own words.
        Value::String(text) => cut(text),
        other => cut(&other.to_string()),
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}… (+{} characters)", &line[..end], line[end..].chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::{Blob, Link};

    #[test]
    fn a_summary_is_the_first_line_and_how_much_more_there_is() {
        let text = |text: &str| Content::text(text);
        for (content, shown) in [
            (vec![], "(an empty answer)"),
            (vec![text("")], "(an empty answer)"),
            (vec![text("one")], "one"),
            (vec![text("\none\ntwo\n\nthree")], "one  +2 lines"),
            (vec![text("one"), text("two")], "one  +1 part"),
            (
                vec![Content::Blob(Blob {
                    media_type: "image/png".into(),
                    data: vec![0; 2048],
                })],
                "[image/png, 2 KiB; --json holds the bytes]",
            ),
            (
                vec![Content::Link(Link {
                    uri: "https://a".into(),
                    name: "A".into(),
                    media_type: None,
                })],
                "[A: https://a]",
            ),
        ] {
            assert_eq!(summary(&content), shown);
        }
    }

    #[test]
    fn a_long_line_is_cut_with_a_mark_and_a_short_one_is_not() {
        let edge = "é".repeat(MAX_LINE);
        assert_eq!(cut(&edge), edge);
        assert_eq!(cut(&format!("{edge}xy")), format!("{edge}… (+2 characters)"));
    }
}
