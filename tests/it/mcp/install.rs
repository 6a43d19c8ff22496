//! `toolcell mcp install`: entries in the files of clients, which start the server.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;

/// Clients with their files below the home directory, and what is in them.
const CLIENTS: [(&str, &str, &str); 6] = [
    ("claude-code", ".claude.json", "{\"numStartups\": 3}"),
    (
        "cursor",
        ".cursor/mcp.json",
        "{\n  \"mcpServers\": {\n    // mine\n    \"other\": {\"command\": \"x\", \"env\": {\"KEY\": \"1\"}}\n  }\n}\n",
    ),
    ("gemini", ".gemini/settings.json", "{}"),
    (
        "zed",
        ".config/zed/settings.json",
        "// Zed\n{\n  \"theme\": \"One\",\n}\n",
    ),
    ("codex", ".codex/config.toml", "model = \"m\" # mine\n"),
    (
        "goose",
        ".config/goose/config.yaml",
        "# mine\nextensions:\n  developer:\n    enabled: true\n",
    ),
];

fn path(user: &User, name: &str) -> std::path::PathBuf {
    user.home().join(name)
}

fn read(user: &User, name: &str) -> String {
    std::fs::read_to_string(path(user, name)).unwrap()
}

#[test]
fn entry_of_a_client_is_shown_written_and_removed() {
    for (client, file, text) in CLIENTS {
        let user = User::new();
        let path = path(&user, file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let arguments = ["--", "--tool", "text"];
        let install = ["mcp", "install", client];
        let shown = user
            .run(&[&install[..], &["--dry-run"], &arguments].concat())
            .ended(0);
        assert!(shown.stdout.contains("--tool"), "{client}: {}", shown.stdout);
        assert_eq!(read(&user, file), text, "{client}");
        let written = user.run(&[&install[..], &arguments].concat()).ended(0);
        assert_eq!(written.stdout, shown.stdout, "{client}");
        let new = read(&user, file);
        assert!(new.contains("mcp") && new.contains("serve"), "{client}: {new}");
        for kept in ["mine", "// Zed", "numStartups", "developer"] {
            assert_eq!(text.contains(kept), new.contains(kept), "{client}: {new}");
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{client}");
        assert_eq!(read(&user, &format!("{file}.toolcell-backup")), text, "{client}");
        let again = user.run(&[&install[..], &arguments].concat()).ended(0);
        assert!(
            again.stdout.is_empty() && again.stderr.contains("nothing to change"),
            "{client}"
        );
        user.run(&[&install[..], &["--remove"]].concat()).ended(0);
        assert!(!read(&user, file).contains("--tool"), "{client}");
        let nothing = user.run(&[&install[..], &["--remove"]].concat()).ended(0);
        assert!(nothing.stderr.contains("nothing to remove"), "{client}");
    }
}

#[test]
fn installed_entry_starts_the_server() {
    let user = User::new();
    // There is no such file yet.
    user.run(&[
        "mcp", "install", "vscode", "--name", "mine", "--", "--tool", "text",
    ])
    .ended(0);
    let file = path(&user, ".config/Code/User/mcp.json");
    let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let entry = &value["servers"]["mine"];
    assert_eq!(entry["type"], "stdio");
    let words = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut child = Command::new(entry["command"].as_str().unwrap())
        .args(words(&entry["args"]))
        .env("HOME", user.home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize("2025-11-25")});
    writeln!(input, "{request}").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut answer)
        .unwrap();
    assert!(answer.contains("\"serverInfo\""), "{answer}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn file_of_a_client_that_cannot_be_changed_is_left() {
    let user = User::new();
    let file = ".cursor/mcp.json";
    std::fs::create_dir_all(user.home().join(".cursor")).unwrap();
    for wrong in ["{\"mcpServers\": [", "{\"mcpServers\": []}", "[]"] {
        std::fs::write(path(&user, file), wrong).unwrap();
        let seen = user.run(&["mcp", "install", "cursor"]).ended(3);
        assert!(
            seen.stderr.contains("add this by hand") && seen.stderr.contains("\"serve\""),
            "{}",
            seen.stderr
        );
        assert_eq!(read(&user, file), wrong);
        assert!(!path(&user, ".cursor/mcp.json.toolcell-backup").exists());
    }
    // What the server would refuse is refused now.
    std::fs::write(path(&user, file), "{}").unwrap();
    for wrong in [
        &["--grant", "nothing"][..],
        &["--http", "127.0.0.1:0"],
        &["--unknown"],
    ] {
        user.run(&[&["mcp", "install", "cursor", "--"], wrong].concat())
            .ended(2);
    }
    user.run(&["mcp", "install", "cursor", "--name", "a b"]).ended(2);
    assert_eq!(read(&user, file), "{}");
}

#[test]
fn linked_file_of_a_client_stays_a_link() {
    let user = User::new();
    std::fs::create_dir_all(user.home().join(".cursor")).unwrap();
    user.file("dotfiles.json", "{}");
    let link = path(&user, ".cursor/mcp.json");
    std::os::unix::fs::symlink(user.work().join("dotfiles.json"), &link).unwrap();
    user.run(&["mcp", "install", "cursor"]).ended(0);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&link).unwrap().contains("serve"));
}

