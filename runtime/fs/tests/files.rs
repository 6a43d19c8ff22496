//! Handling of unexpected files at a path.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::FdFlags;
use toolcell_fs::{PRIVATE, Refusal, Rules, SHARED};

const ALL: [fn(u64) -> Rules; 3] = [Rules::named, Rules::found, Rules::own];

fn pipe(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn refusal<T: std::fmt::Debug>(result: Result<T, toolcell_fs::FileError>) -> Refusal {
    result.unwrap_err().refusal().unwrap()
}

#[test]
fn only_regular_files_are_read_and_nothing_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("directory")).unwrap();
    pipe(&at("pipe"));
    let _socket = UnixListener::bind(at("socket")).unwrap();
    for rules in ALL.map(|rules| rules(10)) {
        assert_eq!(toolcell_fs::read(&at("file"), &rules).unwrap(), b"x");
        for (name, what) in [
            ("directory", "a directory"),
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("/dev/null", "a device"),
        ] {
            let found = toolcell_fs::read(&at(name), &rules);
            assert_eq!(refusal(found), Refusal::NotAFile(what), "{name} {rules:?}");
        }
        assert!(
            toolcell_fs::read(&at("missing"), &rules)
                .unwrap_err()
                .is_not_found()
        );
    }
}

#[test]
fn hard_linked_file_is_read_only_if_the_user_named_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("private"), "top secret").unwrap();
    fs::hard_link(at("private"), at("toolcell.toml")).unwrap();
    for name in ["private", "toolcell.toml"] {
        for rules in [Rules::found(10), Rules::own(10)] {
            let found = toolcell_fs::read(&at(name), &rules);
            assert_eq!(refusal(found), Refusal::HardLink(2), "{name}");
            let checked = toolcell_fs::check(&at(name), &rules);
            assert_eq!(refusal(checked), Refusal::HardLink(2), "{name}");
        }
        assert_eq!(
            toolcell_fs::read(&at(name), &Rules::named(10)).unwrap(),
            b"top secret"
        );
    }
    fs::remove_file(at("private")).unwrap();
    assert_eq!(
        toolcell_fs::read(&at("toolcell.toml"), &Rules::own(10)).unwrap(),
        b"top secret"
    );
}

#[test]
fn link_is_followed_only_where_the_user_named_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), "top secret").unwrap();
    pipe(&at("pipe"));
    symlink(at("secret"), at("link")).unwrap();
    symlink(at("pipe"), at("link to a pipe")).unwrap();
    symlink(at("missing"), at("dangling")).unwrap();
    assert_eq!(
        toolcell_fs::read(&at("link"), &Rules::named(10)).unwrap(),
        b"top secret"
    );
    let found = toolcell_fs::read(&at("link to a pipe"), &Rules::named(10));
    assert_eq!(refusal(found), Refusal::NotAFile("a pipe"));
    for rules in [Rules::found(10), Rules::own(10)] {
        for name in ["link", "link to a pipe", "dangling"] {
            assert_eq!(
                refusal(toolcell_fs::read(&at(name), &rules)),
                Refusal::Link,
                "{name}"
            );
        }
    }
    // A parent directory may be a link: only the end of the path is untrusted.
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/file"), "x").unwrap();
    symlink(at("directory"), at("way")).unwrap();
    assert_eq!(
        toolcell_fs::read(&at("way/file"), &Rules::found(10)).unwrap(),
        b"x"
    );
}

#[test]
fn file_beyond_size_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "1234567890").unwrap();
    assert_eq!(toolcell_fs::read(&path, &Rules::own(10)).unwrap().len(), 10);
    assert_eq!(
        refusal(toolcell_fs::read(&path, &Rules::own(9))),
        Refusal::TooLarge(9)
    );
    fs::write(&path, b"ab\xff").unwrap();
    assert_eq!(
        refusal(toolcell_fs::read_text(&path, &Rules::own(9))),
        Refusal::NotUtf8(2)
    );
}

#[test]
fn world_writable_file_is_read_only_where_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(
        refusal(toolcell_fs::read(&path, &Rules::found(9))),
        Refusal::WritableByAll
    );
    assert_eq!(refusal(toolcell_fs::append(&path)), Refusal::WritableByAll);
    assert_eq!(toolcell_fs::read(&path, &Rules::named(9)).unwrap(), b"x");
}

