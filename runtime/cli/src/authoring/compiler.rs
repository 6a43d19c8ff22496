//! Programs that build tools: found where their package managers put them, and run with bounded output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::manifest::Manifest;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, Text, text};

/// Bytes of the output of a program that are kept: its end, which has the errors.
const MAX_OUTPUT: usize = 64 << 10;

/// Bytes that are read at once.
const CHUNK: usize = 8 << 10;

/// Directories of a tool in which pip and npm install programs.
const OWN_DIRS: [&str; 2] = [".venv/bin", "node_modules/.bin"];

/// Directory of intermediate files in a tool.
pub(crate) const BUILD: &str = "build";

/// Place in which a tool is built.
pub(crate) struct BuildContext<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) console: &'a Console,
    /// Directory of the tool.
    pub(crate) dir: &'a Path,
    pub(crate) manifest: &'a Manifest,
    /// Signals end a program that runs, and what it has started.
    pub(crate) interrupts: Interrupts,
}

/// Program of a toolchain.
pub(crate) struct Program {
    path: PathBuf,
    name: &'static str,
    variables: Vec<(&'static str, &'static str)>,
}

impl BuildContext<'_> {
    /// Finds a program: installed for this tool by npm or pip, in the active virtual environment, or in `PATH`.
    ///
    /// # Errors
    /// Returns an error with the commands that install it if there is none.
    pub(crate) fn find(&self, name: &'static str, install: &[&'static str]) -> Result<Program, Failure> {
        self.find_any(&[name], install)
    }

    /// Finds the first of several names of a program.
    ///
    /// # Errors
    /// Same as [`BuildContext::find`].
    pub(crate) fn find_any(
        &self,
        names: &[&'static str],
        install: &[&'static str],
    ) -> Result<Program, Failure> {
        let dirs = self.program_dirs();
        let is_there = |name: &str| dirs.iter().any(|dir| dir.join(name).is_file());
        for name in names {
            if let Some(path) = dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file()) {
                return Ok(Program {
                    path,
                    name,
                    variables: Vec::new(),
                });
            }
        }
        let name = names.first().copied().unwrap_or_default();
        // The package manager of the commands can be missing as well.
        let needed = install.first().and_then(|command| command.split(' ').next());
        let needed = match needed {
            Some("npm") if !is_there("npm") => Some("install Node.js from https://nodejs.org"),
            Some("python3") if !is_there("python3") => Some("install Python from https://python.org"),
            Some("rustup") if !is_there("cargo") => Some("install Rust from https://rustup.rs"),
            _ => None,
        };
        let files = Text::join(names.iter().map(|name| text!("`{}`", Own(name))), " or ");
        let places = OWN_DIRS.map(|dir| text!("`{}` of the tool", Own(dir)));
        let active = self
            .environment
            .var("VIRTUAL_ENV")
            .map(|dir| text!("`{}/bin`", dir.to_owned()));
        let places = Text::join(places.into_iter().chain(active), ", ");
        Err(self
            .failed()
            .why(text!("`{}` is not installed", Own(name)))
            .why(text!(
                "there is no file {} in {} and the directories of `PATH`",
                files,
                places
            ))
            .hints(needed.map(Text::from))
            .hint(self.installing(install)))
    }

    /// Returns the directories with programs, in the order in which they are searched.
    fn program_dirs(&self) -> Vec<PathBuf> {
        let active = self
            .environment
            .var("VIRTUAL_ENV")
            .map(|dir| Path::new(dir).join("bin"));
        let own = OWN_DIRS.iter().map(|dir| self.dir.join(dir));
        own.chain(active).chain(self.environment.program_dirs()).collect()
    }

    /// Returns the hint to run commands in the directory of the tool.
    pub(crate) fn installing(&self, commands: &[&'static str]) -> Text {
        let commands = Text::join(commands.iter().map(|command| Text::from(*command)), "; ");
        let hint = if self.dir == self.environment.cwd {
            "install it: ".into()
        } else {
            text!("install it, in `{}`: ", self.environment.shown(self.dir))
        };
        Text::join([hint, commands], "")
    }

    /// Returns the failure of this build.
    pub(crate) fn failed(&self) -> Failure {
        Failure::new(
            Exit::Failed,
            text!("could not build the tool `{}`", self.manifest.name),
        )
    }

    /// Returns the path of an intermediate file from the directory of the tool.
    pub(crate) fn intermediate(&self, name: &str) -> String {
        format!("{BUILD}/{name}")
    }

    /// Writes an intermediate file.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let path = self.dir.join(BUILD).join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| self.failed().because(error))?;
        }
        toolcell_fs::replace(&path, content, toolcell_fs::SHARED)
            .map_err(|error| self.failed().because(error))
    }

    /// Reads what a compiler has written.
    ///
    /// # Errors
    /// Returns an error if it cannot be read or is larger than a component may be.
    pub(crate) fn output(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let rules = toolcell_fs::Rules::named(crate::components::sandbox::MAX_COMPONENT_BYTES);
        toolcell_fs::read(&self.dir.join(path), &rules).map_err(|error| self.failed().because(error))
    }

    /// Runs a program in the directory of the tool.
    ///
    /// # Errors
    /// Returns an error with the end of its output if it fails.
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
        program: &Program,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<(), Failure> {
        let failed = || self.failed().why(text!("`{}` failed", Own(program.name)));
        let _shown = self.console.activity(text!("{} …", Own(program.name)));
        let mut child = Command::new(&program.path);
        // Programs start others by their names: those of npm start Node.js, which npm can install as well.
        // Without a `PATH`, shells have one of their own.
        if self.environment.var_os("PATH").is_some()
            && let Ok(path) = std::env::join_paths(self.program_dirs())
        {
            child.env("PATH", path);
        }
        // Before it is started: a signal in between would end this process alone.
        let stop = CancellationToken::new();
        let _guard = self.interrupts.end_next(stop.clone());
        let mut child = child
            .args(arguments)
            .current_dir(self.dir)
            // Escape sequences would be shown as such.
            .env("NO_COLOR", "1")
            .env("CARGO_TERM_COLOR", "never")
            .envs(program.variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed().because(error))?;
        let group = Group::of(&child);
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let ended = async {
            let status = child.wait().await;
            // What the program leaves behind would keep its output open.
            drop(group);
            status
        };
        let run = async { tokio::join!(end_of(out), end_of(err), ended) };
        let Some((out, err, status)) = stop.run_until_cancelled(run).await else {
            return Err(Failure::new(Exit::Cancelled, "the build was cancelled"));
        };
        let status = status.map_err(|error| failed().because(error))?;
        if status.success() {
            return Ok(());
        }
        let mut failure = failed();
        for output in [err, out] {
            if !output.trim().is_empty() {
                failure = failure.why(output.trim().to_owned());
            }
        }
        Err(failure)
    }
}

