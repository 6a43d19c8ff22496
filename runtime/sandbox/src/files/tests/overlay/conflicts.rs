//! Changes by another program.

use super::*;

/// Every kind of change, and then a change of the directory by another program.
#[tokio::test]
async fn conflicting_change_is_detected_and_nothing_is_committed() {
    enum Theirs {
        Writes,
        Deletes,
        MakesDirectory,
    }
    let cases = [
        ("changed", "a/x", Theirs::Writes),
        ("changed", "a/x", Theirs::Deletes),
        ("emptied", "c", Theirs::Writes),
        ("removed", "a/y", Theirs::Writes),
        ("renamed", "b/x", Theirs::Writes),
        ("replaced", "d", Theirs::Writes),
        ("added", "new", Theirs::Writes),
        ("added", "new", Theirs::MakesDirectory),
    ];
    for (case, path, theirs) in cases {
        let scratch = scratch();
        fs::write(scratch.host.join("d"), "old d").unwrap();
        let mut guest = scratch.guest("write");
        guest.write("a/x", b"mine").await.unwrap();
        guest.write("c", b"").await.unwrap();
        guest.unlink("a/y").await.unwrap();
        guest.rename((0, "b/x"), (0, "d")).await.unwrap();
        guest.write("new", b"mine").await.unwrap();
        // An unrelated change is not a conflict.
        fs::write(scratch.host.join("b/other"), "theirs").unwrap();
        assert_eq!(
            conflicts(&scratch.host, &scratch.overlay, &options()).unwrap(),
            [""; 0].map(PathBuf::from)
        );
        let at = scratch.host.join(path);
        match theirs {
            Theirs::Writes => fs::write(at, "theirs").unwrap(),
            Theirs::Deletes => fs::remove_file(at).unwrap(),
            Theirs::MakesDirectory => {
                fs::create_dir(&at).unwrap();
                fs::write(at.join("file"), "theirs").unwrap();
            }
        }
        let before = tree(&scratch.host);
        let refused = commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options());
        let Err(CommitError::Conflicts(found)) = refused else {
            panic!("{case}: {refused:?}");
        };
        assert_eq!(found.len(), 1, "{case}: {found:?}");
        assert_eq!(tree(&scratch.host), before, "{case}");
        assert!(
            !changes(&scratch.host, &scratch.overlay, &options())
                .unwrap()
                .found
                .is_empty(),
            "{case}"
        );
        commit(&scratch.host, &scratch.overlay, OnConflict::Overwrite, &options()).unwrap();
        assert_eq!(
            fs::read_to_string(scratch.host.join("new")).unwrap(),
            "mine",
            "{case}"
        );
    }
}

#[tokio::test]
async fn what_is_as_it_was_is_no_change() {
    let scratch = scratch();
    fs::create_dir_all(scratch.host.join("a/s/deep")).unwrap();
    fs::write(scratch.host.join("a/s/z"), "old").unwrap();
    let mut guest = scratch.guest("write");
    let none = [] as [&str; 0];
    guest.write("c", b"old c").await.unwrap();
    assert_eq!(scratch.changes(), none);
    guest.write("c", b"OLD c").await.unwrap();
    assert_eq!(scratch.changes(), ["~c"]);
    guest.write("c", b"old c").await.unwrap();
    for (target, changes) in [("c", &none[..]), ("a", &["~l"])] {
        guest.unlink("l").await.unwrap();
        guest.symlink(target, "l").await.unwrap();
        assert_eq!(scratch.changes(), changes, "{target}");
    }
    guest.unlink("l").await.unwrap();
    guest.write("l", b"c").await.unwrap();
    assert_eq!(scratch.changes(), ["~l"]);
    guest.unlink("l").await.unwrap();
    guest.symlink("c", "l").await.unwrap();
    // A directory that is made anew has lost what it held.
    for path in ["a/s/z", "a/x", "a/y"] {
        guest.unlink(path).await.unwrap();
    }
    for path in ["a/s/deep", "a/s", "a"] {
        guest.rmdir(path).await.unwrap();
    }
    guest.mkdir("a").await.unwrap();
    assert_eq!(scratch.changes(), ["-a/s", "-a/x", "-a/y"]);
    guest.mkdir("a/s").await.unwrap();
    assert_eq!(scratch.changes(), ["-a/s/deep", "-a/s/z", "-a/x", "-a/y"]);
    guest.rmdir("a/s").await.unwrap();
    guest.write("a/s", b"a file").await.unwrap();
    assert_eq!(scratch.changes(), ["~a/s", "-a/x", "-a/y"]);
}

