//! Tokens of code: comments, strings, numbers and keywords of the languages that models write most.
//!
//! It is one scanner for all languages, and a wrong token is only a wrong colour.

use super::tree::{Node, Tag};

/// Maximum size of a block of code that is divided into tokens, in bytes. Longer ones are one text, because each token is an
/// element of the page.
pub(super) const MAX_HIGHLIGHTED_BYTES: usize = 64 << 10;

/// Maximum length of the name of a language, in bytes.
const MAX_LANGUAGE_BYTES: usize = 32;

/// Syntax of a language, as far as it is needed.
struct Syntax {
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    keywords: &'static str,
}

const C_COMMENT: Option<(&str, &str)> = Some(("/*", "*/"));

fn syntax(language: &str) -> Option<Syntax> {
    let of = |line_comments, block_comment, quotes, keywords| Syntax {
        line_comments,
        block_comment,
        quotes,
        keywords,
    };
    Some(match language {
        "rust" | "rs" => of(
            &["//"],
            C_COMMENT,
            &['"'],
            "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
        ),
        "js" | "javascript" | "jsx" | "ts" | "typescript" | "tsx" | "mjs" => of(
            &["//"],
            C_COMMENT,
            &['"', '\'', '`'],
            "abstract any as async await boolean break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null number of private public readonly return static string super switch this throw true try type typeof undefined var void while yield",
        ),
        "py" | "python" | "python3" => of(
            &["#"],
            None,
            &['"', '\''],
            "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return self True try while with yield",
        ),
        "go" | "golang" => of(
            &["//"],
            C_COMMENT,
            &['"', '`', '\''],
            "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var",
        ),
        "c" | "h" | "cpp" | "c++" | "cc" | "hpp" | "cs" | "csharp" | "java" | "kotlin" | "kt" | "swift"
        | "zig" => of(
            &["//"],
            C_COMMENT,
            &['"', '\''],
            "abstract auto bool boolean break case catch char class const constexpr continue default defer delete do double else enum extends extern false final float fn for fun func goto guard if implements import include int interface internal let long namespace new nil null nullptr operator override package private protected public return short signed sizeof static string struct super switch template this throw throws true try typedef typename union unsigned using val var virtual void volatile when while",
        ),
        "sh" | "bash" | "shell" | "zsh" | "console" => of(
            &["#"],
            None,
            &['"', '\''],
            "case do done elif else esac export fi for function if in local return set then unset until while",
        ),
        "toml" | "yaml" | "yml" | "ini" | "dockerfile" | "makefile" => {
            of(&["#"], None, &['"', '\''], "true false null yes no on off")
        }
        "json" | "jsonc" | "json5" => of(&["//"], C_COMMENT, &['"'], "true false null"),
        "sql" => of(
            &["--"],
            C_COMMENT,
            &['\'', '"'],
            "add all alter and as asc begin between by case column commit constraint create default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references right rollback select set table then union unique update values view when where with",
        ),
        "css" => of(&[], C_COMMENT, &['"', '\''], "important"),
        "html" | "xml" | "svg" => of(&[], Some(("<!--", "-->")), &['"', '\''], ""),
        "lua" => of(
            &["--"],
            None,
            &['"', '\''],
            "and break do else elseif end false for function if in local nil not or repeat return then true until while",
        ),
        "wit" | "wat" => of(
            &["//", ";;"],
            C_COMMENT,
            &['"'],
            "bool enum export flags func import include interface list module option package param record resource result string tuple type use variant world",
        ),
        _ => return None,
    })
}

/// Divides code into tokens: the kind, or `None` for other text.
pub(super) fn tokens<'a>(language: &str, code: &'a str) -> Vec<(Option<Tag>, &'a str)> {
    let language = language.to_ascii_lowercase();
    let Some(syntax) = syntax(&language).filter(|_| code.len() <= MAX_HIGHLIGHTED_BYTES) else {
        return vec![(None, code)];
    };
    let keywords: Vec<&str> = syntax.keywords.split(' ').collect();
    let is_sql = language == "sql";
    let mut tokens = Vec::new();
    // Start of the text that is no token.
    let mut plain = 0;
    let mut at = 0;
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let previous = code[..at].chars().next_back();
        let found = if let Some(length) = comment(&syntax, rest, previous) {
            Some((Tag::Comment, length))
        } else if syntax.quotes.contains(&first) {
            Some((Tag::CodeString, string(rest, first)))
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..length];
            let is_keyword = match is_sql {
                true => keywords.contains(&word.to_ascii_lowercase().as_str()),
                false => keywords.contains(&word),
            };
            if first.is_ascii_digit() {
                Some((Tag::Number, length))
            } else if is_keyword {
                Some((Tag::Keyword, length))
            } else {
                at += length;
                continue;
            }
        } else {
            None
        };
        let Some((tag, length)) = found else {
            at += first.len_utf8();
            continue;
        };
        if plain < at {
            tokens.push((None, &code[plain..at]));
        }
        tokens.push((Some(tag), &rest[..length]));
        at += length;
        plain = at;
    }
    if plain < code.len() {
        tokens.push((None, &code[plain..]));
    }
    tokens
}

