//! Components and programs that were not written for Toolcell.

mod functions;
mod programs;
