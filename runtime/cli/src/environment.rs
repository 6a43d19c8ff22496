//! The process environment, read once at startup: variables, directories, terminals.
//!
//! No other code in the workspace reads the environment, the home directory or the working directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Snapshot of the process environment.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, OsString>,
    /// Working directory, without symbolic links.
    pub(crate) cwd: PathBuf,
    /// Home directory of the user, if any.
    pub(crate) home: Option<PathBuf>,
    /// Configuration file that the user named instead of the usual one.
    pub(crate) named_config: Option<PathBuf>,
    /// Directory of the user's configuration.
    pub(crate) config_dir: Option<PathBuf>,
    /// Directory of the compiled code cache.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Directory of data that tools store between calls.
    pub(crate) data_dir: Option<PathBuf>,
    /// Directory of sessions and saved approvals.
    pub(crate) state_dir: Option<PathBuf>,
    /// Path of this executable, used to start the compile process and MCP servers.
    pub(crate) program: Option<PathBuf>,
    /// File of this executable: without symbolic links, and as it was called.
    pub(crate) executables: Vec<PathBuf>,
    /// Standard streams that are terminals.
    pub(crate) terminals: Terminals,
    /// Client of `toolcell serve` for which components are loaded; `None` for other commands.
    pub(crate) client: Option<ServedClient>,
}

/// Client of `toolcell serve`.
#[derive(Debug, Clone)]
pub(crate) struct ServedClient {
    /// Name, by which its buckets are its own; empty for the user of the server.
    pub(crate) name: String,
    /// Places of its calls at one time; `None` without a limit.
    pub(crate) calls: Option<Arc<Semaphore>>,
    /// True if the server has other clients.
    #[cfg_attr(
        not(feature = "local"),
        expect(dead_code, reason = "the engine of local models needs it")
    )]
    pub(crate) has_others: bool,
}

/// Standard streams that are terminals.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminals {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Terminals {
    /// True if a user can be asked: the question goes to standard error, the answer comes from standard input.
    pub(crate) fn can_ask(self) -> bool {
        self.stdin && self.stderr
    }
}

/// Path of this executable. On Linux `/proc/self/exe`, which stays valid after an update has replaced the file.
fn program() -> Option<PathBuf> {
    if cfg!(target_os = "linux") {
        return Some(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().ok()
}

/// True if this process was started only to compile a component.
pub(crate) fn is_compile_child() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == COMPILE_CHILD)
}

/// True if this process was started only to run the chat template of a local model.
pub(crate) fn is_template_child() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == TEMPLATE_CHILD)
}

/// True if this process was started only to run a local model.
#[cfg(feature = "local")]
pub(crate) fn is_engine_child() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == ENGINE_CHILD)
}

/// If this process was started only to start a program in a session of its own (setsid(2)), becomes that program: it then
/// has no controlling terminal, neither to write a question to nor to read the answer to one of ours.
///
/// Returns if it was not, or if the program cannot be started.
pub(crate) fn become_session_child() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != SESSION_CHILD {
        return None;
    }
    let program = args.next()?;
    // It fails only in the leader of a process group, which a process that was just started is not.
    let _ = rustix::process::setsid();
    let error = Command::new(&program).args(args).exec();
    eprintln!("{}: {error}", program.display());
    Some(ExitCode::from(NOT_STARTED))
}

/// Disables core dumps (setrlimit(2)), because the memory of this process holds keys and secrets.
pub(crate) fn forbid_core_dumps() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit needs no privilege; if it fails anyway, the system's own setting applies.
    let _ = setrlimit(Resource::Core, none);
}

/// Maximum number of open files that this process asks for. Calls share half of them; systems begin with 256 or 1,024, of which a few calls leave nothing for sockets and the store.
const OPEN_FILES: u64 = 65_536;

/// Raises the limit of open files (setrlimit(2)) up to what the system allows.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let possible = limit.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    // macOS accepts no more (OPEN_MAX), although it reports no maximum.
    let wanted = [possible, possible.min(10_240)];
    for current in wanted {
        let is_less = limit.current.is_some_and(|now| now < current);
        let raised = Rlimit {
            current: Some(current),
            maximum: limit.maximum,
        };
        // Raising the soft limit needs no privilege; if it fails anyway, the present one applies.
        if !is_less || setrlimit(Resource::Nofile, raised).is_ok() {
            return;
        }
    }
}

/// Returns the number of files that tools may have open at a time: half of what this process may, so that sockets, the
/// store and compile processes keep the rest.
pub(crate) fn open_files_of_tools() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(limit.map_or(OPEN_FILES, |limit| limit.min(OPEN_FILES)) / 2).unwrap_or(usize::MAX)
}

/// Hidden argument that starts a compile process.
pub(crate) const COMPILE_CHILD: &str = "__compile";

/// Hidden argument of a process that runs the chat template of a local model.
pub(crate) const TEMPLATE_CHILD: &str = "__template";

