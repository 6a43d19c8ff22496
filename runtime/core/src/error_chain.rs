//! Error chains: sources that several errors share, and the text of an error with all its sources.

use std::error::Error;
use std::sync::Arc;

/// Source of an error that is cloned, for example for every operation of a failed transaction.
pub type SharedError = Arc<dyn Error + Send + Sync>;

/// Returns the text of an error and of each of its sources, outermost first. A source whose text is part of the previous
/// text is left out, because many errors of other crates repeat their source.
pub fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !texts.last().is_some_and(|last| last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts
}

/// Formats an error and all its [`causes`] on one line, as `{:#}` of `anyhow` does.
///
/// ```
/// let broken = std::str::from_utf8(b"\xff").unwrap_err();
/// let error = std::io::Error::other(broken);
/// assert_eq!(toolcell_core::error_chain(&error), broken.to_string());
/// ```
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    causes(error).join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn chain(texts: &[&'static str]) -> Option<Box<Layer>> {
        let (text, rest) = texts.split_first()?;
        let source = chain(rest);
        Some(Box::new(Layer { text, source }))
    }

    #[test]
    fn each_source_appears_once() {
        for (texts, expected) in [
            (&["a"][..], "a"),
            (&["outer", "middle", "deep"], "outer: middle: deep"),
            (&["outer: deep", "deep"], "outer: deep"),
            (&["outer: middle", "middle", "deep"], "outer: middle: deep"),
            (&["outer", "", "deep"], "outer: deep"),
        ] {
            assert_eq!(error_chain(&*chain(texts).unwrap()), expected);
        }
    }
}
