//! Files that start programs or decide what Toolcell does, found in any directory a tool may change.
//!
//! A tool that may write to a project could otherwise leave a git hook, a CI job or an editor task behind, which later
//! runs outside of every cell with the rights of the user. Writes to these places are refused in every granted
//! directory, at any depth; reading them is not. A grant of the very place, or [`Denials::programs`], allows them
//! again. [`CONFIGURATION`] is never writable, and what begins with [`OVERLAY_PREFIX`] is neither written nor read.
//!
//! Most of these places have a name ([`PROGRAMS`]). A Git directory is one by what lies in it ([`is_git_dir`]).
//!
//! Names are compared without regard to case, and without the code points that some file systems ignore, on every
//! system: `.GIT` is `.git` on macOS, and an unused name elsewhere.
//!
//! [`Denials::programs`]: crate::denial::Denials::programs

mod git;
mod names;

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization as _;

pub use self::git::{is_git_dir, makes_git_dir};
pub use self::names::PROGRAMS;

/// Files of Toolcell itself. No grant and no flag lets a tool change them.
pub const CONFIGURATION: [&str; 2] = ["toolcell.toml", "toolcell.lock"];

/// Prefix of the names of scratch overlays and of the files beside them. Their contents are reached through that
/// overlay alone: a tool that could change them would have the user commit its changes as those of another tool.
pub const OVERLAY_PREFIX: &str = "toolcell-overlay-";

/// Reason why a place is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// It decides what Toolcell does.
    Configuration,
    /// It starts programs.
    Programs,
    /// It holds the changes of a scratch overlay.
    Overlay,
}

impl Protection {
    /// The rule that refuses a change, for the user.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Configuration => "built-in: tools cannot change toolcell.toml and toolcell.lock",
            Self::Programs => "built-in: files that start programs can be changed only with --dangerous",
            Self::Overlay => "built-in: only the tool that writes to a scratch overlay can access it",
        }
    }

    /// Returns true if [`Denials::programs`](crate::denial::Denials::programs) allows the change.
    pub fn can_be_allowed(self) -> bool {
        self == Self::Programs
    }
}

/// Returns the reason why a place below a granted directory must not be changed; `None` if there is none.
///
/// `base` is the real path of the granted directory and `below` the path from there, both without links, `.` and `..`.
/// A protected name counts where it ends in `below`: who grants `.git` itself grants it.
pub fn protection(base: &str, below: &str) -> Option<Protection> {
    let whole = Folded::new(base, below);
    if whole.parts.iter().any(|part| is_overlay(part)) {
        Some(Protection::Overlay)
    } else if CONFIGURATION
        .iter()
        .any(|name| whole.below().iter().any(|part| part == name))
    {
        Some(Protection::Configuration)
    } else if (whole.base..whole.parts.len()).any(|last| NAMES.end(&whole.parts[..=last])) || whole.is_head {
        Some(Protection::Programs)
    } else {
        None
    }
}

/// As [`protection`], of reading.
pub fn protection_from_reading(base: &str, below: &str) -> Option<Protection> {
    let mut parts = base.split('/').chain(below.split('/'));
    let is_hidden = parts.any(|part| is_overlay(&fold_streams(part)));
    is_hidden.then_some(Protection::Overlay)
}

fn is_overlay(folded: &str) -> bool {
    folded.starts_with(OVERLAY_PREFIX)
}

/// Returns true if a protected name could be directly below this place: `.github` holds `.github/workflows`. Moving
/// something to or from such a place would make or unmake a protected one.
pub fn may_hold_protected(base: &str, below: &str) -> bool {
    let whole = Folded::new(base, below);
    !whole.below().is_empty()
        && NAMES
            .all()
            .any(|name| (1..name.len()).any(|parts| ends_with(&whole.parts, &name[..parts])))
}

/// [`PROGRAMS`], each as the parts of its path.
struct Names {
    /// Those without a `*` in the last part, by that part.
    exact: HashMap<String, Vec<Vec<Name>>>,
    others: Vec<Vec<Name>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut names = Names {
        exact: HashMap::new(),
        others: Vec::new(),
    };
    for name in PROGRAMS {
        let parts: Vec<Name> = name.split('/').map(Name::new).collect();
        match parts.last() {
            Some(Name::Is(last)) => names.exact.entry(last.clone()).or_default().push(parts),
            _ => names.others.push(parts),
        }
    }
    names
});

