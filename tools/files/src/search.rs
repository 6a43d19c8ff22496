//! The tool `files_search`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use regex::{Regex, RegexBuilder};
use toolcell_sdk::files::{self, Lines, TextReader};
use toolcell_sdk::{Result, ToolError, log, progress, show, tool};

use crate::walk::{Kind, Pattern, Walk};

/// Maximum size of the answer, in bytes.
const MAX_TEXT: usize = 200_000;

/// Maximum bytes of a line that are searched. Minified code and exports of data have all of it in one line.
const MAX_LINE: usize = 8 << 20;

/// Maximum bytes of a line that are shown.
const MAX_SHOWN: usize = 400;

/// Maximum size of a file that is first searched as a whole, in bytes: most files have no match and need no split into
/// lines.
const MAX_WHOLE: u64 = 8 << 20;

/// Number of files between two progress reports.
const PROGRESS: u64 = 500;

/// Maximum memory of a compiled regular expression, in bytes.
const MAX_REGEX: usize = 4 << 20;

/// Search text files for a regular expression, line by line.
///
/// The answer has `path:line:text` for each line that matches and `path:line-text` for lines around it; a path with `:` or
/// control characters is a JSON string. Binary, hidden and git-ignored files are skipped. Use it to find where something
/// stands; read on with `files_read`.
#[tool(title = "Search files", read_only, idempotent)]
pub(crate) fn files_search(
    /// Regular expression (Rust syntax: no look-around, no back-references), matched within one line.
    #[alias("query", "regex")]
    pattern: String,
    /// Directory to search, or one file.
    #[default(".".into())]
    #[format("path")]
    #[alias("directory", "dir", "file_path", "folder")]
    path: String,
    /// Search only files that match this pattern, such as `*.rs` (names) or `src/**/*.rs` (paths below `path`).
    #[alias("include", "file_pattern")]
    glob: Option<String>,
    /// Search also the directories below it.
    #[default(true)]
    recursive: bool,
    /// Take upper and lower case as the same.
    #[default(false)]
    #[alias("case_insensitive")]
    ignore_case: bool,
    /// Lines shown before and after each match.
    #[default(0)]
    #[alias("context_lines")]
    context: u8,
    /// The most matching lines to show.
    #[default(200)]
    #[alias("limit", "max_results")]
    max_matches: u32,
    /// Search everything, also hidden files (names that start with a dot) and those that `.gitignore` files leave out.
    #[default(false)]
    all: bool,
) -> Result<String> {
    let regex = RegexBuilder::new(&pattern)
        .case_insensitive(ignore_case)
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_REGEX)
        .build()
        .map_err(|error| {
            // The error repeats the pattern.
            let error = error.to_string();
            ToolError::invalid(format_args!("`pattern`: {}", show::cut(&error, MAX_SHOWN)))
        })?;
    let glob = glob.as_deref().map(Pattern::parse).transpose()?;
    let mut search = Search {
        // These match the ends of the searched text, so a whole file may not match although a line does.
        whole_first: !pattern.contains(r"\A") && !pattern.contains(r"\z"),
        regex,
        context: context.into(),
        max_matches: max_matches.max(1),
        text: String::new(),
        matches: 0,
        files: 0,
        binary: 0,
        unreadable: 0,
        cut: 0,
        unreachable: 0,
        left_out: 0,
    };
    let start = Path::new(&path);
    let complete = if std::fs::metadata(start).is_ok_and(|metadata| metadata.is_file()) {
        search.file(start, &shown_path(&path))?
    } else {
        let walk = Walk {
            depth: if recursive { usize::MAX } else { 1 },
            all,
        };
        let walked = walk.visit(start, &mut |entry| {
            let wanted = glob.as_ref().is_none_or(|glob| glob.matches(&entry.relative));
            match entry.kind {
                Kind::File if wanted => {}
                // It may be a directory with such files.
                Kind::Unreachable => {
                    search.unreachable += 1;
                    return Ok(true);
                }
                _ => return Ok(true),
            }
            let shown = entry.path.strip_prefix(".").unwrap_or(&entry.path);
            search.file(&entry.path, &shown_path(shown))
        })?;
        search.left_out = walked.left_out;
        walked.complete
    };
    Ok(search.finish(&pattern, complete))
}