#[tokio::test]
async fn link_changed_elsewhere_is_a_conflict() {
    for (theirs, is_conflict) in [("c", false), ("b/x", true)] {
        let scratch = scratch();
        let mut guest = scratch.guest("write");
        guest.unlink("l").await.unwrap();
        guest.symlink("a/x", "l").await.unwrap();
        fs::remove_file(scratch.host.join("l")).unwrap();
        symlink(theirs, scratch.host.join("l")).unwrap();
        let found = conflicts(&scratch.host, &scratch.overlay, &options()).unwrap();
        assert_eq!(found.len(), usize::from(is_conflict), "{theirs}");
    }
}

/// The same change twice is not a conflict.
#[tokio::test]
async fn identical_change_by_another_program_is_not_a_conflict() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.write("a/x", b"same").await.unwrap();
    guest.unlink("a/y").await.unwrap();
    fs::write(scratch.host.join("a/x"), "same").unwrap();
    fs::remove_file(scratch.host.join("a/y")).unwrap();
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
}

/// A file may hold what the link that it replaces leads to.
#[tokio::test]
async fn file_and_link_in_place_of_each_other_are_changes() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.unlink("l").await.unwrap();
    guest.write("l", b"old c").await.unwrap();
    for (path, target) in [("a/x", "y"), ("b/x", "missing")] {
        guest.unlink(path).await.unwrap();
        guest.symlink(target, path).await.unwrap();
    }
    assert_eq!(scratch.changes(), ["~a/x", "~b/x", "~l"]);
}

#[tokio::test]
async fn unchanged_copy_is_not_committed() {
    use std::os::unix::fs::MetadataExt as _;
    let scratch = scratch();
    let number = |path: &str| fs::symlink_metadata(scratch.host.join(path)).unwrap().ino();
    let before = [number("a/x"), number("c")];
    let mut guest = scratch.guest("write");
    guest.write("a/x", b"old a/x").await.unwrap();
    guest.write("c", b"new").await.unwrap();
    assert_eq!(scratch.changes(), ["~c"]);
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
    assert_eq!(number("a/x"), before[0], "it is the same file");
    assert_ne!(number("c"), before[1]);
}

#[tokio::test]
async fn cancelled_commit_changes_nothing() {
    let scratch = scratch();
    scratch.guest("write").write("c", b"new").await.unwrap();
    let before = tree(&scratch.host);
    let options = options();
    options.cancellation.cancel();
    let done = commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options);
    assert!(matches!(done, Err(CommitError::Cancelled(_))), "{done:?}");
    assert_eq!(tree(&scratch.host), before);
    assert!(changes(&scratch.host, &scratch.overlay, &options).is_err());
    assert_eq!(scratch.changes(), ["~c"]);
}

#[tokio::test]
async fn search_for_conflicts_can_be_cancelled_at_any_point() {
    for (path, is_conflict) in [("a/x", false), ("new", true)] {
        let scratch = scratch();
        scratch.guest("write").write(path, b"mine").await.unwrap();
        if is_conflict {
            fs::create_dir(scratch.host.join(path)).unwrap();
            fs::write(scratch.host.join(path).join("file"), "theirs").unwrap();
        }
        let all = vec![Path::new(path).join("file"); usize::from(is_conflict)];
        let mut pieces = 0;
        loop {
            let (found, _) =
                cancelled_after(pieces, || conflicts(&scratch.host, &scratch.overlay, &options()));
            match found {
                Ok(found) => break assert_eq!(found, all, "{pieces}"),
                Err(_) => pieces += 1,
            }
        }
        assert!(pieces > 4, "{pieces}");
    }
}

#[tokio::test]
async fn change_below_a_link_that_leads_out_is_a_conflict() {
    let scratch = scratch();
    scratch.guest("write").write("a/x", b"mine").await.unwrap();
    fs::rename(scratch.host.join("a"), scratch.host.join("../out")).unwrap();
    symlink("../out", scratch.host.join("a")).unwrap();
    let found = conflicts(&scratch.host, &scratch.overlay, &options()).unwrap();
    assert_eq!(found, ["a", "a/x"].map(Path::new));
}
