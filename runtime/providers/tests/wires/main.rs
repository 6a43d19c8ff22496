//! Tests of every provider against an HTTP server on loopback.

#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

mod anthropic;
mod conversation;
mod gemini;
mod http;
mod loopback;
mod odd_streams;
mod offline;
mod ollama;
mod openai;
mod refusals;
mod responses;
mod scripted;
mod secrets;
mod text_calls;
