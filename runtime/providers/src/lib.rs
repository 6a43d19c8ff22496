//! Implementations of [`toolcell_core::Provider`].
//!
//! | provider | module | description |
//! |---|---|---|
//! | [`openai::OpenAi`] | [`openai`] | Chat Completions: OpenAI and compatible servers |
//! | [`responses::OpenAiResponses`] | [`responses`] | OpenAI Responses |
//! | [`anthropic::Anthropic`] | [`anthropic`] | Anthropic Messages |
//! | [`gemini::Gemini`] | [`gemini`] | Gemini `generateContent`, also on Vertex AI |
//! | [`ollama::Ollama`] | [`ollama`] | Ollama's native API |
//! | [`text_calls::TextCalls`] | [`text_calls`] | wrapper of any provider: calls in text, for models without tool calling |
//! | [`Failover`] | | wrapper of several providers: the next one answers where one fails |
//! | [`scripted::Scripted`] | [`scripted`] | turns from a file, for tests and demonstrations |
//! | [`offline::Offline`] | [`offline`] | no model: selects a tool by the words of the request |
//!
//! The five providers over HTTP are one [`HttpProvider`] with different protocols: a [`Connection`] has the model and the
//! connection settings, and the type of a protocol has the settings of that protocol.
//!
//! All options are plain values. The crate does not read the environment (except that the system's certificate store
//! may be set by `SSL_CERT_FILE` and `SSL_CERT_DIR`) and prints nothing. Keys are kept in [`ApiKey`] and redacted from
//! every error.

pub mod anthropic;
mod arguments;
mod emit;
mod error;
mod failover;
mod fallback_text;
#[cfg(test)]
mod floods;
mod framing;
#[cfg(test)]
mod fuzz;
pub mod gemini;
mod history;
mod http;
mod key;
pub mod offline;
pub mod ollama;
mod opaque;
pub mod openai;
mod response_builder;
pub mod responses;
#[cfg(test)]
mod robustness;
mod sanitize;
mod schema;
pub mod scripted;
pub mod text_calls;
mod token;

pub use error::{BaseUrlError, ScriptError, SetupError};
pub use failover::{Failover, REST};
pub use http::{Connection, HttpOptions, HttpProvider, MAX_RETRY_AFTER, RetryPolicy};
pub use key::ApiKey;
pub use token::{Token, TokenSource};
