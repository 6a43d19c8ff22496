//! Commands without a turn: `toolcell call`, `policy` and `tool`.

mod call;
mod policy;
mod refused_calls;
mod tool;
