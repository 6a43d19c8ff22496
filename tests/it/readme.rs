//! Every command of the README runs, in order, in a copy of the repository, and prints what the README says.
//!
//! A block ```` ```sh ```` is run by one bash from top to bottom, so that `cd` and `export` last; ```` ```sh fails ````
//! must end with a status other than 0. A block ```` ```text ```` directly after it is what it prints: each line must
//! appear, in order, and `…` stands for anything. Four things are replaced, because they are what runs this test:
//! `cargo run --release --` is the binary that was built, `cargo build --release` does nothing, `cargo test` is noted, and
//! the example is the one that is compiled into this test. The model is a server on loopback that answers as a provider
//! does. A block ```` ```rust ```` is that example, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::house::root;

/// The example of the README, which the block that runs it calls.
mod example {
    include!("../../runtime/cli/examples/embed/program.rs");

    pub(super) fn run() {
        main().expect("the example of the README runs");
    }
}

/// Set where the test [`the_example`] shall run the example.
const RUN_EXAMPLE: &str = "README_EXAMPLE";

/// A `sh` block, and the `text` block after it if there is one.
struct Block {
    line: usize,
    script: String,
    fails: bool,
    prints: Vec<String>,
}

fn blocks(readme: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(String, usize, Vec<&str>)> = None;
    let mut gap = usize::MAX;
    for (index, line) in readme.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.trim().to_owned(), index + 1, Vec::new())),
            (Some((info, start, lines)), Some(_)) => {
                match info.as_str() {
                    "sh" | "sh fails" => {
                        let fails = info == "sh fails";
                        let script = lines.join("\n");
                        blocks.push(Block {
                            line: *start,
                            script,
                            fails,
                            prints: Vec::new(),
                        });
                        gap = 0;
                    }
                    "text" if gap <= 1 => {
                        let block = blocks.last_mut().expect("a block stands before it");
                        block.prints = lines.iter().map(|l| (*l).to_owned()).collect();
                    }
                    _ => {}
                }
                open = None;
            }
            (Some((_, _, lines)), None) => lines.push(line),
            (None, None) => gap = gap.saturating_add(1),
        }
    }
    assert!(open.is_none(), "a block of the README is not closed");
    blocks
}

/// What comes in `output` after the first line that is like `line`, where `…` stands for anything within a line; `None`
/// if no line is.
fn after<'a>(line: &str, output: &'a str) -> Option<&'a str> {
    let pieces: Vec<&str> = line.trim().split('…').map(str::trim).collect();
    let is_like = |candidate: &str| {
        let mut rest = candidate;
        pieces.iter().all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    };
    let mut rest = output;
    while let Some((candidate, later)) = rest.split_once('\n') {
        if is_like(candidate) {
            return Some(later);
        }
        rest = later;
    }
    is_like(rest).then_some("")
}

/// Copies what git tracks (and what a person has added since), as a fresh clone would have it.
fn copy_of_the_repository(to: &Path) {
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

/// A server that speaks the Chat Completions wire: it asks for the tool that has a parameter `number`, with the arguments
/// given here, and then answers with the tool's own words.
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
        // The tool that takes these arguments, among those of the loop itself.
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

/// Puts a `cargo` before the real one that replaces what runs this test.
fn shim(folder: &Path, real_cargo: &str) {
    let this_test = std::env::current_exe().expect("this test is a program");
    let script = format!(
        r#"#!/bin/sh
case "$*" in
  "run --release --example embed") export {RUN_EXAMPLE}=1
    exec '{}' --exact readme::the_example --nocapture ;;
  "run --release -- "*) shift 3; exec toolcell "$@" ;;
  "build --release") exit 0 ;;
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

/// Downloads the crates that guests are built of, of which a build for this machine needs some only. Where they are there,
/// nothing is downloaded; where they cannot be, the build of the README's tool says which one is missing.
fn fetch_for_guests(real_cargo: &str) {
    let _ = Command::new(real_cargo)
        .args(["fetch", "--quiet", "--locked", "--target", "wasm32-wasip2"])
        .current_dir(root())
        .stderr(Stdio::null())
        .status();
}

/// Nothing by itself: a command of the README runs the example through it.
#[test]
fn the_example() {
    if std::env::var_os(RUN_EXAMPLE).is_some() {
        example::run();
    }
}

#[test]
fn the_program_of_the_readme_is_the_example_that_runs_and_has_at_most_thirty_lines() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let (_, program) = readme.split_once("```rust\n").expect("the README has a program");
    let (program, rest) = program.split_once("```\n").expect("its block is closed");
    assert_eq!(
        program,
        include_str!("../../runtime/cli/examples/embed/program.rs")
    );
    assert!(program.lines().count() <= 30);
    assert!(
        !rest.contains("```rust"),
        "every program of the README is one that runs"
    );
    assert!(readme.contains("\ncargo run --release --example embed\n"));
}

#[test]
fn every_command_of_the_readme_runs_and_prints_what_it_says() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let blocks = blocks(&readme);
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
        // The block that names a key asks the model on loopback.
        let model = if block.script.contains("OPENAI_API_KEY") {
            &*model
        } else {
            ""
        };
        script.push_str(&format!(
            "echo '@@begin {number}'\nexport TOOLCELL_BASE_URL={model}\n{}\necho \"@@end {number} $?\"\n",
            block.script
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
    // Where cargo and its packages are; everything else of the environment stays outside.
    let user = std::env::var("HOME").expect("HOME");
    for (name, default) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        bash.env(
            name,
            std::env::var(name).unwrap_or_else(|_| format!("{user}/{default}")),
        );
    }
    if let Ok(toolchain) = std::env::var("RUSTUP_TOOLCHAIN") {
        bash.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    let mut child = bash.spawn().expect("bash runs");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(script.as_bytes())
        .expect("bash reads");
    let output = child.wait_with_output().expect("bash ends");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // For whoever writes the README: `cargo test readme -- --nocapture` shows what to say.
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
            block.fails,
            "README.md:{}: status {status}\n{}\nprinted:\n{printed}",
            block.line,
            block.script
        );
        // Line after line, in this order.
        let mut rest = printed;
        for line in block.prints.iter().filter(|l| !l.trim().is_empty()) {
            rest = after(line, rest).unwrap_or_else(|| {
                panic!(
                    "README.md:{}: `{line}` does not follow in what it prints:\n{printed}",
                    block.line
                )
            });
        }
    }
    assert!(
        readme.contains("\ncargo test\n"),
        "the README names the command that runs the suite"
    );
}