/// Hidden argument of a process that runs a local model.
#[cfg(feature = "local")]
pub(crate) const ENGINE_CHILD: &str = "__engine";

/// Hidden argument that starts a program in a session of its own.
const SESSION_CHILD: &str = "__session";

/// Exit status for a program that cannot be started, as of shells.
const NOT_STARTED: u8 = 126;

impl Environment {
    /// Command that starts a program in a session of its own: this program, see [`become_session_child`].
    pub(crate) fn session_child(&self) -> Option<(PathBuf, OsString)> {
        Some((self.program.clone()?, SESSION_CHILD.into()))
    }

    /// Reads the process environment.
    ///
    /// # Errors
    /// Returns an error if there is no working directory, because it was removed or cannot be entered.
    pub(crate) fn read() -> io::Result<Self> {
        let cwd = std::env::current_dir()?.canonicalize()?;
        let dirs = directories::ProjectDirs::from("", "", "toolcell");
        let mut environment = Self {
            named_config: None,
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
            executables: std::env::current_exe().into_iter().collect(),
            terminals: Terminals {
                stdin: std::io::stdin().is_terminal(),
                stdout: std::io::stdout().is_terminal(),
                stderr: std::io::stderr().is_terminal(),
            },
            client: None,
        };
        let called = std::env::args_os()
            .next()
            .and_then(|name| environment.program_file(Path::new(&name)));
        environment.executables.extend(called);
        environment.executables.dedup();
        Ok(environment)
    }

    /// Returns the value of a variable, or `None` if it is unset, empty or not Unicode.
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns an environment in which a variable is set. Its value stands for one that is not known.
    pub(crate) fn with_variable(&self, name: &str) -> Self {
        let mut environment = self.clone();
        environment.vars.insert(name.to_owned(), "unknown".into());
        environment
    }

    /// Returns the paths of a variable that is a list of them, such as `PATH`. A relative one starts at the working
    /// directory.
    pub(crate) fn paths(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let list = self.vars.get(name);
        list.into_iter()
            .flat_map(std::env::split_paths)
            .map(|path| self.cwd.join(path))
    }

    /// Returns the directories of `PATH`, in which programs are found, without an empty entry and `.`: they mean each
    /// working directory, and are often left by mistake.
    pub(crate) fn program_dirs(&self) -> impl Iterator<Item = PathBuf> {
        let path = self.vars.get("PATH");
        path.into_iter()
            .flat_map(std::env::split_paths)
            .filter(|dir| dir.components().any(|part| part != Component::CurDir))
            .map(|dir| self.cwd.join(dir))
    }

    /// Returns a variable as it is, also one that is not UTF-8.
    pub(crate) fn var_os(&self, name: &str) -> Option<OsString> {
        self.vars.get(name).cloned()
    }

    /// Returns the file of a program: a name is searched in `PATH`, a path is taken as it is. Symbolic links are not
    /// followed.
    pub(crate) fn program_file(&self, program: &Path) -> Option<PathBuf> {
        if program.components().count() > 1 || program.is_absolute() {
            return Some(self.cwd.join(program));
        }
        let mut found = self.paths("PATH").map(|dir| dir.join(program));
        found.find(|file| file.is_file())
    }

    /// The names of all variables that start with `prefix`.
    pub(crate) fn names_with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.vars
            .keys()
            .map(String::as_str)
            .filter(move |name| name.starts_with(prefix))
    }

    /// Resolves a path as written by the user: `~/` is the home directory, and a relative path starts at `base`.
    pub(crate) fn path(&self, written: &str, base: &Path) -> PathBuf {
        match (&self.home, written.strip_prefix('~')) {
            (Some(home), Some("")) => home.clone(),
            (Some(home), Some(rest)) if rest.starts_with('/') => home.join(&rest[1..]),
            _ => base.join(written),
        }
    }

    /// Formats a path for display: relative to the working directory where it is below it, with `~/` where it is below
    /// the home directory.
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

    /// Returns an environment for a test of a tool, with these directories and nothing of the user: no variables, no home
    /// and no configuration.
    pub(crate) fn isolated(&self, cwd: &Path, data_dir: &Path) -> Self {
        Self {
            vars: BTreeMap::new(),
            cwd: cwd.to_owned(),
            home: None,
            named_config: None,
            config_dir: None,
            cache_dir: None,
            data_dir: Some(data_dir.to_owned()),
            state_dir: None,
            program: self.program.clone(),
            executables: self.executables.clone(),
            terminals: Terminals::default(),
            client: None,
        }
    }

    /// Creates an environment with only a working directory and `vars`.
    #[cfg(test)]
    pub(crate) fn for_tests(cwd: &Path, vars: &[(&str, &str)]) -> Self {
        Self {
            vars: vars
                .iter()
                .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
                .collect(),
            cwd: cwd.to_owned(),
            home: None,
            named_config: None,
            config_dir: None,
            cache_dir: None,
            data_dir: None,
            state_dir: None,
            program: None,
            executables: Vec::new(),
            terminals: Terminals::default(),
            client: None,
        }
    }
}
