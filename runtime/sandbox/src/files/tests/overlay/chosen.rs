//! Changes that are committed or discarded by their paths.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::commit::Scratch;
use super::{options, scratch};
use crate::files::overlay::{
    CommitError, CommitOptions, OnConflict, changes, commit, conflicts, discard_only,
};

fn paths(names: &[&str]) -> BTreeSet<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

impl Scratch {
    fn left(&self) -> Vec<String> {
        let left = changes(&self.host(""), &self.overlay(), &self.options).unwrap();
        let shown = |path: &Path| path.display().to_string();
        left.found.iter().map(|change| shown(&change.path)).collect()
    }

    fn commit_only(&mut self, names: &[&str]) -> Vec<String> {
        self.options.only = Some(paths(names));
        let done = self.commit().unwrap();
        assert!(done.skipped.is_empty(), "{:?}", done.skipped);
        self.options.only = None;
        done.found
            .iter()
            .map(|change| change.path.display().to_string())
            .collect()
    }

    fn discard(&self, names: &[&str]) -> std::io::Result<()> {
        discard_only(&self.host(""), &self.overlay(), &paths(names))
    }
}

#[test]
fn chosen_changes_are_committed_with_their_directories() {
    let mut scratch = Scratch::new(
        &["a", "b", "old/x", "old/y"],
        &["a", "b", "new/deep/file", "new/other", "old/z"],
        &["old/x"],
    );
    assert_eq!(
        scratch.commit_only(&["new/deep/file"]),
        ["new", "new/deep", "new/deep/file"]
    );
    assert_eq!(
        fs::read_to_string(scratch.host("new/deep/file")).unwrap(),
        "upper new/deep/file"
    );
    assert!(!scratch.host("new/other").exists());
    assert_eq!(scratch.left(), ["a", "b", "new/other", "old/x", "old/z"]);
    assert_eq!(scratch.commit_only(&["old"]), ["old/x", "old/z"]);
    assert_eq!(scratch.commit_only(&["a", "nothing"]), ["a"]);
    assert_eq!(fs::read_to_string(scratch.host("b")).unwrap(), "host b");
    assert_eq!(scratch.left(), ["b", "new/other"]);
    scratch.commit().unwrap();
    assert!(scratch.left().is_empty() && scratch.host("new/other").exists());
}

#[tokio::test]
async fn committed_file_can_be_changed_again_and_others_may_conflict() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.write("a/x", b"mine").await.unwrap();
    guest.write("c", b"mine").await.unwrap();
    fs::write(scratch.host.join("c"), "theirs").unwrap();
    let commit_only = |names: &[&str]| {
        let options = CommitOptions {
            only: Some(paths(names)),
            ..options()
        };
        commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options)
    };
    let refused = commit_only(&["c"]);
    assert!(matches!(refused, Err(CommitError::Conflicts(paths)) if paths == [PathBuf::from("c")]));
    assert_eq!(commit_only(&["a/x"]).unwrap().found.len(), 1);
    assert_eq!(fs::read_to_string(scratch.host.join("a/x")).unwrap(), "mine");
    // It starts from what it is now.
    guest.write("a/x", b"mine again").await.unwrap();
    let left = conflicts(&scratch.host, &scratch.overlay, &options()).unwrap();
    assert_eq!(left, [PathBuf::from("c")]);
    discard_only(&scratch.host, &scratch.overlay, &paths(&["c"])).unwrap();
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
    assert_eq!(
        fs::read_to_string(scratch.host.join("a/x")).unwrap(),
        "mine again"
    );
    assert_eq!(fs::read_to_string(scratch.host.join("c")).unwrap(), "theirs");
}

/// A link leads through what a guest put in the place of links of the user, which are there until that is carried out.
#[tokio::test]
async fn chosen_link_leads_out_through_no_change_that_stays() {
    let scratch = scratch();
    symlink("../secret", scratch.host.join("u")).unwrap();
    fs::create_dir(scratch.host.join("r")).unwrap();
    symlink("../../secret", scratch.host.join("r/q")).unwrap();
    let mut guest = scratch.guest("write");
    for old in ["u", "r/q"] {
        guest.unlink(old).await.unwrap();
    }
    guest.rmdir("r").await.unwrap();
    guest.symlink("r", "p").await.unwrap();
    for new in ["r", "r/q", "u"] {
        guest.mkdir(new).await.unwrap();
    }
    for (target, link) in [("u/x", "k"), ("p/q/x", "j")] {
        guest.write(target, b"x").await.unwrap();
        guest.symlink(target, link).await.unwrap();
    }
    let commit = |only: Option<&[&str]>| {
        let mut options = options();
        options.only = only.map(paths);
        commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options).unwrap()
    };
    for only in [&["k"][..], &["j", "p"]] {
        let skipped = commit(Some(only)).skipped;
        assert!(
            skipped.iter().any(|one| one.path == Path::new(only[0])),
            "{skipped:?}"
        );
        let link = scratch.host.join(only[0]);
        assert!(!link.is_symlink(), "{link:?} leads to {:?}", fs::read_link(&link));
    }
    let skipped = commit(None).skipped;
    assert!(skipped.is_empty(), "{skipped:?}");
    for link in ["k", "j"] {
        assert_eq!(fs::read(scratch.host.join(link)).unwrap(), b"x", "{link}");
    }
}

#[test]
fn chosen_changes_are_discarded() {
    let scratch = Scratch::new(
        &["a", "b", "dir/x"],
        &["a", "new/file", "new/other"],
        &["b", "dir"],
    );
    scratch.discard(&["a", "new/file"]).unwrap();
    assert_eq!(scratch.left(), ["b", "dir", "new", "new/other"]);
    scratch.discard(&["b"]).unwrap();
    assert_eq!(scratch.left(), ["dir", "new", "new/other"]);
    // A part of what was removed as a whole.
    let refused = scratch.discard(&["new", "dir/x"]).unwrap_err();
    assert!(
        refused.to_string().contains("it was removed with `dir`"),
        "{refused}"
    );
    assert_eq!(scratch.left(), ["dir", "new", "new/other"]);
    scratch.discard(&["new", "dir"]).unwrap();
    assert!(scratch.left().is_empty() && scratch.host("dir/x").exists());
    for wrong in ["", "..", "a/../../x", "/etc"] {
        assert!(scratch.discard(&[wrong]).is_err(), "{wrong}");
    }
}
