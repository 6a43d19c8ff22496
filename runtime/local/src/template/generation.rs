//! `{% generation %}`: marks of the answers in a template, which matter for training only.

/// Replaces the marks by blocks that are always written.
pub(super) fn without_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag, after)) = next_tag(rest) {
        text.push_str(before);
        let inner = &tag[2..tag.len() - 2];
        let word = inner.trim_matches(['-', '+']).trim();
        match word {
            "generation" => text.push_str(&tag.replace(word, "if true")),
            "endgeneration" => text.push_str(&tag.replace(word, "endif")),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Divides a text at its first block tag.
fn next_tag(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find("{%")?;
    let end = start + 2 + text[start + 2..].find("%}")? + 2;
    Some((&text[..start], &text[start..end], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_blocks_and_all_else_stays() {
        for (source, expected) in [
            (
                "a{% generation %}b{% endgeneration %}c",
                "a{% if true %}b{% endif %}c",
            ),
            (
                "{%- generation -%}{%- endgeneration -%}",
                "{%- if true -%}{%- endif -%}",
            ),
            (
                "{% if generation %}x{% endif %}",
                "{% if generation %}x{% endif %}",
            ),
            ("{% generation", "{% generation"),
            ("{%%}é{%-%}", "{%%}é{%-%}"),
            ("generation %}", "generation %}"),
        ] {
            assert_eq!(without_marks(source), expected);
        }
    }
}
