//! Log files of `[log]`: disabled by default, one of events and one of reasoning, with expiry.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::cli_user::User;

fn user(configuration: &str) -> User {
    let user = User::new();
    user.configure(configuration);
    let steps = json!({ "steps": [{ "reasoning": "First this.\nThen that.", "text": "Done." }] });
    user.file("script.json", steps.to_string());
    user
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn session_logs_are_written_only_with_log_directory() {
    let silent = user("");
    silent.run_script(&[]).ended(0);
    assert!(!silent.home().join(".config/toolcell/log").exists());

    let user = user("[log]\ndir = \"log\"\n");
    user.run_script(&[]).ended(0);
    let dir = user.home().join(".config/toolcell/log");
    let names = names(&dir);
    assert_eq!(names.len(), 2, "{names:?}");
    let id = names[0].strip_suffix(".log").unwrap();
    assert!(id.starts_with("toolcell-"), "{id}");
    assert_eq!(names[1], format!("{id}.reasoning.log"));
    let general = std::fs::read_to_string(dir.join(&names[0])).unwrap();
    let lines: Vec<Value> = general
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(format!("toolcell-{}", lines[0]["session"].as_str().unwrap()), id);
    assert_eq!(lines[1]["event"]["type"], "turn_started");
    assert_eq!(lines.last().unwrap()["event"]["type"], "turn_finished");
    let reasoning = std::fs::read_to_string(dir.join(&names[1])).unwrap();
    assert!(
        reasoning.ends_with("step 1\nFirst this.\nThen that.\n"),
        "{reasoning}"
    );
    // The next turn of the session appends to the same files.
    user.run(&[
        "session",
        "resume",
        "last",
        "again",
        "--provider",
        "scripted",
        "--model",
        "script.json",
    ])
    .ended(0);
    let longer = std::fs::read_to_string(dir.join(&names[0])).unwrap();
    assert!(longer.len() > general.len() && longer.starts_with(&general));
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(&names[0]))), (0o700, 0o600));
    }
}

/// Sets the modification time of a file to eight days ago.
fn make_old(path: &std::path::Path) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60))
        .unwrap();
}

#[test]
fn expired_logs_are_removed() {
    for (retention, kept) in [
        ("", false),
        ("retention = \"30d\"\n", true),
        ("retention = \"0s\"\n", true),
    ] {
        let user = user(&format!("[log]\ndir = \"~/log\"\n{retention}"));
        user.run_script(&[]).ended(0);
        let dir = user.home().join("log");
        let old: Vec<_> = names(&dir).iter().map(|name| dir.join(name)).collect();
        old.iter().for_each(|log| make_old(log));
        user.run_script(&[]).ended(0);
        assert_eq!((old.len(), names(&dir).len()), (2, if kept { 4 } else { 2 }));
        assert!(old.iter().all(|log| log.exists() == kept), "{retention:?}");
    }
}

#[test]
fn foreign_files_in_log_directory_are_kept() {
    let user = user("[log]\ndir = \"~/log\"\n");
    let dir = user.home().join("log");
    std::fs::create_dir(&dir).unwrap();
    for name in ["other-program.log", "toolcell-notes.log", "old.reasoning.log"] {
        std::fs::write(dir.join(name), "mine\n").unwrap();
        make_old(&dir.join(name));
    }
    user.run_script(&[]).ended(0);
    assert_eq!(names(&dir).len(), 5, "{:?}", names(&dir));
}

#[test]
fn unusable_log_directory_is_refused_with_location() {
    let user = user("[log]\ndir = \"config.toml\"\n");
    let seen = user.run_script(&[]).ended(3);
    assert!(
        seen.stderr
            .contains("error: the log directory `~/.config/toolcell/config.toml` cannot be used"),
        "{}",
        seen.stderr
    );
    assert!(
        seen.stderr.contains("in ~/.config/toolcell/config.toml, line 2"),
        "{}",
        seen.stderr
    );
}
