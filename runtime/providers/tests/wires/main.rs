//! Every wire against a real HTTP server on loopback.

mod conversation;
mod loopback;
mod openai;
mod scripted;
