//! Rules of `.gitignore` files, which exclude build output and dependencies.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Maximum bytes read of one file, and maximum rules of all files on the path: more than any real project has.
const MAX_BYTES: u64 = 64 << 10;
const MAX_RULES: usize = 2_000;

/// Rules of the directories on the current path.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    directories: Vec<Gitignore>,
}

impl IgnoreRules {
    /// Adds the rules of a directory, if it has any. `prefix` is its path relative to the start of the walk, with a
    /// trailing `/`. Returns a marker for [`IgnoreRules::leave`].
    pub(crate) fn enter(&mut self, directory: &Path, prefix: &str) -> usize {
        let mark = self.directories.len();
        let mut text = Vec::new();
        if let Ok(file) = File::open(directory.join(".gitignore"))
            && file.take(MAX_BYTES).read_to_end(&mut text).is_ok()
        {
            self.add(prefix, &String::from_utf8_lossy(&text));
        }
        mark
    }

    /// Adds the rules of one file. Invalid rules are skipped, as git does.
    fn add(&mut self, prefix: &str, text: &str) {
        let known: usize = self.directories.iter().map(Gitignore::len).sum();
        let mut builder = GitignoreBuilder::new(prefix);
        let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
        for line in lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .take(MAX_RULES.saturating_sub(known))
        {
            let _ = builder.add_line(None, line);
        }
        if let Ok(rules) = builder.build()
            && !rules.is_empty()
        {
            self.directories.push(rules);
        }
    }

    /// Removes the rules that were added since a marker.
    pub(crate) fn leave(&mut self, mark: usize) {
        self.directories.truncate(mark);
    }

    /// True if an entry is ignored. The rules of the nearest directory decide.
    pub(crate) fn ignores(&self, relative: &str, is_directory: bool) -> bool {
        let matched = (self.directories.iter().rev())
            .map(|rules| rules.matched(relative, is_directory))
            .find(|matched| !matched.is_none());
        matches!(matched, Some(Match::Ignore(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> IgnoreRules {
        let mut rules = IgnoreRules::default();
        for (prefix, text) in files {
            rules.add(prefix, text);
        }
        rules
    }

    #[test]
    fn patterns_match_names_paths_and_directories_like_git() {
        let rules = rules(&[(
            "",
            "# comment\n\n*.log\n/target/\ndocs/*.html\nnode_modules/\n!keep.log\n**/tmp\n\\#hash\nspace\\ \n[a\n",
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
            ("#hash", false, true),
            ("space ", false, true),
            ("space", false, false),
            ("src/main.rs", false, false),
        ] {
            assert_eq!(rules.ignores(path, is_directory), ignored, "{path}");
        }
    }

    #[test]
    fn nested_rules_apply_below_and_take_precedence() {
        let mut rules = rules(&[("", "*.txt\n")]);
        assert!(rules.ignores("sub/a.txt", false));
        rules.add("sub/", "!*.txt\n/only\n");
        assert!(!rules.ignores("sub/a.txt", false));
        assert!(rules.ignores("sub/only", false));
        assert!(!rules.ignores("sub/deep/only", false));
        rules.leave(1);
        assert!(rules.ignores("sub/a.txt", false));
    }

    #[test]
    fn rules_beyond_the_limit_are_not_applied() {
        let many = "x\n".repeat(MAX_RULES - 1);
        let mut rules = rules(&[("", &format!("{many}last\n"))]);
        assert!(rules.ignores("last", false));
        rules.add("", &format!("{many}last\nbeyond\n"));
        rules.add("sub/", "beyond\n");
        assert!(!rules.ignores("beyond", false) && !rules.ignores("sub/beyond", false));
    }
}