#[test]
fn file_is_replaced_whole_and_never_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("precious"), "mine").unwrap();
    symlink(at("precious"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    pipe(&at("pipe"));
    fs::create_dir(at("directory")).unwrap();
    for name in ["link", "dangling", "pipe", "directory"] {
        toolcell_fs::replace(&at(name), b"new", PRIVATE).unwrap_err();
        toolcell_fs::append(&at(name)).unwrap_err();
    }
    assert_eq!(fs::read(at("precious")).unwrap(), b"mine");
    assert!(!at("nowhere").exists());
    for (name, mode_wanted) in [("private", PRIVATE), ("shared", SHARED)] {
        toolcell_fs::replace(&at(name), b"first", mode_wanted).unwrap();
        toolcell_fs::replace(&at(name), b"2", mode_wanted).unwrap();
        assert_eq!(fs::read(at(name)).unwrap(), b"2");
        assert_eq!(mode(&at(name)) & 0o600, 0o600);
        assert_eq!(mode(&at(name)) & !mode_wanted, 0);
    }
    // A hard link to the old file keeps the old content: the new file is a different one.
    fs::hard_link(at("private"), at("second name")).unwrap();
    toolcell_fs::replace(&at("private"), b"3", PRIVATE).unwrap();
    assert_eq!(fs::read(at("second name")).unwrap(), b"2");
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn nothing_is_appended_to_a_file_with_a_second_hard_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (_, is_new) = toolcell_fs::append(&at("log")).unwrap();
    assert!(is_new);
    assert_eq!(mode(&at("log")), 0o600);
    let (_, is_new) = toolcell_fs::append(&at("log")).unwrap();
    assert!(!is_new);
    fs::hard_link(at("log"), at("other")).unwrap();
    assert_eq!(refusal(toolcell_fs::append(&at("log"))), Refusal::HardLink(2));
}

#[test]
fn directory_is_restricted_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let made = toolcell_fs::private_dir(&at("a/b")).unwrap();
    assert_eq!((mode(&made), mode(&at("a"))), (0o700, 0o700));
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
    toolcell_fs::private_dir(&at("open")).unwrap();
    assert_eq!(mode(&at("open")), 0o700);
    // Stricter permissions are kept.
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o500)).unwrap();
    toolcell_fs::private_dir(&at("open")).unwrap();
    assert_eq!(mode(&at("open")), 0o500);
    fs::write(at("file"), "").unwrap();
    assert_eq!(
        refusal(toolcell_fs::private_dir(&at("file"))),
        Refusal::NotADirectory("a regular file")
    );
}

/// Only root can create a file of another user. That other users' files are refused is also tested by their metadata.
#[test]
fn file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("directory")).unwrap();
    for name in ["file", "directory"] {
        std::os::unix::fs::chown(at(name), Some(65_534), None).unwrap();
    }
    let other = Refusal::OtherOwner(65_534);
    assert_eq!(refusal(toolcell_fs::read(&at("file"), &Rules::found(9))), other);
    assert_eq!(refusal(toolcell_fs::read(&at("file"), &Rules::own(9))), other);
    assert_eq!(refusal(toolcell_fs::append(&at("file"))), other);
    assert_eq!(refusal(toolcell_fs::replace(&at("file"), b"", PRIVATE)), other);
    assert_eq!(refusal(toolcell_fs::database(&at("file"))), other);
    assert_eq!(refusal(toolcell_fs::private_dir(&at("directory"))), other);
    assert_eq!(toolcell_fs::read(&at("file"), &Rules::named(9)).unwrap(), b"x");
}

#[test]
fn database_and_files_beside_it_belong_to_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let path = toolcell_fs::database(&at("a.sqlite")).unwrap();
    assert_eq!(mode(&path), 0o600);
    pipe(&at("b.sqlite"));
    assert_eq!(
        refusal(toolcell_fs::database(&at("b.sqlite"))),
        Refusal::NotAFile("a pipe")
    );
    fs::write(at("precious"), "mine").unwrap();
    for ending in ["-wal", "-shm", "-journal"] {
        let beside = at(&format!("a.sqlite{ending}"));
        symlink(at("precious"), &beside).unwrap();
        assert_eq!(
            refusal(toolcell_fs::database(&at("a.sqlite"))),
            Refusal::Link,
            "{ending}"
        );
        fs::remove_file(&beside).unwrap();
        pipe(&beside);
        assert_eq!(
            refusal(toolcell_fs::database(&at("a.sqlite"))),
            Refusal::NotAFile("a pipe"),
            "{ending}"
        );
        fs::remove_file(&beside).unwrap();
    }
    symlink(at("precious"), at("c.sqlite")).unwrap();
    assert_eq!(refusal(toolcell_fs::database(&at("c.sqlite"))), Refusal::Link);
    toolcell_fs::database(&at("a.sqlite")).unwrap();
}

