//! Text that Toolcell did not write, made safe to show.
//!
//! | concept | module |
//! |---|---|
//! | characters that a terminal obeys, hides, reorders or stacks become visible | [`escape`] |
//! | physical lines: wrapping, and the gutter that every line of foreign text begins with | [`layout`] |
//! | names that look like other names | [`names`] |
//!
//! Pure functions of text and width: nothing here reads the environment or writes to a stream, and nothing depends on the
//! rest of the program, so that a fuzz target can include this directory by its path.

pub(crate) mod escape;
pub(crate) mod layout;
pub(crate) mod names;

#[cfg(test)]
pub(super) mod tests;