/// Returns the content of a block of code in tokens.
pub(super) fn code(attributes: &[(&'static str, String)], children: Vec<Node>) -> Vec<Node> {
    let language = attributes.iter().find(|(name, _)| *name == "lang");
    let language = language.map_or("", |(_, language)| language.as_str());
    let mut nodes = Vec::new();
    for child in children {
        // A character that is hidden divides the text; tokens do not go across it.
        let Node::Text(text) = &child else {
            nodes.push(child);
            continue;
        };
        for (tag, token) in tokens(language, text) {
            let text = Node::Text(token.to_owned());
            nodes.push(match tag {
                Some(tag) => Node::element(tag, vec![text]),
                None => text,
            });
        }
    }
    nodes
}

/// Returns the name of a language from the line that opens a block: its first word, if that is a name.
pub(super) fn language(info: &str) -> Option<String> {
    let name = info.split([' ', ',', '{']).next()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "+#._-".contains(c);
    let is_language = !name.is_empty() && name.len() <= MAX_LANGUAGE_BYTES && name.chars().all(is_name);
    is_language.then(|| name.to_owned())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Length of a comment at the start of a text.
fn comment(syntax: &Syntax, rest: &str, previous: Option<char>) -> Option<usize> {
    let starts_comment = |mark: &str| {
        // `$#` and `a#b` in a shell, `http://` in text.
        let is_inside = previous.is_some_and(|c| !c.is_whitespace());
        rest.starts_with(mark) && !(is_inside && (mark == "#" || previous == Some(':')))
    };
    if syntax.line_comments.iter().any(|mark| starts_comment(mark)) {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    let (open, close) = syntax.block_comment?;
    let body = rest.strip_prefix(open)?;
    let length = body
        .find(close)
        .map_or(rest.len(), |end| open.len() + end + close.len());
    Some(length)
}

/// Length of a string at the start of a text. One that is not closed ends with its line, except between backticks.
fn string(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            '\n' if quote != '`' => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            other if other == quote => return at + other.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(language: &str, code: &str) -> String {
        let tokens = tokens(language, code);
        let whole: String = tokens.iter().map(|(_, text)| *text).collect();
        assert_eq!(whole, code);
        let shown = tokens.into_iter().map(|(tag, text)| match tag {
            None => text.to_owned(),
            Some(tag) => format!("<{} {text}>", tag.name()),
        });
        shown.collect()
    }

    #[test]
    fn tokens_are_found_and_nothing_is_lost() {
        for (language, code, expected) in [
            ("rust", "let x = 1; // one", "<tk let> x = <tn 1>; <tc // one>"),
            ("Rust", "\"a\\\"b\"", "<ts \"a\\\"b\">"),
            (
                "py",
                "def f():\n  return 'a",
                "<tk def> f():\n  <tk return> <ts 'a>",
            ),
            ("sh", "echo $# # all", "echo $# <tc # all>"),
            ("sql", "SELECT 1", "<tk SELECT> <tn 1>"),
            ("c", "/* a", "<tc /* a>"),
            ("js", "`a\nb`", "<ts `a\nb`>"),
            ("unknown", "let x", "let x"),
            ("", "", ""),
            ("rust", "é\u{1F600}1", "é\u{1F600}<tn 1>"),
        ] {
            assert_eq!(shown(language, code), expected);
        }
    }

    #[test]
    fn code_at_the_limit_has_tokens_and_longer_has_none() {
        let code = "1 ".repeat(MAX_HIGHLIGHTED_BYTES / 2);
        assert!(tokens("c", &code).len() > 1);
        assert_eq!(tokens("c", &format!("{code} ")).len(), 1);
    }
}
