//! Rendering of tool results, and of arguments on one line.

use std::io::{self, Write};

use serde_json::Value;
use toolcell_core::{Blob, Content};

use crate::config::units::Bytes;
use crate::ui::terminal::{FAINT, Screen, Text, text};

/// Maximum length of arguments or a result on one line, in characters.
const MAX_LINE: usize = 240;

/// Writes all parts of a result that a terminal can show.
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

/// Describes a part that a terminal cannot show.
fn describe(part: &Content) -> String {
    match part {
        Content::Text { text } => text.clone(),
        Content::Blob(blob) => format!(
            "[{}, {}; --json prints the bytes]",
            blob.media_type,
            Bytes(blob.data.len() as u64)
        ),
        Content::Link(link) => format!("[{}: {}]", link.name, link.uri),
    }
}

/// Tells that the model sent a file, which a terminal cannot show.
pub(crate) fn file_of_model(blob: &Blob) -> Text {
    text!(
        "the model sent a file: `{}`, {}",
        blob.media_type,
        Bytes(blob.data.len() as u64)
    )
}

/// Returns the first line of a result, and the amount of the rest.
pub(crate) fn summary(content: &[Content]) -> String {
    let Some(first) = content.first() else {
        return "(empty result)".into();
    };
    let text = describe(first);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = cut(lines.next().unwrap_or("(empty result)").trim_end());
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

/// Formats arguments as compact JSON, truncated with a marker.
pub(crate) fn arguments(arguments: &Value) -> String {
    match arguments {
        // Invalid JSON from the model is shown as its text.
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
    use toolcell_core::Link;

    #[test]
    fn summary_is_first_line_and_count_of_rest() {
        let text = |text: &str| Content::text(text);
        for (content, shown) in [
            (vec![], "(empty result)"),
            (vec![text("")], "(empty result)"),
            (vec![text("one")], "one"),
            (vec![text("\none\ntwo\n\nthree")], "one  +2 lines"),
            (vec![text("one"), text("two")], "one  +1 part"),
            (
                vec![Content::Blob(Blob {
                    media_type: "image/png".into(),
                    data: vec![0; 2048],
                })],
                "[image/png, 2 KiB; --json prints the bytes]",
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
    fn long_line_is_truncated_with_marker() {
        let edge = "é".repeat(MAX_LINE);
        assert_eq!(cut(&edge), edge);
        assert_eq!(cut(&format!("{edge}xy")), format!("{edge}… (+2 characters)"));
    }
}
