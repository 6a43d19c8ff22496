//! Entries that a commit skips.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use toolcell_core::denial::{Denials, DeniedUse, PathDenial};

use crate::files::overlay::{Changes, CommitError, CommitOptions, OnConflict, changes, commit};

pub(super) struct Scratch {
    pub(super) dir: tempfile::TempDir,
    pub(super) options: CommitOptions,
}

impl Scratch {
    /// `gone` is marked as removed; of the others those that end with `/` are directories.
    pub(super) fn new(host: &[&str], upper: &[&str], gone: &[&str]) -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
            options: CommitOptions::default(),
        };
        for (root, paths) in [("host", host), ("changes/upper", upper), ("changes/gone", gone)] {
            let root = scratch.dir.path().join(root);
            fs::create_dir_all(&root).unwrap();
            for path in paths {
                let at = root.join(path);
                if path.ends_with('/') {
                    fs::create_dir_all(at).unwrap();
                } else {
                    fs::create_dir_all(at.parent().unwrap()).unwrap();
                    fs::write(at, format!("{} {path}", root.file_name().unwrap().display())).unwrap();
                }
            }
        }
        scratch
    }

    pub(super) fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join("host").join(path)
    }

    pub(super) fn upper(&self, path: &str) -> PathBuf {
        self.overlay().join("upper").join(path)
    }

    pub(super) fn overlay(&self) -> PathBuf {
        self.dir.path().join("changes")
    }

    pub(super) fn commit(&self) -> Result<Changes, CommitError> {
        commit(
            &self.host(""),
            &self.overlay(),
            OnConflict::Overwrite,
            &self.options,
        )
    }

    /// Skipped entries, equal for listing and committing.
    pub(super) fn skipped(&self) -> Vec<String> {
        let listed = changes(&self.host(""), &self.overlay(), &self.options).unwrap();
        let done = self.commit().unwrap();
        assert_eq!(paths(&listed), paths(&done));
        paths(&done)
    }
}

fn paths(changes: &Changes) -> Vec<String> {
    let skipped = changes.skipped.iter();
    let mut paths: Vec<String> = skipped.map(|one| one.path.display().to_string()).collect();
    paths.sort();
    paths
}

