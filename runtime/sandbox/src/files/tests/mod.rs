//! The guard against directories on disk, called like by the bindings.

mod denied;
mod escape;
mod fuzz;
mod git;
mod guest;
mod links;
mod listing;
mod moved;
mod operations;
mod overlay;
mod paths;
mod quota;
mod rights;
mod special;