struct Search {
    regex: Regex,
    whole_first: bool,
    context: usize,
    max_matches: u32,
    text: String,
    matches: u32,
    files: u64,
    binary: u64,
    unreadable: u64,
    /// Lines that are longer than what is searched of them.
    cut: u64,
    /// Entries whose names are not UTF-8.
    unreachable: u64,
    left_out: usize,
}

impl Search {
    /// Searches one file. `false` if the answer is full.
    fn file(&mut self, path: &Path, shown: &str) -> Result<bool> {
        let reader = match files::open(path).and_then(|file| TextReader::from_file(path, file)) {
            Ok(Ok(reader)) => reader,
            Ok(Err(_)) => {
                self.binary += 1;
                return Ok(true);
            }
            Err(error) => {
                log::warn(&error);
                self.unreadable += 1;
                return Ok(true);
            }
        };
        self.files += 1;
        if self.files.is_multiple_of(PROGRESS) {
            progress::report_with(self.files, None, "files searched");
        }
        if self.whole_first && reader.len() <= MAX_WHOLE {
            let text = files::read_text(path, u64::MAX)?;
            if !self.regex.is_match(&text) {
                return Ok(true);
            }
        }
        self.lines(reader.lines(MAX_LINE), shown)
    }

    fn lines(&mut self, mut lines: Lines, shown: &str) -> Result<bool> {
        let mut before: VecDeque<(usize, String)> = VecDeque::new();
        let (mut number, mut after, mut last_shown) = (0, 0, 0);
        while let Some(line) = lines.next_line()? {
            number += 1;
            self.cut += u64::from(line.cut > 0);
            let Some(found) = self.regex.find(&line.text) else {
                if after > 0 {
                    after -= 1;
                    last_shown = number;
                    self.show(shown, number, '-', &line.text, 0);
                } else if self.context > 0 {
                    if before.len() == self.context {
                        before.pop_front();
                    }
                    let end = line.text.floor_char_boundary(MAX_SHOWN + 1);
                    before.push_back((number, line.text[..end].to_owned()));
                }
                continue;
            };
            if self.matches == self.max_matches || self.text.len() > MAX_TEXT {
                return Ok(false);
            }
            self.matches += 1;
            let first = before.front().map_or(number, |(number, _)| *number);
            if self.context > 0 && !self.text.is_empty() && first != last_shown + 1 {
                self.text.push_str("--\n");
            }
            for (number, text) in before.drain(..) {
                self.show(shown, number, '-', &text, 0);
            }
            self.show(shown, number, ':', &line.text, found.start());
            last_shown = number;
            after = self.context;
        }
        Ok(true)
    }

    /// Adds a line to the answer; of a long line, the part around the match.
    fn show(&mut self, path: &str, number: usize, mark: char, line: &str, at: usize) {
        let start = match at {
            at if at + MAX_SHOWN / 2 <= MAX_SHOWN => 0,
            at => line.floor_char_boundary(at - MAX_SHOWN / 2),
        };
        let end = line.floor_char_boundary((start + MAX_SHOWN).min(line.len()));
        let (open, close) = (
            if start > 0 { "[...]" } else { "" },
            if end < line.len() { "[...]" } else { "" },
        );
        let _ = writeln!(
            self.text,
            "{path}:{number}{mark}{open}{}{close}",
            &line[start..end]
        );
    }

    fn finish(mut self, pattern: &str, complete: bool) -> String {
        let mut notes = Vec::new();
        if self.binary > 0 {
            notes.push(format!("{} skipped", count(self.binary, "binary file")));
        }
        if self.unreadable > 0 {
            notes.push(format!("{} could not be read", count(self.unreadable, "file")));
        }
        if self.cut > 0 {
            let mib = MAX_LINE >> 20;
            notes.push(match self.cut {
                1 => format!("1 line is longer than {mib} MiB and was searched only so far"),
                n => format!("{n} lines are longer than {mib} MiB and were searched only so far"),
            });
        }
        match self.unreachable {
            0 => {}
            1 => notes.push("1 entry has a name that is not UTF-8 and cannot be opened".into()),
            n => notes.push(format!(
                "{n} entries have names that are not UTF-8 and cannot be opened"
            )),
        }
        if self.matches == 0 {
            self.text = format!(
                "No line matches {} in {}.",
                show::quoted(pattern),
                count(self.files, "text file")
            );
            if !complete {
                notes.push("the tree is too large and was not searched to its end".into());
            }
            if self.left_out > 0 {
                let entries = if self.left_out == 1 { "entry" } else { "entries" };
                notes.push(format!(
                    "{} hidden or git-ignored {entries} left out; `all` searches them",
                    self.left_out
                ));
            }
            if notes.is_empty() {
                return self.text;
            }
            return format!("{} [{}]", self.text, notes.join("; "));
        }
        if !complete {
            notes.insert(
                0,
                format!(
                    "there are more matches than the {} shown; use a narrower pattern, path or glob",
                    self.matches
                ),
            );
        }
        if !notes.is_empty() {
            let _ = writeln!(self.text, "[{}]", notes.join("; "));
        }
        self.text
    }
}