impl Names {
    fn all(&self) -> impl Iterator<Item = &Vec<Name>> {
        self.exact.values().flatten().chain(&self.others)
    }

    /// Returns true if a path ends in one.
    fn end(&self, parts: &[String]) -> bool {
        let exact = parts.last().and_then(|last| self.exact.get(last));
        let mut names = exact.into_iter().flatten().chain(&self.others);
        names.any(|name| ends_with(parts, name))
    }
}

/// One part of a protected name.
enum Name {
    Is(String),
    Begins(String),
    Ends(String),
}

impl Name {
    fn new(name: &str) -> Self {
        match (name.strip_prefix('*'), name.strip_suffix('*')) {
            (Some(end), _) => Self::Ends(fold(end)),
            (None, Some(beginning)) => Self::Begins(beginning.to_lowercase()),
            (None, None) => Self::Is(fold(name)),
        }
    }

    fn is(&self, part: &str) -> bool {
        match self {
            Self::Is(name) => part == name,
            Self::Begins(name) => part.starts_with(name.as_str()),
            Self::Ends(name) => part.ends_with(name.as_str()),
        }
    }
}

fn ends_with(parts: &[String], name: &[Name]) -> bool {
    let Some(from) = parts.len().checked_sub(name.len()) else {
        return false;
    };
    // Most paths differ in the last part already.
    parts[from..]
        .iter()
        .zip(name)
        .rev()
        .all(|(part, name)| name.is(part))
}

/// A path in parts that compare as file systems compare names at their most lenient.
struct Folded {
    parts: Vec<String>,
    /// Parts that belong to the granted directory itself.
    base: usize,
    /// Returns true if the last part below the base is what Git opens as `HEAD`, the file that makes a directory a
    /// repository ([`is_git_dir`]). Where file systems tell capitals apart, `head` is another file, and a common one.
    is_head: bool,
}

