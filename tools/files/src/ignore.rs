//! What `.gitignore` files leave out: build output and dependencies, which nobody wants to search.
//!
//! The rules are those of [gitignore](https://git-scm.com/docs/gitignore), for files found while walking down.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// Most bytes read of one file, and most rules kept of all files on the way: more than any real project has.
const MAX_BYTES: u64 = 64 << 10;
const MAX_RULES: usize = 2_000;

/// The rules of the directories on the way down.
#[derive(Default)]
pub(crate) struct Ignore {
    rules: Vec<Rule>,
}

struct Rule {
    matcher: GlobMatcher,
    /// Length of the path of the directory that the rule stands in, with its `/`.
    base: usize,
    /// Whether the pattern is matched against the path below `base`, not against the name.
    anchored: bool,
    directories_only: bool,
    /// Whether it takes something back in.
    negated: bool,
}

impl Ignore {
    /// Adds the rules of a directory, if it has any. `prefix` is its path below the start of the walk, with a `/` at the
    /// end. Returns a mark for [`Ignore::leave`].
    pub(crate) fn enter(&mut self, directory: &Path, prefix: &str) -> usize {
        let mark = self.rules.len();
        let mut text = Vec::new();
        if let Ok(file) = File::open(directory.join(".gitignore"))
            && file.take(MAX_BYTES).read_to_end(&mut text).is_ok()
        {
            let text = String::from_utf8_lossy(&text);
            let room = MAX_RULES.saturating_sub(mark);
            self.rules.extend(
                text.lines()
                    .filter_map(|line| Rule::parse(line, prefix.len()))
                    .take(room),
            );
        }
        mark
    }

    /// Forgets the rules that were added since a mark.
    pub(crate) fn leave(&mut self, mark: usize) {
        self.rules.truncate(mark);
    }

    /// Whether an entry is left out. The last rule that matches decides.
    pub(crate) fn ignores(&self, relative: &str, is_directory: bool) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        self.rules
            .iter()
            .rev()
            .filter(|rule| is_directory || !rule.directories_only)
            .find(|rule| {
                rule.matcher.is_match(if rule.anchored {
                    &relative[rule.base..]
                } else {
                    name
                })
            })
            .is_some_and(|rule| !rule.negated)
    }
}

impl Rule {
    fn parse(line: &str, base: usize) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (negated, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (directories_only, pattern) = match line.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let anchored = pattern.contains('/');
        let glob = GlobBuilder::new(pattern.trim_start_matches('/'))
            .literal_separator(true)
            .build()
            .ok()?;
        Some(Self {
            matcher: glob.compile_matcher(),
            base,
            anchored,
            directories_only,
            negated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignore(files: &[(&str, &str)]) -> Ignore {
        let mut ignore = Ignore::default();
        for (prefix, text) in files {
            ignore
                .rules
                .extend(text.lines().filter_map(|line| Rule::parse(line, prefix.len())));
        }
        ignore
    }

    #[test]
    fn patterns_match_names_paths_and_directories_as_git_has_it() {
        let rules = ignore(&[(
            "",
            "# comment\n\n*.log\n/target/\ndocs/*.html\nnode_modules/\n!keep.log\n**/tmp\n",
        )]);
        for (path, is_directory, ignored) in [
            ("a.log", false, true),
            ("deep/down/a.log", false, true),
            ("deep/keep.log", false, false),
            ("target", true, true),
            ("target", false, false),
            ("deep/target", true, false),
            ("docs/a.html", false, true),
            ("docs/deep/a.html", false, false),
            ("a/node_modules", true, true),
            ("a/b/tmp", false, true),
            ("src/main.rs", false, false),
        ] {
            assert_eq!(rules.ignores(path, is_directory), ignored, "{path}");
        }
    }

    #[test]
    fn rules_of_a_directory_start_there_and_win_over_those_above() {
        let rules = ignore(&[("", "*.txt\n"), ("sub/", "!*.txt\n/only\n")]);
        assert!(!rules.ignores("sub/a.txt", false));
        assert!(rules.ignores("sub/only", false));
        assert!(!rules.ignores("sub/deep/only", false));
    }
}
