//! Rules of `.gitignore` files, which exclude build output and dependencies.
//!
//! The rules are those of [gitignore](https://git-scm.com/docs/gitignore), for files found while walking down.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// Maximum bytes read of one file, and maximum rules of all files on the path: more than any real project has.
const MAX_BYTES: u64 = 64 << 10;
const MAX_RULES: usize = 2_000;

/// Rules of the directories on the current path.
#[derive(Default)]
pub(crate) struct Ignore {
    rules: Vec<Rule>,
}

struct Rule {
    matcher: GlobMatcher,
    /// Length of the path of the rule's directory, including its `/`.
    base: usize,
    /// True if the pattern is matched against the path below `base` instead of the name.
    anchored: bool,
    directories_only: bool,
    /// True if the rule is negated.
    negated: bool,
}

impl Ignore {
    /// Adds the rules of a directory, if it has any. `prefix` is its path relative to the start of the walk, with a
    /// trailing `/`. Returns a marker for [`Ignore::leave`].
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

    /// Removes the rules that were added since a marker.
    pub(crate) fn leave(&mut self, mark: usize) {
        self.rules.truncate(mark);
    }

    /// True if an entry is ignored. The last rule that matches decides.
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
    fn patterns_match_names_paths_and_directories_like_git() {
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
    fn nested_rules_apply_below_and_take_precedence() {
        let rules = ignore(&[("", "*.txt\n"), ("sub/", "!*.txt\n/only\n")]);
        assert!(!rules.ignores("sub/a.txt", false));
        assert!(rules.ignores("sub/only", false));
        assert!(!rules.ignores("sub/deep/only", false));
    }
}
