//! The tool `files_list`.

use std::fmt::Write as _;
use std::path::Path;

use toolcell_sdk::{Result, show, tool};

use crate::walk::{Kind, Pattern, Walk};

/// Maximum number of listed entries; the rest is counted.
const MAX_LISTED: usize = 500;

/// List a directory: every entry with its path, directories with a `/` at the end, files with their size in bytes.
///
/// Use it to find out which files there are. To find files by what is in them, use `files_search`.
#[tool(title = "List files", read_only, idempotent)]
pub(crate) fn files_list(
    /// Path of the directory.
    #[default(".".into())]
    #[format("path")]
    #[alias("directory", "dir", "dir_path", "folder")]
    path: String,
    /// Levels of directories to list; 1 is the directory alone.
    #[default(1)]
    #[alias("max_depth")]
    depth: u8,
    /// List the directories below as well, whatever their depth.
    #[default(false)]
    recursive: bool,
    /// List only files that match this pattern, such as `*.rs` (names) or `src/**/*.rs` (paths below `path`), at any
    /// depth unless `depth` is given as well.
    #[alias("pattern")]
    glob: Option<String>,
    /// List everything, also hidden entries (names that start with a dot) and those that `.gitignore` files leave out.
    #[default(false)]
    all: bool,
) -> Result<String> {
    let pattern = glob.as_deref().map(Pattern::parse).transpose()?;
    let depth = match (&pattern, depth) {
        (Some(_), 1) => usize::from(u8::MAX),
        _ if recursive => usize::from(u8::MAX),
        (_, depth) => usize::from(depth.max(1)),
    };
    let mut listed = String::new();
    let (mut files, mut directories) = (0_usize, 0_usize);
    let mut unreachable = 0;
    let walked = Walk { depth, all }.visit(Path::new(&path), &mut |entry| {
        match (&pattern, entry.kind) {
            (Some(pattern), Kind::Unreachable) if !pattern.matches(&entry.relative) => {
                unreachable += 1;
                return Ok(true);
            }
            (Some(pattern), Kind::File | Kind::Other) if !pattern.matches(&entry.relative) => {
                return Ok(true);
            }
            (Some(_), Kind::Directory) => return Ok(true),
            (None, Kind::Directory) => directories += 1,
            (_, Kind::File | Kind::Other | Kind::Unreachable) => files += 1,
        }
        if files + directories <= MAX_LISTED {
            let name = match entry.kind {
                Kind::Directory => show::name(&format!("{}/", entry.relative)).into_owned(),
                _ => show::name(&entry.relative).into_owned(),
            };
            let _ = match entry.kind {
                Kind::Directory => writeln!(listed, "{name}"),
                Kind::File => writeln!(listed, "{name}\t{}", entry.size),
                Kind::Other => writeln!(listed, "{name}\t(link or special file)"),
                Kind::Unreachable => writeln!(listed, "{name}\t(name is not UTF-8, cannot be opened)"),
            };
        }
        Ok(true)
    })?;
    let total = files + directories;
    if total > MAX_LISTED {
        let _ = writeln!(
            listed,
            "[{} more entries are left out; name a directory further down or a narrower glob]",
            total - MAX_LISTED
        );
    }
    if !walked.complete {
        listed.push_str("[the tree is too large and was not walked to its end]\n");
    }
    match (total, &glob) {
        (0, Some(glob)) => listed.push_str(&format!(
            "No file below {} matches {}.\n",
            show::quoted(&path),
            show::quoted(glob)
        )),
        (0, None) => listed.push_str(&format!("{} is empty.\n", show::quoted(&path))),
        _ => {}
    }
    match unreachable {
        0 => {}
        1 => listed.push_str(
            "[1 entry has a name that is not UTF-8; if it is a directory, what is in it cannot be listed]\n",
        ),
        n => {
            let _ = writeln!(
                listed,
                "[{n} entries have names that are not UTF-8; what is in directories among them cannot be listed]"
            );
        }
    }
    if walked.left_out > 0 {
        let entries = if walked.left_out == 1 {
            "entry is"
        } else {
            "entries are"
        };
        let _ = writeln!(
            listed,
            "[{} hidden or git-ignored {entries} left out; `all` lists them]",
            walked.left_out
        );
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("src/deep")).unwrap();
        fs::write(root.path().join("b.txt"), "12345").unwrap();
        fs::write(root.path().join("a.md"), "").unwrap();
        fs::write(root.path().join("src/deep/c.rs"), "x").unwrap();
        root
    }

    fn list(root: &tempfile::TempDir, more: Value) -> String {
        let mut arguments = json!({"path": root.path()});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        testing::call::<files_list>(arguments).unwrap().to_text()
    }

    #[test]
    fn entries_are_sorted_files_first_with_sizes() {
        let root = tree();
        assert_eq!(list(&root, json!({})), "a.md\t0\nb.txt\t5\nsrc/\n");
        assert_eq!(
            list(&root, json!({"depth": 9})),
            "a.md\t0\nb.txt\t5\nsrc/\nsrc/deep/\nsrc/deep/c.rs\t1\n"
        );
        assert_eq!(
            list(&root, json!({"recursive": true})),
            list(&root, json!({"depth": 9}))
        );
    }

    #[test]
    fn hidden_and_ignored_entries_are_listed_on_request() {
        let root = tree();
        fs::write(root.path().join(".gitignore"), "*.md\n").unwrap();
        assert_eq!(
            list(&root, json!({})),
            "b.txt\t5\nsrc/\n[2 hidden or git-ignored entries are left out; `all` lists them]\n"
        );
        assert_eq!(
            list(&root, json!({"all": true})),
            ".gitignore\t5\na.md\t0\nb.txt\t5\nsrc/\n"
        );
    }

    #[test]
    fn glob_finds_files_at_any_depth() {
        let root = tree();
        assert_eq!(list(&root, json!({"glob": "*.rs"})), "src/deep/c.rs\t1\n");
        assert!(list(&root, json!({"glob": "*.py"})).ends_with("matches `*.py`.\n"));
        assert!(list(&tempfile::tempdir().unwrap(), json!({})).contains("is empty"));
    }

    #[test]
    fn entries_beyond_the_limit_are_counted() {
        let root = tempfile::tempdir().unwrap();
        for i in 0..MAX_LISTED {
            fs::write(root.path().join(format!("{i}")), "").unwrap();
        }
        assert!(!list(&root, json!({})).contains("left out"));
        fs::write(root.path().join("one more"), "").unwrap();
        let listed = list(&root, json!({}));
        assert_eq!(listed.lines().count(), MAX_LISTED + 1);
        assert!(listed.contains("[1 more entries are left out;"), "{listed}");
    }

    #[test]
    fn missing_directory_gets_suggestions() {
        let root = tree();
        let path = root.path().join("scr");
        let error = testing::call::<files_list>(json!({"path": path})).unwrap_err();
        assert!(error.message().ends_with("has a.md, b.txt, src/"), "{error}");
    }

    #[test]
    fn listing_a_file_is_an_error() {
        let root = tree();
        let error = testing::call::<files_list>(json!({"path": root.path().join("b.txt")})).unwrap_err();
        assert!(
            error.message().ends_with("b.txt` is a file, not a directory"),
            "{error}"
        );
    }

    #[test]
    #[cfg(unix)]
    fn odd_names_are_listed_on_one_line_each() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        for name in ["a\nb\t9", "\u{1b}[2J", "exe\u{202e}txt", "\"q\"", "plain"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        fs::create_dir(root.path().join("new\nline")).unwrap();
        fs::write(root.path().join("new\nline/x"), "").unwrap();
        fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "").unwrap();
        let listed = list(&root, json!({"depth": 2}));
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(
            lines,
            [
                "\"\\u001b[2J\"\t0",
                "\"\\\"q\\\"\"\t0",
                "\"a\\nb\\t9\"\t0",
                "caf\\xe9\t(name is not UTF-8, cannot be opened)",
                "\"exe\\u202etxt\"\t0",
                "plain\t0",
                "\"new\\nline/\"",
                "\"new\\nline/x\"\t0",
            ]
        );
    }

    #[test]
    fn links_are_listed_and_not_followed() {
        let root = tree();
        std::os::unix::fs::symlink(root.path(), root.path().join("src/loop")).unwrap();
        let listed = list(&root, json!({"depth": 9}));
        assert!(listed.contains("src/loop\t(link or special file)\n"), "{listed}");
        assert_eq!(listed.lines().count(), 6);
    }
}
