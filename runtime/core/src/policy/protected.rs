//! Protected files: those that start programs or configure Toolcell, in any directory a tool may change.
//!
//! A tool with write access to a project could otherwise plant a git hook, a CI job or an editor task, which later runs
//! outside of every cell with the rights of the user. Writes to these paths are denied in every granted directory, at
//! any depth; reads are not. A grant of exactly this directory, or [`Denials::programs`], allows them.
//! [`CONFIGURATION`] is never writable.
//!
//! Names are compared case-insensitively, and without the code points that some file systems ignore, on every system:
//! `.GIT` is `.git` on macOS, and an unused name elsewhere.
//!
//! [`Denials::programs`]: crate::denial::Denials::programs

/// Configuration files of Toolcell. No grant and no flag lets a tool change them.
pub const CONFIGURATION: [&str; 2] = ["toolcell.toml", "toolcell.lock"];

/// Files and directories that start programs, by the end of their path.
pub const PROGRAMS: [&str; 110] = [
    // Version control: hooks, and configuration that names programs.
    ".git",
    ".hg",
    ".jj",
    ".sl",
    ".gitconfig",
    ".githooks",
    ".husky",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    "lefthook.yaml",
    "lefthook.toml",
    "lefthook.json",
    "lefthook-local.yml",
    "lefthook-local.yaml",
    ".lefthook",
    ".lefthook.yml",
    ".lefthook.yaml",
    ".lefthook.toml",
    ".lefthook.json",
    // Continuous integration.
    ".github/workflows",
    ".github/actions",
    ".forgejo/workflows",
    ".gitea/workflows",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
    ".drone.yml",
    ".woodpecker",
    ".woodpecker.yml",
    ".woodpecker.yaml",
    ".cirrus.yml",
    ".cirrus.star",
    ".build.yml",
    ".builds",
    ".semaphore",
    ".teamcity",
    ".tekton",
    ".buildkite",
    ".appveyor.yml",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "buildspec.yml",
    "cloudbuild.yaml",
    "Jenkinsfile",
    // Editors.
    ".vscode",
    ".idea",
    ".vs",
    ".fleet",
    ".zed",
    ".vim",
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".nvim",
    ".lvimrc",
    ".helix",
    ".emacs",
    ".emacs.d",
    ".dir-locals.el",
    ".devcontainer",
    ".devcontainer.json",
    // Agents and their servers.
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".aider.conf.yml",
    ".continue",
    ".kiro",
    ".opencode",
    ".roo",
    "opencode.json",
    "opencode.jsonc",
    ".windsurf",
    ".mcp.json",
    // Shells and what they load in a directory.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".cshrc",
    ".kshrc",
    ".tcshrc",
    ".envrc",
    ".mise.toml",
    "mise.toml",
    ".mise",
    ".mise.local.toml",
    "mise.local.toml",
    ".config/mise",
    ".config/fish",
    // Build tools and package managers.
    ".cargo",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarn",
    ".pnpmfile.cjs",
    ".mvn",
    ".bazelrc",
    // Debuggers and interpreters that load a file of the directory.
    ".gdbinit",
    ".lldbinit",
    ".Rprofile",
    // Remote access.
    ".ssh",
];

/// Reason why a path is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// It configures Toolcell.
    Configuration,
    /// It starts programs.
    Programs,
}

impl Protection {
    /// Returns the rule that denies a change, for the user.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Configuration => "built-in: tools cannot change toolcell.toml and toolcell.lock",
            Self::Programs => "built-in: files that start programs can be changed only with --dangerous",
        }
    }

    /// Returns `true` if [`Denials::programs`](crate::denial::Denials::programs) allows the change.
    pub fn can_be_allowed(self) -> bool {
        self == Self::Programs
    }
}

/// Returns the protection of a path below a granted directory, or `None` if it is not protected.
///
/// `base` is the real path of the granted directory and `below` the relative path, both without links, `.` and `..`. A
/// protected name counts only if it ends in `below`: a grant of `.git` itself includes its content.
pub fn protection(base: &str, below: &str) -> Option<Protection> {
    let whole = Folded::new(base, below);
    let meets = |names: &[&str]| names.iter().any(|name| whole.has(name));
    if meets(&CONFIGURATION) {
        Some(Protection::Configuration)
    } else if meets(&PROGRAMS) || whole.is_head {
        Some(Protection::Programs)
    } else {
        None
    }
}

/// Returns `true` if a protected name could be a direct child of this path: `.github` can contain `.github/workflows`.
/// Moving something to or from such a path could create or remove a protected one.
pub fn may_hold_protected(base: &str, below: &str) -> bool {
    let whole = Folded::new(base, below);
    PROGRAMS.iter().any(|name| {
        name.match_indices('/')
            .any(|(end, _)| whole.ends_with(&name[..end]))
    })
}

