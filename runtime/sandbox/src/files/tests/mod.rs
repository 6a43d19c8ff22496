//! The guard against directories on disk, called like by the bindings.

mod denied;
mod escape;
mod fuzz;
mod guest;
mod links;
mod listing;
mod operations;
mod overlay;
mod quota;
mod rights;
mod skipped;
mod special;
