//! `toolcell run`: turns of a session.

mod agents;
mod approval;
mod budget;
mod concurrent;
mod log;
mod model;
mod prompt;
mod scratch;
mod session;
mod turn;
