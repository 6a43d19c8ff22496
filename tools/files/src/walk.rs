//! Walks a directory tree in a fixed order, without following symbolic links.

use std::fs;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use toolcell_sdk::{Result, ToolError, files, log, show};

use crate::ignore_rules::IgnoreRules;

/// Maximum entries of one walk, so that a whole disk gives an answer instead of exceeding a limit of the cell.
const MAX_ENTRIES: usize = 200_000;

/// Scope of a walk.
pub(crate) struct Walk {
    /// Depth; 1 is the directory itself.
    pub(crate) depth: usize,
    /// True to include hidden entries (names with a leading dot) and entries ignored by git.
    pub(crate) all: bool,
}

/// Result of a walk.
pub(crate) struct Walked {
    /// True if the walk was completed.
    pub(crate) complete: bool,
    /// Number of entries left out as hidden or ignored, without their descendants.
    pub(crate) left_out: usize,
}

/// Progress of a walk.
#[derive(Default)]
struct State {
    /// Entries visited.
    seen: usize,
    left_out: usize,
    ignore: IgnoreRules,
}

/// Entry of a directory.
pub(crate) struct Entry {
    /// Path as a tool accepts it: the path of the walk's start and below.
    pub(crate) path: PathBuf,
    /// Path relative to the start of the walk, separated by `/`.
    pub(crate) relative: String,
    pub(crate) kind: Kind,
    /// Size of a file in bytes.
    pub(crate) size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    /// A link, which is not followed, or a special file.
    Other,
    /// Something whose name is not UTF-8, so that it cannot be opened, and it is not known if it is a directory.
    Unreachable,
}

impl Walk {
    /// Calls `visit` for everything below a directory, files before directories, each sorted by name. `visit` returns
    /// `false` to stop the walk.
    pub(crate) fn visit(&self, start: &Path, visit: &mut dyn FnMut(Entry) -> Result<bool>) -> Result<Walked> {
        if fs::metadata(start).is_ok_and(|metadata| metadata.is_file()) {
            return Err(ToolError::failed(format_args!(
                "{} is a file, not a directory",
                show::quoted(start)
            )));
        }
        let mut state = State::default();
        let is_top = matches!(start.to_str(), Some("." | "/" | "./" | ""));
        let complete = if is_top && fs::metadata(start).is_err() {
            self.visit_roots(&mut state, visit)?
        } else {
            self.visit_directory(start, "", 1, &mut state, visit)?
        };
        Ok(Walked {
            complete,
            left_out: state.left_out,
        })
    }

    /// Replaces a root directory that is not granted itself by the granted directories.
    fn visit_roots(&self, state: &mut State, visit: &mut dyn FnMut(Entry) -> Result<bool>) -> Result<bool> {
        let roots = files::roots();
        if roots.is_empty() {
            return Err(ToolError::denied("no files are granted to this tool"));
        }
        for root in roots {
            let relative = root.trim_start_matches('/').to_owned();
            let below = format!("{relative}/");
            let entry = Entry {
                path: PathBuf::from(&root),
                relative,
                kind: Kind::Directory,
                size: 0,
            };
            let go_on = visit(entry)?
                && (self.depth < 2 || self.visit_directory(Path::new(&root), &below, 2, state, visit)?);
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn visit_directory(
        &self,
        directory: &Path,
        prefix: &str,
        level: usize,
        state: &mut State,
        visit: &mut dyn FnMut(Entry) -> Result<bool>,
    ) -> Result<bool> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries
                .take(MAX_ENTRIES - state.seen)
                .flatten()
                .collect::<Vec<_>>(),
            Err(error) if level == 1 => return Err(files::explain(directory, &error)),
            Err(error) => {
                log::warn(files::explain(directory, &error));
                return Ok(true);
            }
        };
        state.seen += entries.len();
        let mark = state.ignore.enter(directory, prefix);
        let go_on = self.visit_entries(entries, prefix, level, state, visit)?;
        state.ignore.leave(mark);
        Ok(go_on && state.seen < MAX_ENTRIES)
    }

    fn visit_entries(
        &self,
        mut entries: Vec<fs::DirEntry>,
        prefix: &str,
        level: usize,
        state: &mut State,
        visit: &mut dyn FnMut(Entry) -> Result<bool>,
    ) -> Result<bool> {
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut directories = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            let kind = match entry.file_type() {
                _ if files::has_invalid_name(&entry) => Kind::Unreachable,
                Ok(kind) if kind.is_dir() => Kind::Directory,
                Ok(kind) if kind.is_file() => Kind::File,
                _ => Kind::Other,
            };
            let name = match kind {
                Kind::Unreachable => show::name(&name).into_owned(),
                _ => name.to_string_lossy().into_owned(),
            };
            let relative = format!("{prefix}{name}");
            if !self.all
                && (name.starts_with('.') || state.ignore.ignores(&relative, kind == Kind::Directory))
            {
                state.left_out += 1;
                continue;
            }
            let size = match kind {
                Kind::File => entry
                    .metadata()
                    .map(|metadata| metadata.len())
                    .unwrap_or_default(),
                _ => 0,
            };
            let entry = Entry {
                path: entry.path(),
                relative,
                kind,
                size,
            };
            if kind == Kind::Directory {
                directories.push(entry);
            } else if !visit(entry)? {
                return Ok(false);
            }
        }
        for entry in directories {
            let (path, below) = (entry.path.clone(), format!("{}/", entry.relative));
            let go_on = visit(entry)?
                && (level >= self.depth || self.visit_directory(&path, &below, level + 1, state, visit)?);
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Glob pattern: one with a `/` is matched against the relative path, one without against the name.
pub(crate) struct Pattern {
    matcher: GlobMatcher,
    whole_path: bool,
}

impl Pattern {
    pub(crate) fn parse(pattern: &str) -> Result<Self> {
        let glob = GlobBuilder::new(pattern.trim_start_matches("./"))
            .literal_separator(true)
            .build()
            .map_err(|error| {
                ToolError::invalid(format_args!(
                    "`glob`: invalid pattern {}: {}",
                    show::quoted(pattern),
                    error.kind()
                ))
            })?;
        Ok(Self {
            matcher: glob.compile_matcher(),
            whole_path: pattern.contains('/'),
        })
    }

    pub(crate) fn matches(&self, relative: &str) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        self.matcher
            .is_match(if self.whole_path { relative } else { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn pattern_with_slash_matches_paths_otherwise_names() {
        assert!(matches("*.rs", "src/walk.rs"));
        assert!(!matches("*.rs", "src/walk.rs.txt"));
        assert!(matches("src/*.rs", "src/walk.rs"));
        assert!(!matches("src/*.rs", "src/a/walk.rs"));
        assert!(matches("src/**/*.rs", "src/a/b/walk.rs"));
        assert!(matches("./src/**", "src/a"));
        assert!(matches("*.{toml,md}", "README.md"));
    }

    #[test]
    fn invalid_pattern_is_refused() {
        let error = Pattern::parse("a[").map(|_| ()).unwrap_err();
        assert!(
            error.message().starts_with("`glob`: invalid pattern `a[`: "),
            "{error}"
        );
    }
}
