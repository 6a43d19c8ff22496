//! What stands where Toolcell reads and writes: links, pipes, devices, files of others. Nothing of it is followed, waited
//! for or overwritten.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::cli_person::Person;
use crate::probe::Probe;

const CALL: [&str; 3] = ["call", "text_count", r#"{"text": "a"}"#];

const STATE: &str = ".local/state/toolcell";
const DATA: &str = ".local/share/toolcell";

/// A call that uses a bucket.
const MEMORY: [&str; 5] = ["call", "memory_tasks", "{}", "--grant", "keyvalue=memory"];

fn mkfifo(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A file of the user that a project must not learn a line of.
const PRIVATE_LINE: &str = "private-line = of another file";

fn private_file(person: &Person) -> std::path::PathBuf {
    let path = person.home().join("private");
    std::fs::write(&path, format!("{PRIVATE_LINE}\n")).unwrap();
    path
}

#[test]
fn a_linked_project_file_shows_no_line_of_its_target() {
    let person = Person::new();
    symlink(private_file(&person), person.work().join("toolcell.toml")).unwrap();
    for arguments in [&CALL[..], &["config", "check"], &["tool", "list"]] {
        let seen = person.run(arguments).ended(3);
        assert!(!seen.stderr.contains("private-line"), "{}", seen.stderr);
        assert!(seen.stderr.contains("it is a symbolic link"), "{}", seen.stderr);
    }
    // Also where it leads nowhere, and where the next one above is fine.
    std::fs::remove_file(person.work().join("toolcell.toml")).unwrap();
    symlink("nowhere", person.work().join("toolcell.toml")).unwrap();
    person.run(&CALL).ended(3);
}

#[test]
fn a_linked_lock_is_neither_read_nor_written_through() {
    let person = Person::new();
    let private = private_file(&person);
    let lock = person.work().join("toolcell.lock");
    symlink(&private, &lock).unwrap();
    let seen = person.run(&["lock", "--tool", "text"]).ended(3);
    assert!(seen.stderr.contains("it is a symbolic link"), "{}", seen.stderr);
    assert_eq!(
        std::fs::read_to_string(&private).unwrap(),
        format!("{PRIVATE_LINE}\n")
    );
    let seen = person.run(&[&CALL[..], &["--locked"]].concat()).ended(3);
    assert!(!seen.stderr.contains("private-line"), "{}", seen.stderr);
    // A link to nothing does not make a file elsewhere.
    std::fs::remove_file(&lock).unwrap();
    symlink(person.home().join("made"), &lock).unwrap();
    person.run(&["lock", "--tool", "text"]).ended(3);
    assert!(!person.home().join("made").exists());
    // A second name of a file keeps what it had.
    std::fs::remove_file(&lock).unwrap();
    std::fs::hard_link(&private, &lock).unwrap();
    person.run(&["lock", "--tool", "text"]).ended(0);
    assert_eq!(
        std::fs::read_to_string(&private).unwrap(),
        format!("{PRIVATE_LINE}\n")
    );
    person.run(&[&CALL[..], &["--locked"]].concat()).ended(0);
}

#[test]
fn a_configuration_in_the_home_may_be_a_link() {
    let person = Person::new();
    let elsewhere = person.home().join("dotfiles.toml");
    std::fs::write(&elsewhere, "[loop]\nmax_steps = 3\n").unwrap();
    symlink(&elsewhere, person.home().join(".config/toolcell/config.toml")).unwrap();
    let seen = person.run(&["config", "check"]).ended(0);
    assert!(seen.stdout.contains('3'), "{}", seen.stdout);
}

#[test]
fn a_project_file_that_everybody_may_write_is_refused() {
    let person = Person::new();
    person.file("toolcell.toml", "[loop]\nmax_steps = 3\n");
    let path = person.work().join("toolcell.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let seen = person.run(&CALL).ended(3);
    assert!(
        seen.stderr.contains("every user of this machine"),
        "{}",
        seen.stderr
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).unwrap();
    person.run(&CALL).ended(0);
}

/// Only root can give a file to somebody else; by which metadata files are refused is tested in `toolcell-fs`.
#[test]
fn a_project_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let person = Person::new();
    person
        .file("toolcell.toml", "[loop]\nmax_steps = 3\n")
        .file("a/b", "");
    std::os::unix::fs::chown(person.work().join("toolcell.toml"), Some(65_534), None).unwrap();
    let mut below = person.command(&CALL);
    below.current_dir(person.work().join("a"));
    let output = below.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("it belongs to another user (uid 65534)"),
        "{stderr}"
    );
    assert!(stderr.contains("hint: "), "{stderr}");
}

#[test]
fn nothing_hangs_on_a_pipe_or_device_in_the_place_of_a_file() {
    let run = |place: &dyn Fn(&Person) -> std::path::PathBuf, arguments: &[&str], code: i32| {
        let person = Person::new();
        person.file("samples.json", "[{}]");
        let path = place(&person);
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        mkfifo(&path);
        let seen = person.run(arguments);
        assert_eq!(seen.code, code, "{arguments:?} {}", seen.stderr);
        if path.parent().unwrap() != Path::new("/dev") {
            std::fs::remove_file(&path).unwrap();
        }
    };
    let locked = [&CALL[..], &["--locked"]].concat();
    let work = |name: &'static str| move |person: &Person| person.work().join(name);
    let home = |name: String| move |person: &Person| person.home().join(&name);
    run(&work("toolcell.toml"), &CALL, 3);
    run(&work("toolcell.lock"), &locked, 3);
    run(&work("toolcell.lock"), &["lock", "--tool", "text"], 3);
    run(&work("a.wasm"), &["call", "./a.wasm", "{}"], 7);
    run(
        &work("samples.json"),
        &["tool", "calibrate", "text_count", "samples.json"],
        2,
    );
    run(
        &work("script.json"),
        &["run", "x", "--provider", "scripted", "--model", "script.json"],
        3,
    );
    run(&home(".config/toolcell/config.toml".into()), &CALL, 3);
    run(&home(format!("{STATE}/sessions.sqlite")), &["session", "list"], 3);
    run(
        &home(format!("{STATE}/sessions.sqlite-wal")),
        &["session", "list"],
        3,
    );
    run(&home(format!("{STATE}/approvals.json")), &["approval", "list"], 3);
    run(&home(format!("{DATA}/buckets.sqlite")), &MEMORY, 3);
    let device = Person::new();
    device.run(&["call", "/dev/zero", "{}"]).ended(7);
    device.run(&["--config", "/dev/zero", "config", "check"]).ended(3);
    device
        .run(&["run", "x", "--provider", "scripted", "--model", "/dev/zero"])
        .ended(3);
}

#[test]
fn state_that_leads_elsewhere_is_not_used_or_changed() {
    for (file, arguments) in [
        (format!("{STATE}/sessions.sqlite"), &["session", "list"][..]),
        (format!("{STATE}/approvals.json"), &["approval", "list"]),
        (
            format!("{STATE}/approvals.json"),
            &["approval", "forget", "--all"],
        ),
        (format!("{DATA}/buckets.sqlite"), &MEMORY),
    ] {
        let person = Person::new();
        let path = person.home().join(&file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let target = person.home().join("target");
        for content in ["", "mine"] {
            std::fs::write(&target, content).unwrap();
            let _ = std::fs::remove_file(&path);
            symlink(&target, &path).unwrap();
            person.run(arguments).ended(3);
            assert_eq!(std::fs::read_to_string(&target).unwrap(), content, "{file}");
        }
    }
}

#[test]
fn state_and_data_are_kept_where_only_their_owner_looks() {
    let person = Person::new();
    let dirs = [person.home().join(STATE), person.home().join(DATA)];
    std::fs::create_dir_all(&dirs[1]).unwrap();
    std::fs::set_permissions(&dirs[1], std::fs::Permissions::from_mode(0o777)).unwrap();
    person.run(&["run", "hello"]).ended(0);
    person.run(&MEMORY).ended(0);
    for dir in &dirs {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    for file in ["sessions.sqlite", "../../share/toolcell/buckets.sqlite"] {
        assert_eq!(mode(&dirs[0].join(file)), 0o600, "{file}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dirs[1], Some(65_534), None).unwrap();
        let seen = person.run(&MEMORY).ended(3);
        assert!(seen.stderr.contains("another user"), "{}", seen.stderr);
    }
}

#[test]
fn a_component_may_be_a_link_that_the_user_named() {
    let person = Person::new();
    person.probe("real.wasm", &Probe::default());
    symlink("real.wasm", person.work().join("link.wasm")).unwrap();
    person.run(&["call", "./link.wasm", "{}"]).ended(0);
}
