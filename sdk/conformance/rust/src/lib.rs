//! The conformance fixture in Rust.

use std::sync::atomic::{AtomicU32, Ordering};

use toolcell_sdk::http::Request;
use toolcell_sdk::{Output, Result, ToolError, input, log, output, progress, tool};

static CALLS: AtomicU32 = AtomicU32::new(0);

const MANIFEST: [u8; 97] = *br#"{"name":"conformance","version":"1.2.0","wants":[{"grant":"env=CONFORMANCE","reason":"a check"}]}"#;

/// In the other languages `tool.toml` has it.
#[cfg(target_family = "wasm")]
#[used]
#[unsafe(link_section = "toolcell:manifest")]
static SECTION: [u8; MANIFEST.len()] = MANIFEST;

/// Returns a text.
#[tool]
fn echo(
    /// The text.
    text: String,
) -> String {
    log::info(format_args!("echoing {}", text.chars().count()));
    progress::report_with(1, 2, "half");
    text
}

#[output]
struct Sum {
    /// The sum.
    sum: i32,
}

/// Adds two numbers.
#[tool(read_only)]
fn add(
    /// The first.
    left: i32,
    /// The second.
    right: i32,
    /// Negate the sum.
    #[default(false)]
    negate: bool,
) -> Sum {
    let sum = left.wrapping_add(right);
    Sum {
        sum: if negate { -sum } else { sum },
    }
}

#[input]
#[serde(rename_all = "snake_case")]
enum Kind {
    InvalidArguments,
    Denied,
    Unavailable,
    Failed,
}

/// Fails.
#[tool]
fn fail(
    /// The kind.
    kind: Kind,
) -> Result<String> {
    Err(match kind {
        Kind::InvalidArguments => ToolError::invalid("as asked: invalid_arguments é"),
        Kind::Denied => ToolError::denied("as asked: denied é"),
        Kind::Unavailable => ToolError::unavailable("as asked: unavailable é"),
        Kind::Failed => ToolError::failed("as asked: failed é"),
    })
}

/// Returns several parts.
#[tool]
fn parts() -> Output {
    Output::new()
        .text("text")
        .blob("image/png", [0, 255, 128])
        .link("https://example.org/x", "an example")
}

/// Counts its calls.
#[tool]
fn count() -> String {
    (CALLS.fetch_add(1, Ordering::Relaxed) + 1).to_string()
}

/// Crashes.
#[tool]
fn crash() -> String {
    panic!("out of cheese 42")
}

/// Reads a file.
#[tool]
fn read_file(
    /// The file.
    path: String,
) -> Result<String> {
    Ok(std::fs::read_to_string(path)?)
}

/// Sends a request.
#[tool]
fn get_url(
    /// The address.
    url: String,
    /// What is sent; without it nothing is.
    body: Option<String>,
) -> Result<String> {
    let request = match body {
        Some(body) => Request::post(url).body(body),
        None => Request::get(url),
    };
    let response = request.send()?;
    Ok(format!("{} {}", response.status(), response.text()))
}

toolcell_sdk::export!(echo, add, fail, parts, count, crash, read_file, get_url);
