//! Minimal tool.

use toolcell_sdk::tool;

/// Greet a user by name.
#[tool(read_only, idempotent)]
fn hello(name: String) -> String {
    format!("Hello, {name}!")
}

toolcell_sdk::export!(hello);
