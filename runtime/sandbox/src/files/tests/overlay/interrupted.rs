//! State of an overlay after a commit was cancelled, killed or kept from its work.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{FlockOperation, flock};

use super::commit::{Scratch, tree};
use crate::files::overlay::{CommitError, cancelled_after, changes, discard};

#[test]
fn commit_can_be_cancelled_at_any_point() {
    let mut pieces = 0;
    loop {
        let scratch = Scratch::new(
            &["a/x", "a/y", "c", "old/deep/x", "old/y", "made/x"],
            &["a/x", "a/new/z", "c/inside", "d", "made/y"],
            &["old", "made"],
        );
        let listed = changes(&scratch.host(""), &scratch.overlay(), &scratch.options)
            .unwrap()
            .found;
        let (done, was_used) = cancelled_after(pieces, || scratch.commit());
        let (done, is_whole) = match done {
            Err(CommitError::Cancelled(done)) => (done, false),
            done => (done.unwrap(), true),
        };
        // What is said to be carried out is what is not listed any more.
        let left = changes(&scratch.host(""), &scratch.overlay(), &scratch.options).unwrap();
        for change in &listed {
            let is_done = done.found.contains(change);
            let is_left = left.found.contains(change);
            assert!(is_done || is_left, "{pieces} {change:?}");
        }
        let names = tree(&scratch.host(""));
        assert!(!names.keys().any(|name| name.contains(".toolcell")), "{names:?}");
        // Doing it again comes to the same end.
        scratch.commit().unwrap();
        let expected = [
            ("a", "/"),
            ("a/new", "/"),
            ("a/new/z", "upper a/new/z"),
            ("a/x", "upper a/x"),
            ("a/y", "host a/y"),
            ("c", "/"),
            ("c/inside", "upper c/inside"),
            ("d", "upper d"),
            ("made", "/"),
            ("made/y", "upper made/y"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(tree(&scratch.host("")), BTreeMap::from(expected), "{pieces}");
        assert_eq!(
            is_whole,
            !was_used || done.found.len() == listed.len(),
            "{pieces}"
        );
        if is_whole {
            assert!(pieces > 20);
            return;
        }
        pieces += 1;
    }
}

#[test]
fn files_that_a_killed_commit_left_are_removed() {
    let name = |digit: &str| format!(".toolcell-commit-{}", digit.repeat(32));
    for throws_away in [false, true] {
        let scratch = Scratch::new(&["sub/x"], &["new"], &[]);
        let work = scratch.overlay().join("work");
        fs::create_dir(&work).unwrap();
        for (digit, at) in [("a", "sub"), ("b", ""), ("c", "nothing")] {
            fs::write(work.join(name(digit)), at).unwrap();
        }
        for (digit, at) in [("a", "sub"), ("b", ""), ("e", "sub")] {
            fs::write(scratch.host(at).join(name(digit)), "half").unwrap();
        }
        if throws_away {
            discard(&scratch.host(""), &scratch.overlay()).unwrap();
        } else {
            scratch.commit().unwrap();
        }
        assert!(!scratch.host("sub").join(name("a")).exists());
        assert!(!scratch.host("").join(name("b")).exists());
        // A file that cannot be proved to be ours stays.
        assert!(scratch.host("sub").join(name("e")).exists());
        assert_eq!(scratch.host("new").exists(), !throws_away);
    }
}

#[test]
fn record_outside_of_the_directory_removes_nothing() {
    let name = format!(".toolcell-commit-{}", "d".repeat(32));
    let scratch = Scratch::new(&["sub/x"], &[], &[]);
    let work = scratch.overlay().join("work");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir(scratch.dir.path().join("out")).unwrap();
    let outside = scratch.dir.path().join("out").join(&name);
    fs::write(&outside, "theirs").unwrap();
    symlink("../out", scratch.host("way")).unwrap();
    for at in ["../out", "way", "/", "sub/../../out"] {
        fs::create_dir_all(&work).unwrap();
        fs::write(work.join(&name), at).unwrap();
        scratch.commit().unwrap();
        assert!(outside.exists(), "{at}");
    }
}

#[test]
fn two_do_not_carry_the_same_changes_out_at_one_time() {
    let scratch = Scratch::new(&[], &["new"], &[]);
    let other = File::open(scratch.overlay()).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(scratch.commit().is_err());
    assert!(discard(&scratch.host(""), &scratch.overlay()).is_err());
    drop(other);
    scratch.commit().unwrap();
    assert!(scratch.host("new").exists());
}

#[test]
fn record_of_a_killed_commit_is_kept_until_it_is_dealt_with() {
    let name = |digit: &str| format!(".toolcell-commit-{}", digit.repeat(32));
    // A socket is skipped, so that the overlay stays.
    let scratch = Scratch::new(&["sub/x"], &["new"], &[]);
    let _socket = UnixListener::bind(scratch.upper("socket")).unwrap();
    let work = scratch.overlay().join("work");
    fs::create_dir(&work).unwrap();
    let padded = |length: usize| format!("sub{}", "/".repeat(length - 3));
    for (digit, at) in [
        ("a", "nothing".to_owned()),
        ("b", "n".repeat(300)),
        ("c", padded(4_096)),
        ("d", padded(4_097)),
    ] {
        fs::write(work.join(name(digit)), at).unwrap();
    }
    // What is no file is no record.
    fs::write(work.join("note"), "sub").unwrap();
    symlink("note", work.join(name("e"))).unwrap();
    for digit in ["c", "d", "e"] {
        fs::write(scratch.host("sub").join(name(digit)), "half").unwrap();
    }
    assert_eq!(scratch.skipped(), ["socket"]);
    for (digit, is_recorded, is_there) in [
        ("a", false, false),
        ("b", true, false),
        ("c", false, false),
        ("d", false, true),
        ("e", false, true),
    ] {
        let recorded = work.join(name(digit)).symlink_metadata().is_ok();
        let there = scratch.host("sub").join(name(digit)).exists();
        assert_eq!((recorded, there), (is_recorded, is_there), "{digit}");
    }
}

#[test]
fn removal_below_a_directory_that_is_gone_is_done() {
    let scratch = Scratch::new(&["sub/x", "other"], &[], &["sub/x", "other"]);
    fs::remove_dir_all(scratch.host("sub")).unwrap();
    assert_eq!(scratch.skipped(), [""; 0]);
    assert!(!scratch.host("other").exists());
}

#[test]
fn changes_of_a_directory_that_is_gone_can_be_discarded() {
    let scratch = Scratch::new(&[], &["new"], &[]);
    fs::create_dir(scratch.overlay().join("work")).unwrap();
    // What cannot be looked at might be there.
    let unknown = scratch.dir.path().join("n".repeat(300));
    assert!(discard(&unknown, &scratch.overlay()).is_err());
    assert!(scratch.upper("new").exists());
    fs::remove_dir(scratch.host("")).unwrap();
    discard(&scratch.host(""), &scratch.overlay()).unwrap();
    assert!(!scratch.upper("new").exists());
}
