//! Every wire against a real HTTP server on loopback.

#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

mod conversation;
mod loopback;
mod offline;
mod openai;
mod scripted;
