//! Terminal output and input.
//!
//! | concept | module |
//! |---|---|
//! | foreign text, made safe to show | [`foreign`] |
//! | messages: our own text with foreign values | [`mod@text`], [`sentence`], [`values`] |
//! | layout and colours of an output stream | [`screen`] |
//! | size of the terminal | [`size`] |
//! | questions, their subject, and asking them | [`question`], [`exhibit`], [`asking`] |
//! | typed answers | [`typed`] |
//! | the keyboard during a turn and during a question | [`keyboard`] |
//!
//! There are two kinds of text, kept apart by the compiler: [`Text`] consists of string literals of the program with
//! quoted values; every `String` is foreign. A line that begins with foreign text begins with a gutter (`│ `).

mod asking;
mod exhibit;
pub(crate) mod foreign;
#[cfg(test)]
mod fuzz;
mod keyboard;
mod question;
mod refusal;
mod screen;
mod sentence;
mod size;
mod text;
mod typed;
mod values;

pub(crate) use asking::{Answer, Asking};
pub(crate) use exhibit::Exhibit;
pub(crate) use foreign::escape::{inert, inert_line, write_escape};
pub(crate) use foreign::layout::{GUTTER, Width};
pub(crate) use foreign::names::{Lookalike, lookalike};
pub(crate) use keyboard::{LineEditing, Silence, restore};
pub(crate) use question::{Choice, Fact, Question};
pub(crate) use screen::{BAD, FAINT, GOOD, HANG, NAME, STRONG, Screen, WARN, wants_colour};
pub(crate) use size::Size;
pub(crate) use text::Part;
pub(crate) use text::{Key, ModelName, Name, Own, Shown, ShownUrl, Text, TextValue, places, text};
