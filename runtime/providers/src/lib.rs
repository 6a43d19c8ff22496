//! Models behind [`toolcell_core::Provider`].
//!
//! | provider | module | what it is |
//! |---|---|---|
//! | [`openai::OpenAi`] | [`openai`] | Chat Completions: OpenAI and every server that speaks the same |
//! | [`responses::OpenAiResponses`] | [`responses`] | OpenAI Responses |
//! | [`anthropic::Anthropic`] | [`anthropic`] | Anthropic Messages |
//! | [`gemini::Gemini`] | [`gemini`] | Gemini `generateContent`, also on Vertex AI |
//! | [`ollama::Ollama`] | [`ollama`] | Ollama's own wire |
//! | [`text_calls::TextCalls`] | [`text_calls`] | around any of them: calls in text, for models without tool calling |
//! | [`scripted::Scripted`] | [`scripted`] | turns from a file, for tests and demonstrations |
//! | [`offline::Offline`] | [`offline`] | no model at all: finds the tool by the words of the request |
//!
//! What requests cost by a table of the user's prices is in [`price`].
//!
//! The five providers over HTTP are one [`HttpProvider`] that differs in its protocol: a [`Connection`] says what is asked
//! and how it is reached, and the type of a protocol what only that one knows.
//!
//! All options are plain values. Nothing here reads the environment (the one exception is the system's certificate
//! store, where `SSL_CERT_FILE` and `SSL_CERT_DIR` name another), and nothing is printed. Keys are kept in [`ApiKey`] and
//! are cut out of every error.

pub mod anthropic;
mod arguments;
mod emit;
mod error;
mod fallback_text;
mod framing;
#[cfg(test)]
mod fuzz;
pub mod gemini;
mod http;
mod key;
pub mod offline;
pub mod ollama;
mod opaque;
pub mod openai;
pub mod price;
mod response_builder;
pub mod responses;
#[cfg(test)]
mod robustness;
mod sanitize;
mod schema;
pub mod scripted;
pub mod text_calls;
mod token;

pub use error::SetupError;
pub use http::{Connection, HttpOptions, HttpProvider, RetryPolicy};
pub use key::ApiKey;
pub use token::{Token, TokenSource};