impl Program {
    /// Sets a variable of its environment.
    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }
}

/// Process group of a program. Dropping it ends the program and what it has started.
struct Group(Option<Pid>);

impl Group {
    fn of(leader: &Child) -> Self {
        let pid = leader.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads a stream to its end and returns the last part of it.
async fn end_of(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut end = Vec::new();
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut chunk = vec![0; CHUNK];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        end.extend_from_slice(chunk.get(..read).unwrap_or_default());
        // In large steps, so that each byte is moved once at most.
        if end.len() > 2 * MAX_OUTPUT {
            end.drain(..end.len() - MAX_OUTPUT);
        }
    }
    let start = end.len().saturating_sub(MAX_OUTPUT);
    String::from_utf8_lossy(end.get(start..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_of_a_long_output_is_kept() {
        for (length, kept) in [
            (0, 0),
            (MAX_OUTPUT, MAX_OUTPUT),
            (MAX_OUTPUT + 1, MAX_OUTPUT),
            (5 * MAX_OUTPUT + 7, MAX_OUTPUT),
        ] {
            let mut output = vec![b'a'; length];
            if let Some(last) = output.last_mut() {
                *last = b'z';
            }
            let end = end_of(Some(&output[..])).await;
            assert_eq!(end.len(), kept);
            assert_eq!(end.ends_with('z'), length > 0);
        }
    }
}
