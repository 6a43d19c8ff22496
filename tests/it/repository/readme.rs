//! Runs every command of the README, in order, in a copy of the repository, and compares its output.
//!
//! A block ```` ```sh ```` is run by one bash from top to bottom, so that `cd` and `export` persist; ```` ```sh fails
//! ```` must end with a status other than 0. A block ```` ```text ```` directly after it is its expected output: each
//! line must occur, in order, and `…` matches anything. Four things are replaced, because they are already part of this
//! test: `cargo run --` is the built binary, `cargo build --bin toolcell` does nothing, `cargo test` is recorded, and the
//! example is the one compiled into this test. The model is a server on loopback that responds as a provider does. A
//! block ```` ```rust ```` is that example, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::repository::workspace::root;
use crate::support::snippets::{Block, blocks, missing_line};

/// The example of the README, called by the block that runs it.
mod example {
    include!("../../../runtime/cli/examples/embed/program.rs");

    pub(super) fn run() {
        main().expect("the example of the README runs");
    }
}

/// Set when the test [`readme_example_runs`] should run the example.
const RUN_EXAMPLE: &str = "README_EXAMPLE";

/// Copies the tracked files (and untracked ones that are not ignored), as in a fresh clone.
pub(super) fn copy_of_the_repository(to: &Path) {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "the suite runs in a git checkout");
    for path in String::from_utf8(listed.stdout)
        .expect("UTF-8")
        .split('\0')
        .filter(|p| !p.is_empty())
    {
        let (from, to) = (root().join(path), to.join(path));
        let Ok(kind) = std::fs::symlink_metadata(&from) else {
            continue;
        };
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("a folder");
        if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&from).expect("a link"), &to).expect("a link");
        } else {
            std::fs::copy(&from, &to).expect("a file");
        }
    }
}

/// Starts a Chat Completions server: it calls the tool that has a parameter `number`, with the given arguments, and
/// then answers with the result.
fn model_on_loopback(arguments: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream, arguments));
        }
    });
    format!("http://{address}/v1")
}

fn answer(stream: TcpStream, arguments: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request: serde_json::Value = serde_json::from_slice(&body).ok()?;
    let last = request["messages"].as_array()?.last()?;
    let delta = if last["role"] == "tool" {
        serde_json::json!({"content": format!("The tool says: {}", last["content"].as_str()?)})
    } else {
        // Selects the tool with this parameter among the tools of the loop.
        let offered = request["tools"].as_array()?;
        let takes_number =
            |tool: &&serde_json::Value| tool["function"]["parameters"]["properties"]["number"].is_object();
        let name = &offered.iter().find(takes_number)?["function"]["name"];
        serde_json::json!({"tool_calls": [{
            "index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments},
        }]})
    };
    let reason = if delta.get("content").is_some() {
        "stop"
    } else {
        "tool_calls"
    };
    let first = serde_json::json!({"choices": [{"index": 0, "delta": delta}]});
    let second = serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let body = format!("data: {first}\n\ndata: {second}\n\ndata: [DONE]\n\n");
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .ok()
}

/// Puts a `cargo` in front of the real one that replaces what is already part of this test.
fn shim(folder: &Path, real_cargo: &str) {
    let this_test = std::env::current_exe().expect("this test is a program");
    let script = format!(
        r#"#!/bin/sh
case "$*" in
  "run --example embed") export {RUN_EXAMPLE}=1
    exec '{}' --exact repository::readme::readme_example_runs --nocapture ;;
  "run -- "*) shift 2; exec toolcell "$@" ;;
  "build --bin toolcell") exit 0 ;;
  "test") echo "cargo test" ; exit 0 ;;
esac
exec '{real_cargo}' "$@"
"#,
        this_test.display()
    );
    let path = folder.join("cargo");
    std::fs::write(&path, script).expect("the shim");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Downloads the crates of guests, of which a native build needs only some. If they are cached, nothing is downloaded;
