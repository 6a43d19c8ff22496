//! Every command of the guide runs and prints what the guide says, and every configuration in it is accepted.
//!
//! Each page is a user of its own with an empty home and an empty working directory, in which its blocks run in order:
//!
//! - ```` ```sh ```` by a shell of its own, and ends well; ```` ```sh fails ```` does not.
//! - ```` ```sh answers y n ```` at a terminal, where these answers are given to its questions. In an answer, `_` is a blank.
//! - ```` ```text ```` directly after a block of commands is what it prints, where `…` stands for anything in a line.
//! - ```` ```toml ```` is a configuration of the user, which `toolcell config check` accepts.
//! - ```` ```rust ```` is an example of the documentation of `toolcell-sdk`, and runs with its doc tests; on the page about
//!   embedding it is the example `assistant`.
//!
//! A page that builds something has the sources in `~/toolcell`, and cargo works without a network.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::readme::{copy_of_the_repository, fetch_for_guests};
use crate::repository::workspace::root;
use crate::support::cli_user::User;
use crate::support::pty::Terminal;
use crate::support::snippets::{Block, blocks, missing_line};

/// Columns and rows of the terminal in which questions are asked.
const SIZE: (u16, u16) = (100, 40);

/// The program of the page about embedding.
const ASSISTANT: &str = include_str!("../../../runtime/cli/examples/assistant/program.rs");

/// Set when the test of the program should run it.
const RUN_ASSISTANT: &str = "GUIDE_ASSISTANT";

mod assistant {
    include!("../../../runtime/cli/examples/assistant/program.rs");

    pub(super) fn run() {
        main().expect("the program of the guide runs");
    }
}

fn source() -> PathBuf {
    root().join("runtime/guide/src")
}

/// The pages by name, without the summary.
fn pages() -> BTreeSet<String> {
    std::fs::read_dir(source())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "SUMMARY.md")
        .collect()
}

/// A shell that runs a block as this user. Cargo finds the packages that were downloaded for this test. What a block starts in
/// the background ends with it, also if a command fails: it would hold the output open, and the test would wait for ever.
fn shell(user: &User, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_toolcell")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut command = user.program(
        "bash",
        &[
            "-e",
            "-c",
            &format!("exec 2>&1\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}"),
        ],
    );
    command.env("PATH", path).env("CARGO_NET_OFFLINE", "true");
    super::keep_toolchain(&mut command);
    command
}

/// Runs a block. What it printed, and whether it ended well.
fn run(user: &User, block: &Block) -> (String, bool) {
    if let Some(answers) = block.language.strip_prefix("sh answers ") {
        let (columns, rows) = SIZE;
        let mut terminal = Terminal::start_command(shell(user, &block.text), "dumb", columns, rows);
        for answer in answers.split(' ') {
            terminal.answer(&answer.replace('_', " "));
        }
        let code = terminal.finish();
        return (terminal.seen.replace('\r', ""), code == Some(0));
    }
    let output = shell(user, &block.text).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn every_command_of_the_guide_prints_what_it_says() {
    let mut wrong = Vec::new();
    let built = tempfile::tempdir().unwrap();
    let sdk_examples = std::fs::read_to_string(root().join("sdk/rust/src/lib.rs")).unwrap();
    for page in pages() {
        let text = std::fs::read_to_string(source().join(&page)).unwrap();
        let user = User::new();
        let builds = ["cargo build", "tool build"]
            .iter()
            .any(|build| text.contains(build));
        if builds {
            fetch_for_guests(env!("CARGO"));
            copy_of_the_repository(&user.home().join("toolcell"));
            // The crates that all pages need are built once.
            std::os::unix::fs::symlink(built.path(), user.work().join("target")).unwrap();
        }
        // A component that a page takes for one of a project.
        let prebuilt = user.home().join("toolcell/tools/prebuilt");
        std::fs::create_dir_all(&prebuilt).unwrap();
        std::fs::copy(
            root().join("tools/prebuilt/clock.wasm"),
            prebuilt.join("clock.wasm"),
        )
        .unwrap();
        for block in blocks(&text) {
            let at = format!("{page}:{}", block.line);
            match block.language.as_str() {
                "toml" => {
                    let file = user.home().join("snippet.toml");
                    std::fs::write(&file, &block.text).unwrap();
                    let checked = user.run(&["--config", file.to_str().unwrap(), "config", "check"]);
                    // The only settings that a build can lack.
                    let is_of_other_build = checked.stderr.contains("has no engine for local models");
                    if checked.code != 0 && !is_of_other_build {
                        wrong.push(format!("{at}: {}", checked.stderr));
                    }
                    continue;
                }
                "rust" if page == "embedding.md" => {
                    assert_eq!(block.text, ASSISTANT.trim_end());
                    continue;
                }
                "rust" => {
                    assert!(sdk_examples.contains(&page), "{at}: no doc test runs it");
                    continue;
                }
                "sh" | "sh fails" => {}
                language if language.starts_with("sh answers ") => {}
                other => {
                    wrong.push(format!("{at}: nothing looks at a block `{other}`"));
                    continue;
                }
            }
            let (printed, is_well) = run(&user, &block);
            if is_well == (block.language == "sh fails") {
                wrong.push(format!("{at}: it ends otherwise:\n{printed}"));
            } else if let Some(line) = missing_line(&block.prints, &printed) {
                wrong.push(format!("{at}: `{line}` does not follow in:\n{printed}"));
            }
        }
        if builds {
            // The sources contain the words that no file of a user may.
            std::fs::remove_dir_all(user.home().join("toolcell")).unwrap();
            std::fs::remove_file(user.work().join("target")).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_page_of_the_guide_is_in_its_summary() {
    let summary = std::fs::read_to_string(source().join("SUMMARY.md")).unwrap();
    let named: BTreeSet<String> = links(&summary).map(str::to_owned).collect();
    assert_eq!(named, pages());
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for page in pages() {
        let text = std::fs::read_to_string(source().join(&page)).unwrap();
        let commands = blocks(&text);
        assert!(!commands.is_empty(), "{page} shows no command");
        for link in links(&text) {
            let file = link.split('#').next().unwrap();
            assert!(source().join(file).exists(), "{page}: {link}");
        }
        let from_readme = format!("runtime/guide/src/{page}");
        assert!(readme.contains(&from_readme), "README.md does not link {page}");
    }
}

/// Targets of the links of a document, within the repository.
fn links(document: &str) -> impl Iterator<Item = &str> {
    document
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| !link.starts_with("http"))
}

#[test]
fn program_of_the_guide_asks_reports_and_continues() {
    if std::env::var_os(RUN_ASSISTANT).is_some() {
        return assistant::run();
    }
    let this = "repository::guide::program_of_the_guide_asks_reports_and_continues";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(RUN_ASSISTANT, "1")
        .current_dir(root())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    for line in [
        "may files_write run with {\"content\":\"milk\\n\",\"path\":\"list.txt\"}?",
        "files_write used ",
        "2 calls: Milk is on the list.",
        "Three litres, as I said.",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(!printed.contains("stock used"), "{printed}");
}
