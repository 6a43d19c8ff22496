//! The tool `text_diff`.

use std::time::Duration;

use similar::TextDiff;
use toolcell_sdk::{Result, ToolError, tool};

use crate::source::Source;

/// Maximum size of a text, in bytes: two of them and the comparison fit a small cell.
const MAX_TEXT: u64 = 8 << 20;

/// Maximum size of a diff, in bytes; the rest is left out with a marker.
const MAX_DIFF: usize = 200_000;

/// Time after which the comparison becomes less thorough. The diff stays correct.
const CAREFUL: Duration = Duration::from_secs(5);

/// Compare two texts or text files line by line; the answer is a unified diff.
///
/// Give `old_text` or `old_path`, and `new_text` or `new_path`.
#[tool(title = "Compare texts", read_only, idempotent)]
pub(crate) fn text_diff(
    /// The old text.
    #[alias("old", "old_string")]
    old_text: Option<String>,
    /// Path of a file with the old text.
    #[format("path")]
    #[alias("old_file")]
    old_path: Option<String>,
    /// The new text.
    #[alias("new", "new_string")]
    new_text: Option<String>,
    /// Path of a file with the new text.
    #[format("path")]
    #[alias("new_file")]
    new_path: Option<String>,
    /// Unchanged lines shown around each change.
    #[default(3)]
    context: u16,
) -> Result<String> {
    let old = Source::one_of(old_text, old_path, ["old_text", "old_path"])?;
    let new = Source::one_of(new_text, new_path, ["new_text", "new_path"])?;
    let labels = [old.label("old"), new.label("new")];
    let [old, new] = [old.read(MAX_TEXT)?, new.read(MAX_TEXT)?];
    if old.len().max(new.len()) as u64 > MAX_TEXT {
        return Err(ToolError::invalid(format_args!(
            "a text is longer than {MAX_TEXT} bytes"
        )));
    }
    if old == new {
        return Ok("The texts are equal.".into());
    }
    let diff = TextDiff::configure().timeout(CAREFUL).diff_lines(&old, &new);
    let mut text = diff
        .unified_diff()
        .context_radius(context.into())
        .header(&labels[0], &labels[1])
        .to_string();
    if text.len() > MAX_DIFF {
        let end = text.floor_char_boundary(MAX_DIFF);
        let end = text[..end].rfind('\n').map_or(end, |at| at + 1);
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("[{left_out} more bytes of the diff are left out]\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::testing;

    fn diff(old: &str, new: &str) -> String {
        testing::call::<text_diff>(json!({"old_text": old, "new_text": new}))
            .unwrap()
            .to_text()
    }

    #[test]
    fn change_is_shown_as_a_unified_diff() {
        assert_eq!(
            diff("a\nb\nc\n", "a\nB\nc\n"),
            "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
        );
    }

    #[test]
    fn missing_line_end_and_equal_texts_are_reported() {
        assert!(diff("a\n", "a").contains("\\ No newline at end of file"));
        assert_eq!(diff("a", "a"), "The texts are equal.");
        assert_eq!(diff("", ""), "The texts are equal.");
    }

    #[test]
    fn long_diff_is_cut_at_a_line() {
        let text = diff("", &"some words\n".repeat(100_000));
        assert!(text.len() < MAX_DIFF + 100, "{}", text.len());
        assert!(text.ends_with("more bytes of the diff are left out]\n"));
    }

    #[test]
    fn files_are_named_in_the_diff() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "a\n").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let text = text_diff(None, Some(path.clone()), Some("b\n".into()), None, 0).unwrap();
        assert_eq!(text, format!("--- {path}\n+++ new\n@@ -1 +1 @@\n-a\n+b\n"));
    }
}
