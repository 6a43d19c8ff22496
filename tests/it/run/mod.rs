//! `toolcell run`: turns of a session.

mod agents;
mod approval;
mod budget;
mod chat;
mod concurrent;
mod log;
mod markdown;
mod model;
mod profiles;
mod project_instructions;
mod prompt;
mod saved_files;
mod saved_sessions;
mod scratch;
mod session;
mod session_in_use;
mod turn;
mod typing;
