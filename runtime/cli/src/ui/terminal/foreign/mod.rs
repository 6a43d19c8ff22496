//! Foreign text, made safe to show.
//!
//! | concept | module |
//! |---|---|
//! | characters that a terminal executes, hides, reorders or stacks | [`escape`] |
//! | physical lines: wrapping, and the gutter of foreign text | [`layout`] |
//! | confusable names | [`names`] |
//!
//! Pure functions of text and width: nothing here reads the environment, writes to a stream, or depends on the rest of
//! the program, so that a fuzz target can include this directory by path.

pub(crate) mod escape;
pub(crate) mod layout;
pub(crate) mod names;

#[cfg(test)]
pub(super) mod tests;
