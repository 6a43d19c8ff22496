//! The terminal: what may reach it, and what may come from it.
//!
//! | concept | module |
//! |---|---|
//! | text that others wrote, made safe to show | [`foreign`] |
//! | messages: our own words, and in them what others wrote | [`mod@text`] |
//! | one output stream, laid out and coloured | [`screen`] |
//! | how wide and high the terminal is | [`size`] |
//! | questions, and what they are about | [`question`], [`exhibit`] |
//! | what is typed as an answer, and what is not | [`typed`] |
//! | standard input while a question stands there | [`keyboard`] |
//!
//! Two kinds of text exist and the compiler keeps them apart: [`Text`] is made of literals of the program, in which values
//! stand as quotations; every `String` is foreign. A line that begins with foreign text begins with a gutter (`│ `).

mod exhibit;
pub(crate) mod foreign;
#[cfg(test)]
mod fuzz;
mod keyboard;
mod question;
mod screen;
mod size;
mod text;
mod typed;

pub(crate) use exhibit::Exhibit;
pub(crate) use foreign::escape::{MAX_MARKS, inert_line, is_hidden, is_mark, is_unsafe};
pub(crate) use foreign::layout::{GUTTER, Width};
pub(crate) use foreign::names::{Lookalike, lookalike};
pub(crate) use keyboard::restore;
pub(crate) use question::{Answer, Asking, Choice, Fact, Question};
pub(crate) use screen::{BAD, FAINT, GOOD, NAME, STRONG, Screen, WARN, wants_colour};
pub(crate) use size::Size;
pub(crate) use text::{Name, Own, Say, Shown, Text, places, text};