/// Path at the start of a line. One in which the line number could be searched in vain, or that could pass for a note of
/// this tool, is a JSON string.
fn shown_path(path: &(impl AsRef<OsStr> + ?Sized)) -> Cow<'_, str> {
    let path = path.as_ref();
    let bytes = path.as_encoded_bytes();
    if bytes.contains(&b':') || bytes.starts_with(b"[") {
        show::quoted_name(path).into()
    } else {
        show::name(path)
    }
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
            fs::write(root.path().join(name), bytes).unwrap();
        }
        root
    }

    fn search(root: &tempfile::TempDir, more: Value) -> String {
        let mut arguments = json!({"path": root.path()});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let text = testing::call::<files_search>(arguments).unwrap().to_text();
        text.replace(&format!("{}/", root.path().display()), "")
    }

    #[test]
    fn lines_that_match_are_shown_with_path_and_number() {
        let root = tree(&[("a.txt", b"one\ntwo\r\nOne\n"), ("d/b.rs", b"one")]);
        assert_eq!(
            search(&root, json!({"pattern": "^one$"})),
            "a.txt:1:one\nd/b.rs:1:one\n"
        );
        assert_eq!(search(&root, json!({"pattern": "two$"})), "a.txt:2:two\n");
        assert_eq!(
            search(&root, json!({"pattern": r"e\z", "glob": "*.txt"})),
            "a.txt:1:one\na.txt:3:One\n"
        );
        assert_eq!(
            search(
                &root,
                json!({"pattern": "ONE", "ignore_case": true, "glob": "*.txt"})
            ),
            "a.txt:1:one\na.txt:3:One\n"
        );
    }

    #[test]
    fn context_is_shown_once() {
        let root = tree(&[("a", b"1\n2\nx\n4\nx\n6\n7\n8\n9\nx\n")]);
        assert_eq!(
            search(&root, json!({"pattern": "x", "context": 1})),
            "a:2-2\na:3:x\na:4-4\na:5:x\na:6-6\n--\na:9-9\na:10:x\n"
        );
    }

    #[test]
    fn path_of_every_line_can_be_told_from_its_rest() {
        let root = tree(&[
            ("2026-01-02.md", b"1\nx\n"),
            ("a", b"1:1:x\n"),
            ("a:1", b"x\n"),
            ("a-1", b"1-x\n"),
            ("d/a:1:1", b"1:x\n"),
            ("\"q\"", b"x\n"),
        ]);
        let arguments = json!({"path": root.path(), "pattern": "x", "context": 1});
        let text = testing::call::<files_search>(arguments).unwrap().to_text();
        let text = text.replace(&format!("{}/", root.path().display()), "");
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "\"q\":1:x",
                "2026-01-02.md:1-1",
                "2026-01-02.md:2:x",
                "a:1:1:1:x",
                "a-1:1:1-x",
                "\"a:1\":1:x",
                "\"d/a:1:1\":1:1:x",
            ]
        );
        assert_eq!(shown_path("[x]/page.tsx"), "\"[x]/page.tsx\"");
        assert_eq!(shown_path("app/[x]/page.tsx"), "app/[x]/page.tsx");
    }

    #[test]
    fn no_match_reports_skipped_files() {
        let root = tree(&[("a", b"1\n"), ("b", b"x\0")]);
        assert_eq!(
            search(&root, json!({"pattern": "x"})),
            "No line matches `x` in 1 text file. [1 binary file skipped]"
        );
    }

    #[test]
    fn directories_below_are_left_out_on_request() {
        let root = tree(&[("a.txt", b"x"), ("d/b.txt", b"x")]);
        let found = |recursive: bool| search(&root, json!({"pattern": "x", "recursive": recursive}));
        assert_eq!(found(true), "a.txt:1:x\nd/b.txt:1:x\n");
        assert_eq!(found(false), "a.txt:1:x\n");
    }

    #[test]
    fn hidden_and_ignored_files_are_searched_on_request_only() {
        let root = tree(&[(".gitignore", b"/out/\n"), ("out/a", b"x"), (".h", b"x")]);
        assert_eq!(
            search(&root, json!({"pattern": "x"})),
            "No line matches `x` in 0 text files. [3 hidden or git-ignored entries left out; `all` searches them]"
        );
        assert_eq!(
            search(&root, json!({"pattern": "x", "all": true})),
            ".h:1:x\nout/a:1:x\n"
        );
    }

    #[test]
    fn matches_beyond_the_limit_are_announced() {
        let root = tree(&[("a", b"x\nx\nx\n")]);
        assert_eq!(
            search(&root, json!({"pattern": "x", "max_matches": 3})),
            "a:1:x\na:2:x\na:3:x\n"
        );
        assert!(
            search(&root, json!({"pattern": "x", "max_matches": 2}))
                .starts_with("a:1:x\na:2:x\n[there are more")
        );
    }

    #[test]
    #[cfg(unix)]
    fn odd_names_are_shown_escaped_and_counted_if_unreachable() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tree(&[("a\nb", b"x\n")]);
        let unreachable = root.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        fs::write(unreachable, "x").unwrap();
        let found = search(&root, json!({"pattern": "x"}));
        assert!(found.starts_with("\"a\\nb\":1:x\n"), "{found}");
        assert!(
            found.ends_with("[1 entry has a name that is not UTF-8 and cannot be opened]\n"),
            "{found}"
        );
        assert!(search(&root, json!({"pattern": "none"})).ends_with("cannot be opened]"));
        // It may be a directory with files of any name.
        let glob = json!({"pattern": "none", "glob": "*.txt"});
        assert!(search(&root, glob).ends_with("[1 entry has a name that is not UTF-8 and cannot be opened]"));
    }

    #[test]
    fn end_of_a_line_beyond_the_limit_is_told_to_be_left_out() {
        for (length, is_found) in [(MAX_LINE - 6, true), (MAX_LINE, false)] {
            let line = format!("{}needle\nnext", "a".repeat(length));
            let root = tree(&[("a", line.as_bytes())]);
            let text = search(&root, json!({"pattern": "needle", "context": 1}));
            assert_eq!(
                text.contains("needle\na:2-next"),
                is_found,
                "{}",
                &text[text.len() - 200..]
            );
            assert_eq!(text.contains("1 line is longer than 8 MiB"), !is_found);
            let text = search(&root, json!({"pattern": "next", "context": 1}));
            assert!(
                text.len() < 2 * MAX_SHOWN && text.contains("a:2:next"),
                "{}",
                text.len()
            );
        }
    }

    #[test]
    fn long_line_is_shown_around_its_match() {
        let line = format!("{}needle{}", "a".repeat(5000), "b".repeat(5000));
        let root = tree(&[("a", line.as_bytes())]);
        let text = search(&root, json!({"pattern": "needle"}));
        assert!(text.starts_with("a:1:[...]a") && text.contains("needle") && text.ends_with("b[...]\n"));
        assert!(text.len() < MAX_SHOWN + 50);
    }

    #[test]
    fn other_encodings_are_searched() {
        let root = tree(&[("a", b"\xff\xfeh\0i\0\n\0"), ("b", b"z\xfcrich hi")]);
        assert_eq!(
            search(&root, json!({"pattern": "^hi|hi$"})),
            "a:1:hi\nb:1:z\u{fffd}rich hi\n"
        );
    }

    #[test]
    fn invalid_pattern_and_missing_path_are_refused() {
        let call = |arguments| testing::call::<files_search>(arguments).unwrap_err();
        assert!(call(json!({"pattern": "("})).message().contains("unclosed group"));
        assert!(
            call(json!({"pattern": "a", "path": "/no/such/path"}))
                .message()
                .contains("does not exist")
        );
    }
}
