//! The presets, one file each, with the items of `LOOPS.md`.

mod resilient;
mod sequential;
mod stepwise;
mod task;