#[test]
fn entry_has_paths_in_full_and_arguments_that_work() {
    let user = User::new();
    user.probe("mine.wasm", &crate::probe::Probe::default());
    user.file("tools/a.txt", "");
    let install = ["mcp", "install", "cursor", "--"];
    let work = user.work().canonicalize().unwrap();
    let work = work.to_str().unwrap();
    user.run(
        &[
            &install[..],
            &["--tool", "./mine.wasm", "--grant=read=tools", "--scratch", "s"],
        ]
        .concat(),
    )
    .ended(0);
    let file: Value = serde_json::from_str(&read(&user, ".cursor/mcp.json")).unwrap();
    let expected = json!([
        "mcp",
        "serve",
        "--tool",
        format!("{work}/mine.wasm"),
        format!("--grant=read={work}/tools:/tools"),
        "--scratch",
        format!("{work}/s"),
    ]);
    assert_eq!(file["mcpServers"]["toolcell"]["args"], expected);
    let before = read(&user, ".cursor/mcp.json");
    for (wrong, code) in [
        (["--tool", "nope"], 2),
        (["--grant", "read=gone"], 3),
        (["--tool", "./no.wasm"], 7),
    ] {
        let seen = user.run(&[&install[..], &wrong].concat()).ended(code);
        assert!(seen.stderr.starts_with("error: "), "{}", seen.stderr);
    }
    assert_eq!(read(&user, ".cursor/mcp.json"), before);
    user.file("own.toml", "");
    user.run(&["--config", "own.toml", "mcp", "install", "cursor"])
        .ended(0);
    assert!(read(&user, ".cursor/mcp.json").contains(&format!("{work}/own.toml")));
}

#[test]
fn configuration_that_a_variable_names_is_in_the_entry() {
    let mut user = User::new();
    user.file("own.toml", "");
    user.var("TOOLCELL_CONFIG", "own.toml");
    user.run(&["mcp", "install", "cursor", "--", "--tool", "text"])
        .ended(0);
    let file: Value = serde_json::from_str(&read(&user, ".cursor/mcp.json")).unwrap();
    let own = user.work().canonicalize().unwrap().join("own.toml");
    assert_eq!(
        file["mcpServers"]["toolcell"]["args"],
        json!(["--config", own, "mcp", "serve", "--tool", "text"])
    );
}

#[test]
fn install_warns_about_files_of_the_working_directory() {
    let user = User::new();
    let install = ["mcp", "install", "cursor", "--dry-run", "--", "--tool", "text"];
    let told = user.run(&install).ended(0).stderr;
    assert!(!told.contains("warning"), "{told}");
    user.run(&["lock", "--tool", "text"]).ended(0);
    let told = user.run(&[&install[..], &["--locked"]].concat()).ended(0).stderr;
    assert!(
        told.contains("warning: the server looks for `toolcell.lock` in the directory in which Cursor"),
        "{told}"
    );
    user.file("toolcell.toml", "deny = [\"private\"]\n");
    let told = user.run(&install).ended(0).stderr;
    assert!(
        told.contains("warning: `toolcell.toml` of this project"),
        "{told}"
    );
}

#[test]
fn list_in_the_place_of_entries_is_named() {
    let user = User::new();
    let file = ".config/goose/config.yaml";
    std::fs::create_dir_all(path(&user, file).parent().unwrap()).unwrap();
    std::fs::write(path(&user, file), "extensions:\n  - a\n").unwrap();
    let seen = user.run(&["mcp", "install", "goose"]).ended(3);
    let why = "`extensions` in it has no entries with names";
    assert!(seen.stderr.contains(why), "{}", seen.stderr);
}
