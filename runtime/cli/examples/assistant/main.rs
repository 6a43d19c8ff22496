//! The program of the guide's page on embedding.

include!("program.rs");
