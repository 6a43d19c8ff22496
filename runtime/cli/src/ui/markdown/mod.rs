//! Markdown of a model as rows of a terminal.
//!
//! | concept | module |
//! |---|---|
//! | text that arrives in pieces, shown as soon as nothing can change it | [`stream`] |
//! | blocks and inline markup, as words and lines | [`block`], [`element`] |
//! | delimiters that are not closed yet | [`delimiter`] |
//! | emphasis and links, code, tables | [`inline`], [`code`], [`table`] |
//! | rows of a given width: wrapping, indentation | [`rows`] |
//!
//! The text stays foreign: each character is made inert after the parser has resolved entities, each row stands behind the
//! gutter, the address of a link is always shown, and raw HTML is shown as it is written. No letter of the text is left out.

mod block;
mod code;
mod delimiter;
mod element;
mod inline;
mod rows;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use stream::{MarkdownStream, Ready};
