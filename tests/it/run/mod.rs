//! `toolcell run`: turns of a session.

mod agents;
mod approval;
mod budget;
mod chat;
mod concurrent;
mod log;
mod model;
mod profiles;
mod prompt;
mod saved_files;
mod scratch;
mod session;
mod turn;
