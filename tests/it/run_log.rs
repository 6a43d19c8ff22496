//! Log files of `[log]`: off by default, one of events and one of reasoning, old ones removed.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::cli_person::Person;

fn person(configuration: &str) -> Person {
    let person = Person::new();
    person.configure(configuration);
    let steps = json!({ "steps": [{ "reasoning": "First this.\nThen that.", "text": "Done." }] });
    person.file("script.json", steps.to_string());
    person
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
fn a_session_has_a_log_of_everything_and_one_of_the_reasoning_and_none_unless_a_directory_is_named() {
    let silent = person("");
    silent.run_script(&[]).ended(0);
    assert!(!silent.home().join(".config/toolcell/log").exists());

    let person = person("[log]\ndir = \"log\"\n");
    person.run_script(&[]).ended(0);
    let dir = person.home().join(".config/toolcell/log");
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
    // The next turn of the session goes into the same files.
    person
        .run(&[
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
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(&names[0]))), (0o700, 0o600));
    }
}

/// Makes a file look as if nobody had written to it for eight days.
fn make_old(path: &std::path::Path) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60))
        .unwrap();
}

#[test]
fn logs_are_removed_that_are_older_than_they_shall_be() {
    for (retention, kept) in [
        ("", false),
        ("retention = \"30d\"\n", true),
        ("retention = \"0s\"\n", true),
    ] {
        let person = person(&format!("[log]\ndir = \"~/log\"\n{retention}"));
        person.run_script(&[]).ended(0);
        let dir = person.home().join("log");
        let old: Vec<_> = names(&dir).iter().map(|name| dir.join(name)).collect();
        old.iter().for_each(|log| make_old(log));
        person.run_script(&[]).ended(0);
        assert_eq!((old.len(), names(&dir).len()), (2, if kept { 4 } else { 2 }));
        assert!(old.iter().all(|log| log.exists() == kept), "{retention:?}");
    }
}

#[test]
fn files_of_others_in_the_log_directory_stay() {
    let person = person("[log]\ndir = \"~/log\"\n");
    let dir = person.home().join("log");
    std::fs::create_dir(&dir).unwrap();
    for name in ["other-program.log", "toolcell-notes.log", "old.reasoning.log"] {
        std::fs::write(dir.join(name), "mine\n").unwrap();
        make_old(&dir.join(name));
    }
    person.run_script(&[]).ended(0);
    assert_eq!(names(&dir).len(), 5, "{:?}", names(&dir));
}

#[test]
fn a_log_directory_that_cannot_be_used_is_refused_with_its_place() {
    let person = person("[log]\ndir = \"config.toml\"\n");
    let seen = person.run_script(&[]).ended(3);
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
