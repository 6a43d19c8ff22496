//! Everything that Toolcell takes from the process it runs in, read once: variables, directories, terminals.
//!
//! Nothing else in the workspace reads the environment, the home directory or the working directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

/// The surroundings of this process.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, OsString>,
    /// The working directory, without symbolic links.
    pub(crate) cwd: PathBuf,
    /// The person's home directory, if there is one.
    pub(crate) home: Option<PathBuf>,
    /// Where the person's configuration lies.
    pub(crate) config_dir: Option<PathBuf>,
    /// Where compiled code is kept between runs.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Where what tools keep between calls lies.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where sessions and remembered approvals are kept.
    pub(crate) state_dir: Option<PathBuf>,
    /// This program, to start it again for compiling.
    pub(crate) program: Option<PathBuf>,
    /// Whether standard input, output and error are terminals.
    pub(crate) terminals: Terminals,
}

/// Which of the standard streams are terminals.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminals {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

/// This program. On Linux by the link that leads to it even after an update has replaced its file.
fn program() -> Option<PathBuf> {
    if cfg!(target_os = "linux") {
        return Some(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().ok()
}

/// Whether this process was started to compile a component, and for nothing else.
pub(crate) fn is_compile_child() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == COMPILE_CHILD)
}

/// Keeps the memory of this process, in which there are keys and secrets, out of a core dump (setrlimit(2)).
#[cfg(unix)]
pub(crate) fn forbid_core_dumps() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // It takes nothing that a process may not give up; where it fails all the same, the system's own setting holds.
    let _ = setrlimit(Resource::Core, none);
}

/// Other systems write no core dumps unless they are told to.
#[cfg(not(unix))]
pub(crate) fn forbid_core_dumps() {}

/// The hidden argument that starts a compiling process.
pub(crate) const COMPILE_CHILD: &str = "__compile";

impl Environment {
    /// Reads the surroundings of this process.
    ///
    /// # Errors
    /// When there is no working directory, because it was removed or cannot be entered.
    pub(crate) fn read() -> io::Result<Self> {
        let cwd = std::env::current_dir()?.canonicalize()?;
        let dirs = directories::ProjectDirs::from("", "", "toolcell");
        Ok(Self {
            vars: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
            cwd,
            home: directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned()),
            config_dir: dirs.as_ref().map(|d| d.config_dir().to_owned()),
            cache_dir: dirs.as_ref().map(|d| d.cache_dir().to_owned()),
            data_dir: dirs.as_ref().map(|d| d.data_dir().to_owned()),
            state_dir: dirs
                .as_ref()
                .map(|d| d.state_dir().unwrap_or_else(|| d.data_local_dir()).to_owned()),
            program: program(),
            terminals: Terminals {
                stdin: std::io::stdin().is_terminal(),
                stdout: std::io::stdout().is_terminal(),
                stderr: std::io::stderr().is_terminal(),
            },
        })
    }

    /// The value of a variable; `None` when it is not set, empty, or no Unicode.
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty())
    }

    /// The names of all variables that start with `prefix`.
    pub(crate) fn names_with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.vars
            .keys()
            .map(String::as_str)
            .filter(move |name| name.starts_with(prefix))
    }

    /// A path as a person wrote it: `~/` is the home directory, and a relative path starts at `base`.
    pub(crate) fn path(&self, written: &str, base: &Path) -> PathBuf {
        match (&self.home, written.strip_prefix('~')) {
            (Some(home), Some("")) => home.clone(),
            (Some(home), Some(rest)) if rest.starts_with('/') => home.join(&rest[1..]),
            _ => base.join(written),
        }
    }

    /// A path as a person reads it: below the working directory without its prefix, below the home directory as `~/`.
    pub(crate) fn shown(&self, path: &Path) -> String {
        if let Ok(below) = path.strip_prefix(&self.cwd)
            && below != Path::new("")
        {
            return below.display().to_string();
        }
        match self.home.as_ref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(below) if below == Path::new("") => "~".into(),
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }

    /// An environment with nothing in it but a working directory.
    #[cfg(test)]
    pub(crate) fn for_tests(cwd: &Path, vars: &[(&str, &str)]) -> Self {
        Self {
            vars: vars
                .iter()
                .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
                .collect(),
            cwd: cwd.to_owned(),
            home: None,
            config_dir: None,
            cache_dir: None,
            data_dir: None,
            state_dir: None,
            program: None,
            terminals: Terminals::default(),
        }
    }
}