#[test]
fn file_is_removed_only_while_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, "old").unwrap();
    let seen = fs::File::open(&path).unwrap();
    fs::rename(&path, dir.path().join("moved")).unwrap();
    assert!(!toolcell_fs::remove_if_same(&path, &seen).unwrap());
    fs::write(&path, "another user's").unwrap();
    assert!(!toolcell_fs::remove_if_same(&path, &seen).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"another user's");
    let seen = fs::File::open(&path).unwrap();
    assert!(toolcell_fs::remove_if_same(&path, &seen).unwrap());
    assert!(!path.exists());
    // What is the same and cannot be removed is an error.
    let seen = fs::File::open(dir.path()).unwrap();
    let error = toolcell_fs::remove_if_same(dir.path(), &seen).unwrap_err();
    assert!(error.to_string().contains("remove"), "{error}");
}

#[test]
fn size_limit_holds_for_checked_files_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "1234567890").unwrap();
    toolcell_fs::check(&path, &Rules::own(10)).unwrap();
    assert_eq!(
        refusal(toolcell_fs::check(&path, &Rules::own(9))),
        Refusal::TooLarge(9)
    );
    // A file that holds more than its metadata says.
    #[cfg(target_os = "linux")]
    assert_eq!(
        refusal(toolcell_fs::read(
            Path::new("/proc/self/status"),
            &Rules::named(9)
        )),
        Refusal::TooLarge(9)
    );
}

#[test]
fn opened_files_are_not_inherited_and_never_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    let read = ALL.map(|rules| toolcell_fs::open(&path, &rules(10)).unwrap());
    let (appended, _) = toolcell_fs::append(&path).unwrap();
    for (file, is_appended) in read.iter().map(|file| (file, false)).chain([(&appended, true)]) {
        let inherited = rustix::io::fcntl_getfd(file).unwrap();
        assert!(inherited.contains(FdFlags::CLOEXEC), "{is_appended}");
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        assert!(flags.contains(OFlags::NONBLOCK), "{is_appended}");
        assert_eq!(flags.contains(OFlags::APPEND), is_appended);
        assert_eq!(flags.contains(OFlags::RDWR), is_appended);
    }
}

#[test]
fn link_that_replaces_a_file_is_never_followed() {
    let is_harmless = |error: &toolcell_fs::FileError| matches!(error.refusal(), Some(Refusal::Link));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), "top secret").unwrap();
    fs::write(at("file"), "x").unwrap();
    let swap = || {
        for _ in 0..200 {
            symlink(at("secret"), at("new")).unwrap();
            fs::rename(at("new"), at("file")).unwrap();
            fs::write(at("new"), "x").unwrap();
            fs::rename(at("new"), at("file")).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let swapping = scope.spawn(swap);
        while !swapping.is_finished() {
            match toolcell_fs::read(&at("file"), &Rules::own(100)) {
                Ok(content) => assert_eq!(content, b"x"),
                Err(error) => assert!(is_harmless(&error), "{error}"),
            }
            match toolcell_fs::append(&at("file")) {
                Ok((file, _)) => assert_eq!(file.metadata().unwrap().len(), 1),
                Err(error) => assert!(is_harmless(&error), "{error}"),
            }
        }
    });
}

#[test]
fn path_that_cannot_be_examined_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "x").unwrap();
    let open = fs::File::open(at("file")).unwrap();
    assert!(toolcell_fs::remove_if_same(&at("file/below"), &open).is_err());
    let below = toolcell_fs::read(&at("file/below"), &Rules::own(9)).unwrap_err();
    assert!(!below.is_not_found());
    // The names of the files beside this one are too long.
    assert!(toolcell_fs::database(&at(&"d".repeat(255))).is_err());
    assert!(toolcell_fs::database(&at("file/below")).is_err());
}

#[test]
fn size_limit_is_shown_in_its_largest_unit() {
    for (limit, shown) in [
        (0, "larger than 0 bytes"),
        (1_023, "larger than 1023 bytes"),
        (1 << 10, "larger than 1 KiB"),
        ((1 << 10) + 1, "larger than 1025 bytes"),
        (1_025 << 10, "larger than 1025 KiB"),
        (3 << 20, "larger than 3 MiB"),
    ] {
        assert!(Refusal::TooLarge(limit).to_string().ends_with(shown), "{limit}");
    }
}

#[test]
fn file_of_a_killed_process_is_removed_after_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let age = Duration::from_secs(600);
    let make = |name: &str, seconds: u64| {
        let path = dir.path().join(name);
        let file = File::create(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
        path
    };
    let old = make(".toolcell-new-Ab12cD", 601);
    let others = [
        make(".toolcell-new-Ab12cE", 500),
        make(".toolcell-new-notes.txt", 9_000),
        make(".toolcell-new-Ab-2cD", 9_000),
        make("toolcell-new-Ab12cD", 9_000),
    ];
    let link = dir.path().join(".toolcell-new-Ab12cF");
    symlink(&others[0], &link).unwrap();
    toolcell_fs::remove_unfinished(dir.path(), age).unwrap();
    assert!(!old.exists());
    assert!(others.iter().all(|path| path.exists()) && link.is_symlink());
}