impl Folded {
    fn new(base: &str, below: &str) -> Self {
        let parts = |path: &str| -> Vec<String> {
            let parts = path.split('/').filter(|part| !part.is_empty());
            parts.map(fold_streams).collect()
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

    /// The parts below the granted directory.
    fn below(&self) -> &[String] {
        &self.parts[self.base..]
    }
}

/// As [`fold`], also without the name of a stream, with which NTFS has `.git::$INDEX_ALLOCATION` for `.git`.
fn fold_streams(name: &str) -> String {
    match name.split_once(':') {
        Some((file, _)) if !file.is_empty() => fold(file),
        _ => fold(name),
    }
}

/// True for a code point with the property `Default_Ignorable_Code_Point` (Unicode 16, DerivedCoreProperties.txt).
fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// A name in the form in which two names of one file are equal on every common file system: without regard to case
/// (APFS, NTFS; also `ß`, `ẞ` and `ss`: ext4 and F2FS in directories without case) and to composition, such as of `é` (APFS, HFS+), without
/// code points that are ignored (HFS+, ext4 and F2FS), and without dots and spaces at its end (NTFS).
pub fn fold(name: &str) -> String {
    let folded: String = if name.is_ascii() {
        name.to_ascii_lowercase()
    } else {
        name.chars()
            .filter(|c| !is_ignored(*c))
            .nfd()
            // `ẞ` is in upper case already, and that of `ß` is `SS`.
            .flat_map(char::to_lowercase)
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .nfd()
            .collect()
    };
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
            (".\u{200b}git/config", Some(Programs)),
            (".en\u{fe0f}vrc", Some(Programs)),
            ("toolcell\u{ad}.toml", Some(Configuration)),
            ("toolcell\u{e0100}.toml", Some(Configuration)),
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
    fn names_that_some_file_system_takes_for_one_are_folded_to_one() {
        for (name, other) in [
            ("straße", "STRASSE"),
            ("STRA\u{1e9e}E", "strasse"),
            ("private", "pri\u{34f}vate"),
            ("private", "pri\u{3164}va\u{fff8}te\u{e0fff}"),
            ("caf\u{e9}", "CAFE\u{301}"),
            ("notes", "notes. ."),
        ] {
            assert_eq!(fold(name), fold(other), "{name:?} {other:?}");
        }
        for (name, other) in [("private", "pri_vate"), ("a\u{fff9}", "a"), ("\u{3165}", "")] {
            assert_ne!(fold(name), fold(other), "{name:?} {other:?}");
        }
    }

    #[test]
    fn names_that_start_programs_are_known() {
        for below in [
            "work.code-workspace",
            "sub/My.Code-Workspace",
            ".envrc.local",
            ".direnvrc",
            ".tmux.conf",
            ".xinitrc",
            ".xprofile",
            ".xsession",
            ".forward",
            ".procmailrc",
            ".bundle/config",
            ".gitmodules",
            ".gitattributes",
            ".gitconfig.local",
            ".pre-commit-config.yml",
            ".pre-commit-hooks.yaml",
            ".tool-versions",
            ".config/autostart/x.desktop",
            ".config/systemd/user/x.service",
            ".local/share/systemd/user/x.service",
            "Library/LaunchAgents/x.plist",
            "rust-toolchain.toml",
            "Jenkinsfile.release",
            "lib/python3.14/site-packages/x.pth",
            "GIT~1/hooks/pre-commit",
            ".git::$INDEX_ALLOCATION/config",
            "_vimrc",
            "netlify.toml",
            "site/vercel.json",
            "amplify.yml",
            "Wrangler.TOML",
            "render.yaml",
            "fly.toml",
            "Procfile",
            ".do/app.yaml",
            "x.gocd.yaml",
            ".venv/bin/python",
            "app/hie.yaml",
            ".bsp/sbt.json",
            ".iex.exs",
            ".erlang",
            "src/.ycm_extra_conf.py",
        ] {
            assert_eq!(protection("/p", below), Some(Protection::Programs), "{below}");
        }
    }

    #[test]
    fn star_is_at_start_or_end_of_a_component() {
        for part in PROGRAMS.iter().flat_map(|name| name.split('/')) {
            let inner = part.strip_prefix('*').or(part.strip_suffix('*')).unwrap_or(part);
            assert!(!inner.is_empty() && !inner.contains('*'), "{part}");
        }
        for (below, expected) in [
            (".drone.yml", true),
            (".drone.", false),
            (".droney", false),
            (".bashrc", true),
            (".bashrc.local", true),
            ("x.code-workspace", true),
            ("code-workspace", false),
        ] {
            assert_eq!(protection("/p", below).is_some(), expected, "{below}");
        }
    }

    #[test]
    fn files_of_a_project_that_the_user_runs_are_ordinary() {
        for below in [
            "Makefile",
            "build.rs",
            "Cargo.toml",
            "package.json",
            "conftest.py",
            "Dockerfile",
            "app.yaml",
            ".env",
            ".gitignore",
            ".editorconfig",
            ".eslintrc.js",
            ".github/CODEOWNERS",
            ".nvmrc",
            ".python-version",
            "model.pth",
            "bazel",
            "config/x",
            "a.b:c",
            "head",
            "toolcell-overlay",
            "x/site-packages",
            "tools/bazel",
            "Directory.Build.props",
        ] {
            assert_eq!(protection("/p", below), None, "{below}");
        }
    }

    #[test]
    fn scratch_overlay_is_hidden_at_any_depth() {
        for (base, below) in [
            ("/tmp", "scratch/toolcell-overlay-0123456789abcdef/upper/x"),
            ("/tmp/scratch", "Toolcell-Overlay-0123456789abcdef"),
            ("/tmp/scratch", "toolcell-overlay-0123456789abcdef.path"),
            ("/tmp/scratch/toolcell-overlay-0123456789abcdef/upper", "x"),
        ] {
            for found in [protection(base, below), protection_from_reading(base, below)] {
                assert_eq!(found, Some(Protection::Overlay), "{base} {below}");
            }
        }
        assert!(!Protection::Overlay.can_be_allowed());
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
        // The granted directory itself is not moved.
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
