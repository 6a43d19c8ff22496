//! Entities in a request: addresses, paths, quoted texts, numbers, dates.

use super::words::stem;

/// Entity named in a prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entity {
    /// URL with `http://` or `https://`.
    Url(String),
    /// Path of a file or directory.
    Path(String),
    /// Text in quotation marks.
    Quoted(String),
    /// Number and the following word.
    Number { value: i64, unit: String },
    /// Date or time as in RFC 3339.
    Date(String),
}

/// Parsed request.
#[derive(Debug, Default)]
pub(super) struct ParsedRequest {
    pub(super) entities: Vec<Entity>,
    /// Text with a gap in place of each entity.
    pub(super) rest: String,
}

const QUOTES: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('\'', '\'')];

/// Prepositions after which a single word is a directory.
const PLACE_WORDS: &[&str] = &["in", "inside", "under", "within", "below"];

/// Parses a request.
pub(super) fn take_apart(text: &str) -> ParsedRequest {
    let mut request = ParsedRequest::default();
    let unquoted = take_quoted(text, &mut request.entities);
    let tokens: Vec<&str> = unquoted.split_whitespace().collect();
    for (at, token) in tokens.iter().enumerate() {
        let bare =
            token.trim_matches(|c: char| matches!(c, ',' | ';' | ':' | '!' | '?' | '(' | ')' | '[' | ']'));
        let bare = if bare.len() > 1 {
            bare.trim_end_matches('.')
        } else {
            bare
        };
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        let before = at
            .checked_sub(1)
            .map(|i| tokens[i].to_lowercase())
            .unwrap_or_default();
        match entity(bare, next) {
            Some(entity) => {
                request.entities.push(entity);
                request.rest.push_str(" \u{0} ");
            }
            // `in src`: a word at the end of a sentence or before another preposition that is not an ordinary word.
            None if !request.entities.iter().any(|t| matches!(t, Entity::Path(_)))
                && PLACE_WORDS.contains(&before.as_str())
                && is_name(bare)
                && (*token != bare || ends_a_place(next)) =>
            {
                request.entities.push(Entity::Path(bare.to_owned()));
                request.rest.push_str(" \u{0} ");
            }
            None => {
                request.rest.push_str(token);
                request.rest.push(' ');
            }
        }
    }
    request
}

fn take_quoted(text: &str, entities: &mut Vec<Entity>) -> String {
    let mut rest = String::new();
    let mut left = text;
    while let Some(c) = left.chars().next() {
        let begins_word = rest.chars().last().is_none_or(|before| !before.is_alphanumeric());
        if begins_word
            && let Some((_, close)) = QUOTES.iter().find(|(open, _)| *open == c)
            && let Some(length) = left[c.len_utf8()..].find(*close)
            && length > 0
        {
            let quoted = &left[c.len_utf8()..c.len_utf8() + length];
            entities.push(match entity(quoted, "") {
                Some(found @ (Entity::Url(_) | Entity::Path(_)))
                    if !quoted.contains(' ') && !is_hidden(quoted) =>
                {
                    found
                }
                _ => Entity::Quoted(quoted.to_owned()),
            });
            rest.push_str(" \u{0} ");
            left = &left[c.len_utf8() + length + close.len_utf8()..];
        } else {
            rest.push(c);
            left = &left[c.len_utf8()..];
        }
    }
    rest
}

fn entity(token: &str, next: &str) -> Option<Entity> {
    if token.starts_with("http://") || token.starts_with("https://") {
        return Some(Entity::Url(token.to_owned()));
    }
    if is_date(token) {
        return Some(Entity::Date(token.to_owned()));
    }
    if let Ok(value) = token.parse() {
        let unit = next.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        return Some(Entity::Number { value, unit });
    }
    is_path(token).then(|| Entity::Path(token.to_owned()))
}

/// `.name`, which in quotation marks is more likely an expression than a file.
fn is_hidden(token: &str) -> bool {
    token.starts_with('.') && !token.starts_with("./") && !token.starts_with("..")
}

/// `2026-01-31`, with or without a time.
pub(super) fn is_date(token: &str) -> bool {
    let bytes = token.as_bytes();
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(at, b)| {
            if at == 4 || at == 7 {
                *b == b'-'
            } else {
                b.is_ascii_digit()
            }
        })
        && (bytes.len() == 10 || bytes[10] == b'T')
}

/// True if a number before this word is a duration.
pub(super) fn is_unit_of_time(unit: &str) -> bool {
    ["second", "minute", "hour", "day", "week", "month", "year"]
        .iter()
        .any(|name| stem(name) == stem(unit))
}

/// A token with a slash or an extension, such as `src/lib.rs`, `README.md`, `.gitignore`, `..`.
fn is_path(token: &str) -> bool {
    if !token.chars().any(char::is_alphanumeric) {
        return matches!(token, "." | ".." | "/" | "./" | "../");
    }
    if token.contains('/') {
        return !token.contains("://") && !token.starts_with("//");
    }
    match token.rsplit_once('.') {
        // `.gitignore` is a file; a query such as `.name` looks the same unless quoted.
        Some(("", name)) => name.len() > 1,
        Some((stem, ending)) => {
            stem.chars().any(char::is_alphanumeric)
                && (1..=8).contains(&ending.len())
                && ending.chars().all(|c| c.is_ascii_alphanumeric())
                && !ending.chars().all(|c| c.is_ascii_digit())
        }
        None => matches!(
            token,
            "Makefile" | "Dockerfile" | "LICENSE" | "README" | "CHANGELOG"
        ),
    }
}

/// True if a word may be the name of a directory: not capitalised, unlike cities and names.
pub(super) fn is_name(token: &str) -> bool {
    !token.is_empty()
        && token
            .chars()
            .all(|c| (c.is_alphanumeric() && !c.is_uppercase()) || c == '_' || c == '-')
}

/// True if a place ends before this word.
fn ends_a_place(next: &str) -> bool {
    PLACE_WORDS.contains(&next) || matches!(next, "" | "and" | "for" | "with" | "to" | "directory" | "folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entities(text: &str) -> Vec<Entity> {
        take_apart(text).entities
    }

    #[test]
    fn entities_are_found_in_sentences() {
        assert_eq!(
            entities("How many words are in README.md?"),
            [Entity::Path("README.md".into())]
        );
        assert_eq!(entities("List the files in docs"), [Entity::Path("docs".into())]);
        assert_eq!(
            entities("fetch https://example.com/a.html."),
            [Entity::Url("https://example.com/a.html".into())]
        );
        assert_eq!(
            entities("first 20 lines of ./a/b"),
            [
                Entity::Number {
                    value: 20,
                    unit: "lines".into()
                },
                Entity::Path("./a/b".into())
            ]
        );
        assert_eq!(
            entities("replace \"a b\" with 'c' in `x.txt`"),
            [
                Entity::Quoted("a b".into()),
                Entity::Quoted("c".into()),
                Entity::Path("x.txt".into())
            ]
        );
        assert_eq!(
            entities("between 2026-01-01 and 2026-03-01T10:00:00Z"),
            [
                Entity::Date("2026-01-01".into()),
                Entity::Date("2026-03-01T10:00:00Z".into())
            ]
        );
    }

    #[test]
    fn ordinary_words_are_no_entities() {
        for text in ["What's up?", "it's 'not closed", "Find it.", "the e.g. case", "“"] {
            let found = entities(text);
            assert!(
                found.iter().all(|t| matches!(t, Entity::Path(p) if p == "e.g")),
                "{text}: {found:?}"
            );
        }
    }
}