/// if they are unavailable, the build of the README's tool reports which one is missing.
pub(super) fn fetch_for_guests(real_cargo: &str) {
    let _ = Command::new(real_cargo)
        .args(["fetch", "--quiet", "--locked", "--target", "wasm32-wasip2"])
        .current_dir(root())
        .stderr(Stdio::null())
        .status();
}

/// Does nothing by itself: a command of the README runs the example through it.
#[test]
fn readme_example_runs() {
    if std::env::var_os(RUN_EXAMPLE).is_some() {
        example::run();
    }
}

#[test]
fn readme_program_is_the_example_of_at_most_30_lines() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let (_, program) = readme.split_once("```rust\n").expect("the README has a program");
    let (program, rest) = program.split_once("```\n").expect("its block is closed");
    assert_eq!(
        program,
        include_str!("../../../runtime/cli/examples/embed/program.rs")
    );
    assert!(program.lines().count() <= 30);
    assert!(
        !rest.contains("```rust"),
        "every program of the README is one that runs"
    );
    assert!(readme.contains("\ncargo run --example embed\n"));
}

#[test]
fn every_readme_command_runs_and_prints_shown_output() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let is_command = |block: &Block| matches!(block.language.as_str(), "sh" | "sh fails");
    let blocks: Vec<Block> = blocks(&readme).into_iter().filter(is_command).collect();
    assert!(
        blocks.len() >= 4,
        "the README has only {} blocks of commands",
        blocks.len()
    );

    let home = tempfile::tempdir().expect("a folder");
    let clone = home.path().join("toolcell");
    copy_of_the_repository(&clone);
    let shims = home.path().join("shims");
    std::fs::create_dir(&shims).expect("a folder");
    let real_cargo = env!("CARGO");
    shim(&shims, real_cargo);
    fetch_for_guests(real_cargo);
    let binary = Path::new(env!("CARGO_BIN_EXE_toolcell"));

    let model = model_on_loopback(r#"{"number":1994}"#);
    let mut script = String::from("exec 2>&1\n");
    for (number, block) in blocks.iter().enumerate() {
        // The block that sets a key uses the model on loopback.
        let model = if block.text.contains("OPENAI_API_KEY") {
            &*model
        } else {
            ""
        };
        script.push_str(&format!(
            "echo '@@begin {number}'\nexport TOOLCELL_BASE_URL={model}\n{}\necho \"@@end {number} $?\"\n",
            block.text
        ));
    }
    let path = format!(
        "{}:{}:{}",
        shims.display(),
        binary.parent().expect("a folder").display(),
        std::env::var("PATH").expect("PATH")
    );
    let mut bash = Command::new("bash");
    bash.arg("-s")
        .current_dir(&clone)
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", home.path().join("target"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // The rest of the environment is cleared.
    super::keep_toolchain(&mut bash);
    let mut child = bash.spawn().expect("bash runs");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(script.as_bytes())
        .expect("bash reads");
    let output = child.wait_with_output().expect("bash ends");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // `cargo test readme -- --nocapture` prints the actual output, to update the README.
    println!("{output}");

    for (number, block) in blocks.iter().enumerate() {
        let begin = format!("@@begin {number}\n");
        let end = format!("@@end {number} ");
        let from = output
            .find(&begin)
            .unwrap_or_else(|| panic!("block at line {} never ran:\n{output}", block.line));
        let rest = &output[from + begin.len()..];
        let to = rest
            .find(&end)
            .unwrap_or_else(|| panic!("block at line {} never ended:\n{output}", block.line));
        let printed = &rest[..to];
        let status = rest[to + end.len()..].lines().next().expect("a status");
        assert_eq!(
            status != "0",
            block.language == "sh fails",
            "README.md:{}: status {status}\n{}\nprinted:\n{printed}",
            block.line,
            block.text
        );
        if let Some(line) = missing_line(&block.prints, printed) {
            panic!(
                "README.md:{}: `{line}` does not follow in what it prints:\n{printed}",
                block.line
            );
        }
    }
    assert!(
        readme.contains("\ncargo test\n"),
        "the README names the command that runs the suite"
    );
}
