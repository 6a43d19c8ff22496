//! Formatting of doc comments for models.

/// Joins the lines of a paragraph, because line breaks of a wrapped comment are not significant. Lists, tables, code
/// and empty lines are kept.
pub(crate) fn reflow(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_code = false;
    let mut may_join = false;
    for line in text.trim().lines() {
        let line = line.trim_end();
        let is_fence = line.trim_start().starts_with("```");
        let is_text = !in_code
            && !is_fence
            && !line.is_empty()
            && !line.starts_with("    ")
            && !starts_block(line.trim_start());
        if !out.is_empty() {
            out.push(if may_join && is_text { ' ' } else { '\n' });
        }
        out.push_str(if may_join && is_text {
            line.trim_start()
        } else {
            line
        });
        in_code ^= is_fence;
        // A wrapped list item is continued like text.
        may_join = !in_code && !is_fence && !line.is_empty() && !line.starts_with(['#', '|']);
    }
    out
}

/// True if a line starts a block: a list item, heading, table row or quotation.
fn starts_block(line: &str) -> bool {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    line.starts_with(['#', '|', '>'])
        || ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
        || (digits > 0 && line[digits..].starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_and_other_blocks_kept() {
        assert_eq!(reflow("One\ntwo.\n\nThree\nfour."), "One two.\n\nThree four.");
        assert_eq!(
            reflow("List:\n- one\n  more\n- two\n1. three"),
            "List:\n- one more\n- two\n1. three"
        );
        assert_eq!(reflow("```\na\nb\n```\nc\nd"), "```\na\nb\n```\nc d");
        assert_eq!(reflow("# Head\ntext\n|a|\n|b|"), "# Head\ntext\n|a|\n|b|");
        assert_eq!(reflow(""), "");
    }
}