/// Paths with what is there: the text of a file, `/` for a directory.
pub(super) fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(name, "/".into());
                directories.push(path);
            } else {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

const REPOSITORY: [&str; 4] = ["mirror/HEAD", "mirror/objects/", "mirror/refs/", "mirror/config"];

#[test]
fn what_starts_programs_is_left_out_of_a_commit() {
    let mut scratch = Scratch::new(
        &[&REPOSITORY[..], &["lone/HEAD"]].concat(),
        &[
            "good",
            ".envrc",
            "mirror/config",
            "mirror/hooks/new",
            "lone/objects/",
            "toolcell.toml",
            "sub/.git/config",
        ],
        &[],
    );
    let left_out = [
        ".envrc",
        "lone/objects",
        "mirror/config",
        "mirror/hooks",
        "sub/.git",
        "sub/.git/config",
        "toolcell.toml",
    ];
    let listed = changes(&scratch.host(""), &scratch.overlay(), &scratch.options).unwrap();
    for path in left_out {
        assert!(paths(&listed).iter().any(|skipped| skipped == path), "{path}");
    }
    let reason = listed.skipped[0].reason.to_string();
    assert!(reason.contains("files that start programs"), "{reason}");
    scratch.commit().unwrap();
    assert_eq!(
        fs::read_to_string(scratch.host("mirror/config")).unwrap(),
        "host mirror/config"
    );
    assert_eq!(fs::read_to_string(scratch.host("good")).unwrap(), "upper good");
    assert!(!scratch.host(".envrc").exists() && !scratch.host("sub/.git").exists());

    scratch.options.denials.programs = true;
    assert_eq!(scratch.skipped(), ["toolcell.toml"]);
    assert_eq!(
        fs::read_to_string(scratch.host("mirror/config")).unwrap(),
        "upper mirror/config"
    );
}

#[test]
fn what_is_denied_is_left_out_of_a_commit() {
    let mut scratch = Scratch::new(
        &["private/key", "locked"],
        &["private/key", "private/new", "locked", "good"],
        &[],
    );
    let denial = |path: &str, uses| PathDenial {
        host: scratch.host(path),
        uses,
        by: format!("deny={path}"),
    };
    let paths = vec![
        denial("private", DeniedUse::All),
        denial("locked", DeniedUse::Change),
    ];
    scratch.options.denials = Denials {
        paths,
        ..Denials::default()
    };
    // The same file under another name.
    fs::hard_link(scratch.host("locked"), scratch.host("alias")).unwrap();
    fs::write(scratch.upper("alias"), "x").unwrap();
    assert_eq!(
        scratch.skipped(),
        ["alias", "locked", "private/key", "private/new"]
    );
    assert_eq!(
        fs::read_to_string(scratch.host("private/key")).unwrap(),
        "host private/key"
    );
    assert!(scratch.host("good").exists() && !scratch.host("private/new").exists());
}

/// Through such a link the denied path would lead to what is not denied.
#[test]
fn link_above_a_denied_path_is_left_out_of_a_commit() {
    let mut scratch = Scratch::new(&["other/key"], &[], &[]);
    symlink("other", scratch.upper("private")).unwrap();
    symlink("other", scratch.upper("public")).unwrap();
    let denial = PathDenial {
        host: scratch.host("private/key"),
        uses: DeniedUse::All,
        by: "deny=private/key".into(),
    };
    scratch.options.denials.paths.push(denial);
    assert_eq!(scratch.skipped(), ["private"]);
    assert!(scratch.host("public").is_symlink() && !scratch.host("private").is_symlink());
}

#[test]
fn what_starts_programs_stays_in_a_removed_directory() {
    let host = [&REPOSITORY[..], &["sub/.git/config", "sub/x", "old/x"]].concat();
    let scratch = Scratch::new(&host, &[], &["mirror", "sub", "old"]);
    let done = scratch.commit().unwrap();
    let skipped = paths(&done);
    for path in ["mirror", "mirror/HEAD", "sub", "sub/.git"] {
        assert!(
            skipped.iter().any(|skipped| skipped == path),
            "{path}: {skipped:?}"
        );
    }
    assert!(!scratch.host("sub/x").exists() && !scratch.host("old").exists());
    assert!(scratch.host("sub/.git/config").exists() && scratch.host("mirror/HEAD").exists());
}

#[test]
fn links_that_lead_out_are_left_out_of_a_commit() {
    let scratch = Scratch::new(&["dir/file"], &[], &[]);
    symlink("/etc", scratch.host("theirs")).unwrap();
    for (target, name) in [
        ("/etc/passwd", "absolute"),
        ("../x", "up"),
        ("dir/../../x", "crooked"),
        ("theirs/passwd", "through"),
        ("step", "chain"),
        ("theirs", "step"),
        ("b", "a"),
        ("a", "b"),
        (".", "here"),
        ("here/here/here/theirs", "dots"),
        ("self/x", "self"),
        ("dir/file", "fine"),
        ("fine", "again"),
        ("nothing", "broken"),
    ] {
        symlink(target, scratch.upper(name)).unwrap();
    }
    assert_eq!(
        scratch.skipped(),
        ["absolute", "chain", "crooked", "dots", "step", "through", "up"]
    );
    for name in ["fine", "again", "broken"] {
        assert!(scratch.host(name).is_symlink(), "{name}");
    }
}

#[test]
fn links_are_carried_out_that_lead_through_a_number_of_others() {
    const MOST: usize = 128;
    let scratch = Scratch::new(&["file"], &[], &[]);
    // Link `n` leads through `n` others.
    symlink("file", scratch.upper("l000")).unwrap();
    for number in 1..=MOST + 1 {
        let target = format!("l{:03}", number - 1);
        symlink(target, scratch.upper(&format!("l{number:03}"))).unwrap();
    }
    assert_eq!(scratch.skipped(), [format!("l{:03}", MOST + 1)]);
}

#[test]
fn nothing_is_carried_out_through_a_link() {
    let scratch = Scratch::new(&[".git/hooks/old"], &["way/pre-commit"], &[]);
    symlink(".git/hooks", scratch.host("way")).unwrap();
    assert_eq!(scratch.skipped(), [""; 0]);
    assert!(scratch.host("way/pre-commit").exists() && !scratch.host("way").is_symlink());
    assert!(!scratch.host(".git/hooks/pre-commit").exists());
}

#[test]
fn commit_keeps_holes_and_permissions() {
    const LENGTH: u64 = 1 << 40;
    let scratch = Scratch::new(&[], &["sparse", "tool"], &[]);
    let options = File::options().write(true).open(scratch.upper("sparse")).unwrap();
    options.set_len(LENGTH).unwrap();
    fs::set_permissions(scratch.upper("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(scratch.skipped(), [""; 0]);
    let metadata = fs::metadata(scratch.host("sparse")).unwrap();
    assert_eq!(metadata.len(), LENGTH);
    assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
    assert_eq!(fs::metadata(scratch.host("tool")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn what_is_denied_in_remade_directory_keeps_it_uncarried() {
    for denied in ["made/locked", "made/sub/locked"] {
        let mut scratch = Scratch::new(
            &["made/x", "made/locked", "made/sub/locked", "made/sub/y", "other"],
            &["made/new", "made/sub/z", "fine"],
            &["made", "other"],
        );
        let denial = PathDenial {
            host: scratch.host(denied),
            uses: DeniedUse::Change,
            by: "deny".into(),
        };
        scratch.options.denials.paths = vec![denial];
        // However often it is tried.
        for _ in 0..2 {
            let done = scratch.commit().unwrap();
            let skipped = paths(&done);
            assert!(skipped.contains(&"made".to_owned()), "{skipped:?}");
            assert!(skipped.contains(&denied.to_owned()), "{skipped:?}");
            let names = tree(&scratch.host(""));
            assert_eq!(names.get("fine").unwrap(), "upper fine");
            assert!(!names.contains_key("other"));
            for carried in ["made/new", "made/sub/z"] {
                assert!(!names.contains_key(carried), "{denied} {carried}");
                assert!(scratch.upper(carried).exists(), "{denied} {carried}");
            }
            assert_eq!(names[denied], format!("host {denied}"));
            assert!(scratch.overlay().join("gone/made").is_file(), "{denied}");
        }
        scratch.options.denials.paths.clear();
        assert_eq!(scratch.skipped(), [""; 0]);
        let expected = [
            ("fine", "upper fine"),
            ("made", "/"),
            ("made/new", "upper made/new"),
            ("made/sub", "/"),
            ("made/sub/z", "upper made/sub/z"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(tree(&scratch.host("")), BTreeMap::from(expected), "{denied}");
    }
}

#[test]
fn what_is_skipped_in_its_new_form_does_not_keep_the_rest() {
    let mut scratch = Scratch::new(
        &["made/x", "made/locked"],
        &["made/new", "made/locked"],
        &["made"],
    );
    let denial = PathDenial {
        host: scratch.host("made/locked"),
        uses: DeniedUse::Change,
        by: "deny".into(),
    };
    scratch.options.denials.paths = vec![denial];
    assert_eq!(scratch.skipped(), ["made/locked"]);
    let names = tree(&scratch.host("made"));
    assert_eq!(names.keys().collect::<Vec<_>>(), ["locked", "new"]);
    assert_eq!(names["locked"], "host made/locked");
    scratch.options.denials.paths.clear();
    assert_eq!(scratch.skipped(), [""; 0]);
    assert_eq!(tree(&scratch.host("made"))["locked"], "upper made/locked");
}
