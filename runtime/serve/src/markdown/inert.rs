//! Text without characters that hide or reorder it.

use toolcell_core::inert::{MAX_MARKS, has_no_glyph, is_hidden, is_mark};

use super::tree::{Node, Tag};

/// Appends a text to `nodes`. Characters that control, hide or reorder text, and marks without a base or beyond
/// [`MAX_MARKS`], become elements with their names, and text with their names after `most` elements. Joiners are kept between
/// characters that scripts or emoji join. Returns the number of added nodes.
pub(super) fn push_text(nodes: &mut Vec<Node>, text: &str, most: usize) -> usize {
    let before = nodes.len();
    let mut plain = String::with_capacity(text.len());
    let mut marks = 0;
    let mut previous: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        marks = if is_mark(character) { marks + 1 } else { 0 };
        let is_joined = || previous.is_some_and(joins) && next.is_some_and(joins);
        let is_shown = match character {
            '\n' | '\t' => true,
            '\u{200c}' | '\u{200d}' => is_joined(),
            '\u{fe0e}' | '\u{fe0f}' => previous.is_some_and(has_variants),
            other if other.is_control() || is_hidden(other) || has_no_glyph(other) => false,
            other if is_mark(other) => {
                marks <= MAX_MARKS && previous.is_some_and(|base| !base.is_whitespace())
            }
            _ => true,
        };
        previous = Some(character);
        if is_shown {
            plain.push(character);
            continue;
        }
        // The line end of Windows is one.
        if character == '\r' && next == Some('\n') {
            continue;
        }
        let name = format!("U+{:04X}", u32::from(character));
        if nodes.len() - before >= most {
            plain.push_str(&format!("[{name}]"));
            continue;
        }
        push_plain(nodes, &mut plain);
        nodes.push(Node::element(Tag::Hidden, vec![Node::Text(name)]));
    }
    push_plain(nodes, &mut plain);
    nodes.len() - before
}

/// Appends text to the previous text, or as a node.
fn push_plain(nodes: &mut Vec<Node>, plain: &mut String) {
    if plain.is_empty() {
        return;
    }
    match nodes.last_mut() {
        Some(Node::Text(previous)) => previous.push_str(plain),
        _ => nodes.push(Node::Text(plain.clone())),
    }
    plain.clear();
}

/// True if a joiner next to a character has a meaning.
fn joins(character: char) -> bool {
    !character.is_ascii()
        && !character.is_control()
        && !character.is_whitespace()
        && (matches!(character, '\u{fe0f}') || !(is_hidden(character) || has_no_glyph(character)))
}

/// True if a character has a text and an emoji style.
fn has_variants(character: char) -> bool {
    matches!(character, '0'..='9' | '#' | '*') || joins(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut nodes = Vec::new();
        push_text(&mut nodes, text, usize::MAX);
        let shown = nodes.iter().map(|node| match node {
            Node::Text(text) => text.clone(),
            Node::Element { children, .. } => match children.as_slice() {
                [Node::Text(name)] => format!("<{name}>"),
                other => format!("{other:?}"),
            },
        });
        shown.collect()
    }

    #[test]
    fn hidden_characters_are_named() {
        for (text, expected) in [
            ("a\u{202e}b", "a<U+202E>b"),
            ("a\u{200b}b\u{feff}", "a<U+200B>b<U+FEFF>"),
            ("\u{1b}[2J", "<U+001B>[2J"),
            ("a\u{e0041}", "a<U+E0041>"),
            ("a\u{200d}b", "a<U+200D>b"),
            ("\u{301}a", "<U+0301>a"),
            ("a\r\nb\rc", "a\nb<U+000D>c"),
            ("\u{e000}", "<U+E000>"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_elements_up_to_the_limit_and_then_text() {
        let hidden = "\u{200b}".repeat(4);
        let mut nodes = Vec::new();
        assert_eq!(push_text(&mut nodes, &hidden, 3), 4);
        assert_eq!(nodes[3], Node::Text("[U+200B]".to_owned()));
        assert_eq!(push_text(&mut Vec::new(), &hidden, 4), 4);
    }

    #[test]
    fn characters_of_scripts_and_emoji_are_kept() {
        for text in ["👩‍🔬", "می‌خواهم", "❤️", "e\u{301}", "1️⃣", "שלום", "\ta\n"]
        {
            assert_eq!(shown(text), text, "{text:?}");
        }
    }

    #[test]
    fn marks_up_to_the_limit_are_kept_and_more_are_named() {
        let kept = format!("a{}", "\u{301}".repeat(MAX_MARKS));
        assert_eq!(shown(&kept), kept);
        assert_eq!(shown(&format!("{kept}\u{301}")), format!("{kept}<U+0301>"));
    }
}