/// A path split into parts, folded so that they compare equal if any common file system treats them as equal.
struct Folded {
    parts: Vec<String>,
    /// Number of parts that belong to the granted directory itself.
    base: usize,
    /// True if the last part below the base is what Git opens as `HEAD`. Git treats any directory that contains one as
    /// a repository, and `git status` runs the program that the `config` beside it names (`core.fsmonitor`). On
    /// case-sensitive file systems `head` is a different, common file.
    is_head: bool,
}

impl Folded {
    fn new(base: &str, below: &str) -> Self {
        let parts = |path: &str| -> Vec<String> {
            let parts = path.split('/').filter(|part| !part.is_empty());
            parts.map(fold).collect()
        };
        let mut all = parts(base);
        let base = all.len();
        all.extend(parts(below));
        let last = below.rsplit('/').find(|part| !part.is_empty()).unwrap_or("");
        let is_head = if cfg!(target_os = "macos") {
            fold(last) == "head"
        } else {
            last == "HEAD"
        };
        Self {
            parts: all,
            base,
            is_head,
        }
    }

    /// Returns `true` if the parts of `name` are consecutive parts of the path, the last of them below the base.
    fn has(&self, name: &str) -> bool {
        let name: Vec<String> = name.split('/').map(fold).collect();
        let ends = self.base.max(name.len().saturating_sub(1))..self.parts.len();
        ends.into_iter()
            .any(|last| self.parts[..=last].ends_with(name.as_slice()))
    }

    fn ends_with(&self, name: &str) -> bool {
        let name: Vec<String> = name.split('/').map(fold).collect();
        self.parts.len() > self.base && self.parts.ends_with(&name)
    }
}

/// Folds a name so that names of the same file compare equal on every common file system: ignoring case (APFS, NTFS),
/// ignorable code points (HFS+), and trailing dots and spaces (NTFS).
pub fn fold(name: &str) -> String {
    let is_ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let folded: String = name
        .chars()
        .filter(|c| !is_ignored(*c))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    match folded.trim_end_matches(['.', ' ']) {
        "" => folded,
        trimmed => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_found_at_any_depth() {
        use Protection::{Configuration, Programs};
        for (below, expected) in [
            ("toolcell.toml", Some(Configuration)),
            ("a/b/toolcell.lock", Some(Configuration)),
            ("Toolcell.TOML", Some(Configuration)),
            ("toolcell.toml/x", Some(Configuration)),
            ("toolcell.tom", None),
            ("my.toolcell.toml", None),
            (".git", Some(Programs)),
            ("sub/.git/hooks/pre-commit", Some(Programs)),
            (".GiT/config", Some(Programs)),
            (".g\u{200c}it/config", Some(Programs)),
            (".git./config", Some(Programs)),
            (".vſcode", Some(Programs)),
            (".github/workflows/ci.yml", Some(Programs)),
            (".github/CODEOWNERS", None),
            (".github", None),
            ("workflows/ci.yml", None),
            (".gitignore", None),
            ("src/main.rs", None),
            ("", None),
        ] {
            assert_eq!(protection("/home/ada/work", below), expected, "{below}");
        }
    }

    #[test]
    fn grant_of_a_protected_directory_excludes_the_configuration() {
        for (base, below, expected) in [
            ("/p/.git", "hooks/pre-commit", None),
            ("/p/.git", "modules/x/.git/config", Some(Protection::Programs)),
            ("/p/.github", "workflows/ci.yml", Some(Protection::Programs)),
            ("/p/.github/workflows", "ci.yml", None),
            ("/p/.git", "toolcell.toml", Some(Protection::Configuration)),
        ] {
            assert_eq!(protection(base, below), expected, "{base} {below}");
        }
    }

    #[test]
    fn no_directory_becomes_a_bare_repository() {
        for (base, below, expected) in [
            ("/p", "HEAD", Some(Protection::Programs)),
            ("/p", "assets/HEAD", Some(Protection::Programs)),
            ("/p", "HEAD/x", None),
            ("/p", "src/HEADER", None),
        ] {
            assert_eq!(protection(base, below), expected, "{base} {below}");
        }
    }

    #[test]
    fn parents_of_protected_paths_are_recognized() {
        assert!(may_hold_protected("/p", ".github"));
        assert!(may_hold_protected("/p", "sub/.Gitea"));
        assert!(!may_hold_protected("/p", ".github/x"));
        assert!(!may_hold_protected("/p", "src"));
        // The granted directory itself cannot be moved.
        assert!(!may_hold_protected("/p/.github", ""));
    }

    #[test]
    fn flag_allows_programs_and_never_the_configuration() {
        assert!(Protection::Programs.can_be_allowed());
        assert!(!Protection::Configuration.can_be_allowed());
        assert!(Protection::Programs.rule().contains("--dangerous"));
        let rule = Protection::Configuration.rule();
        assert!(
            rule.contains("toolcell.toml") && rule.contains("toolcell.lock"),
            "{rule}"
        );
    }
}
