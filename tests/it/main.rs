//! The integration suite: one binary, one file for each subject.
//!
//! It drives the built `toolcell` the way a person does, and checks the house itself: who may depend on whom, the
//! contract in `wit/`, the prebuilt tools, and every command of the README.

mod contract;
mod dependencies;
mod house;
