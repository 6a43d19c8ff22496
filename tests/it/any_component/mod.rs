//! Components that were not written for Toolcell.

mod functions;
