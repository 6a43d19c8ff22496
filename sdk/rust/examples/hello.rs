//! The smallest tool.

use toolcell_sdk::tool;

/// Greet somebody by name.
#[tool(read_only, idempotent)]
fn hello(name: String) -> String {
    format!("Hello, {name}!")
}

toolcell_sdk::export!(hello);
