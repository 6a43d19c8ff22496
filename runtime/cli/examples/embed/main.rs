//! The program of the README, which embeds the loop.

include!("program.rs");
