//! Links, pipes, devices and foreign files in the paths that Toolcell uses. They are neither followed, waited for, nor
//! overwritten.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::probe::Probe;
use crate::support::cli_user::User;

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

/// A line in a private file that a project must not learn.
const PRIVATE_LINE: &str = "private-line = of another file";

fn private_file(user: &User) -> std::path::PathBuf {
    let path = user.home().join("private");
    std::fs::write(&path, format!("{PRIVATE_LINE}\n")).unwrap();
    path
}

#[test]
fn symlinked_project_file_shows_no_line_of_its_target() {
    let user = User::new();
    symlink(private_file(&user), user.work().join("toolcell.toml")).unwrap();
    for arguments in [&CALL[..], &["config", "check"], &["tool", "list"]] {
        let seen = user.run(arguments).ended(3);
        assert!(!seen.stderr.contains("private-line"), "{}", seen.stderr);
        assert!(seen.stderr.contains("it is a symbolic link"), "{}", seen.stderr);
    }
    // Also for a dangling link, and if the next file above is valid.
    std::fs::remove_file(user.work().join("toolcell.toml")).unwrap();
    symlink("nowhere", user.work().join("toolcell.toml")).unwrap();
    user.run(&CALL).ended(3);
}

#[test]
fn hard_linked_project_file_shows_no_line_of_it() {
    let user = User::new();
    let project = user.work().join("toolcell.toml");
    std::fs::hard_link(private_file(&user), &project).unwrap();
    for arguments in [&CALL[..], &["config", "check"], &["tool", "list"]] {
        let seen = user.run(arguments).ended(3);
        assert!(!seen.stderr.contains("private-line"), "{}", seen.stderr);
        assert!(seen.stderr.contains("hard link"), "{}", seen.stderr);
    }
    let own = user.home().join(".config/toolcell/config.toml");
    std::fs::rename(&project, &own).unwrap();
    // Where the user keeps files under several names, that is the user's choice.
    std::fs::write(&own, "[loop]\nmax_steps = 3\n").unwrap();
    user.run(&CALL).ended(0);
}

#[test]
fn symlinked_lock_is_neither_read_nor_written_through() {
    let user = User::new();
    let private = private_file(&user);
    let lock = user.work().join("toolcell.lock");
    symlink(&private, &lock).unwrap();
    let seen = user.run(&["lock", "--tool", "text"]).ended(3);
    assert!(seen.stderr.contains("it is a symbolic link"), "{}", seen.stderr);
    assert_eq!(
        std::fs::read_to_string(&private).unwrap(),
        format!("{PRIVATE_LINE}\n")
    );
    let seen = user.run(&[&CALL[..], &["--locked"]].concat()).ended(3);
    assert!(!seen.stderr.contains("private-line"), "{}", seen.stderr);
    // A dangling link does not create a file elsewhere.
    std::fs::remove_file(&lock).unwrap();
    symlink(user.home().join("made"), &lock).unwrap();
    user.run(&["lock", "--tool", "text"]).ended(3);
    assert!(!user.home().join("made").exists());
    // A hard link keeps its content.
    std::fs::remove_file(&lock).unwrap();
    std::fs::hard_link(&private, &lock).unwrap();
    user.run(&["lock", "--tool", "text"]).ended(0);
    assert_eq!(
        std::fs::read_to_string(&private).unwrap(),
        format!("{PRIVATE_LINE}\n")
    );
    user.run(&[&CALL[..], &["--locked"]].concat()).ended(0);
}

#[test]
fn file_that_is_no_lock_is_not_replaced_by_one() {
    let user = User::new();
    user.file("toolcell.lock", "my own list\n");
    let seen = user.run(&["lock", "--tool", "text"]).ended(3);
    assert!(
        seen.stderr.contains("that `toolcell lock` did not write"),
        "{}",
        seen.stderr
    );
    let lock = user.work().join("toolcell.lock");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "my own list\n");
    // One with the marks of a conflict is written again.
    std::fs::remove_file(&lock).unwrap();
    user.run(&["lock", "--tool", "text"]).ended(0);
    let damaged = format!("<<<<<<< mine\n{}", std::fs::read_to_string(&lock).unwrap());
    std::fs::write(&lock, &damaged).unwrap();
    user.run(&["lock", "--tool", "text"]).ended(0);
    user.run(&[&CALL[..], &["--locked"]].concat()).ended(0);
}

#[test]
fn configuration_in_home_may_be_symlink() {
    let user = User::new();
    let elsewhere = user.home().join("dotfiles.toml");
    std::fs::write(&elsewhere, "[loop]\nmax_steps = 3\n").unwrap();
    symlink(&elsewhere, user.home().join(".config/toolcell/config.toml")).unwrap();
    let seen = user.run(&["config", "check"]).ended(0);
    assert!(seen.stdout.contains('3'), "{}", seen.stdout);
}

#[test]
fn world_writable_project_file_is_refused() {
    let user = User::new();
    user.file("toolcell.toml", "[loop]\nmax_steps = 3\n");
    let path = user.work().join("toolcell.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let seen = user.run(&CALL).ended(3);
    assert!(
        seen.stderr.contains("every user of this machine"),
        "{}",
        seen.stderr
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).unwrap();
    user.run(&CALL).ended(0);
}

/// Only root can change the owner of a file; the rules about metadata are tested in `toolcell-fs`.
#[test]
fn project_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let user = User::new();
    user.file("toolcell.toml", "[loop]\nmax_steps = 3\n")
        .file("a/b", "");
    std::os::unix::fs::chown(user.work().join("toolcell.toml"), Some(65_534), None).unwrap();
    let mut below = user.command(&CALL);
    below.current_dir(user.work().join("a"));
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
fn pipe_or_device_instead_of_file_does_not_hang() {
    let run = |place: &dyn Fn(&User) -> std::path::PathBuf, arguments: &[&str], code: i32| {
        let user = User::new();
        user.file("samples.json", "[{}]");
        let path = place(&user);
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        mkfifo(&path);
        let seen = user.run(arguments);
        assert_eq!(seen.code, code, "{arguments:?} {}", seen.stderr);
        if path.parent().unwrap() != Path::new("/dev") {
            std::fs::remove_file(&path).unwrap();
        }
    };
    let locked = [&CALL[..], &["--locked"]].concat();
    let work = |name: &'static str| move |user: &User| user.work().join(name);
    let home = |name: String| move |user: &User| user.home().join(&name);
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
    let device = User::new();
    device.run(&["call", "/dev/zero", "{}"]).ended(7);
    device.run(&["--config", "/dev/zero", "config", "check"]).ended(3);
    device
        .run(&["run", "x", "--provider", "scripted", "--model", "/dev/zero"])
        .ended(3);
}

#[test]
fn symlinked_state_is_not_used_or_changed() {
    for (file, arguments) in [
        (format!("{STATE}/sessions.sqlite"), &["session", "list"][..]),
        (format!("{STATE}/approvals.json"), &["approval", "list"]),
        (
            format!("{STATE}/approvals.json"),
            &["approval", "forget", "--all"],
        ),
        (format!("{DATA}/buckets.sqlite"), &MEMORY),
    ] {
        let user = User::new();
        let path = user.home().join(&file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let target = user.home().join("target");
        for content in ["", "mine"] {
            std::fs::write(&target, content).unwrap();
            let _ = std::fs::remove_file(&path);
            symlink(&target, &path).unwrap();
            user.run(arguments).ended(3);
            assert_eq!(std::fs::read_to_string(&target).unwrap(), content, "{file}");
        }
    }
}

#[test]
fn state_and_data_directories_are_private() {
    let user = User::new();
    let dirs = [user.home().join(STATE), user.home().join(DATA)];
    std::fs::create_dir_all(&dirs[1]).unwrap();
    std::fs::set_permissions(&dirs[1], std::fs::Permissions::from_mode(0o777)).unwrap();
    user.run(&["run", "hello"]).ended(0);
    user.run(&MEMORY).ended(0);
    for dir in &dirs {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    for file in ["sessions.sqlite", "../../share/toolcell/buckets.sqlite"] {
        assert_eq!(mode(&dirs[0].join(file)), 0o600, "{file}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dirs[1], Some(65_534), None).unwrap();
        let seen = user.run(&MEMORY).ended(3);
        assert!(seen.stderr.contains("another user"), "{}", seen.stderr);
    }
}

#[test]
fn component_named_by_user_may_be_symlink() {
    let user = User::new();
    user.probe("real.wasm", &Probe::default());
    symlink("real.wasm", user.work().join("link.wasm")).unwrap();
    user.run(&["call", "./link.wasm", "{}"]).ended(0);
}
