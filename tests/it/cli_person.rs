//! A person at a shell: a home of their own, nothing else in the environment, and the built `toolcell`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::probe::Probe;

/// Compiled code is kept between tests, as it is between the runs of a person. It is keyed by what is compiled.
fn cache_home() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A person with a home directory and a directory to work in. Both are gone with the value.
pub(crate) struct Person {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

/// What the person saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Person {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home/.config/toolcell", "work"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self {
            dir,
            vars: Vec::new(),
        }
    }

    /// The directory in which the person works.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home").canonicalize().unwrap()
    }

    /// Writes a file below the working directory.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Writes the person's own configuration.
    pub(crate) fn configure(&self, toml: &str) -> &Self {
        std::fs::write(self.home().join(".config/toolcell/config.toml"), toml).unwrap();
        self
    }

    /// Puts a tool of the tests into a file below the working directory.
    pub(crate) fn probe(&self, path: &str, probe: &Probe) -> &Self {
        self.file(path, probe.build())
    }

    /// Sets an environment variable.
    pub(crate) fn var(&mut self, name: &str, value: &str) -> &mut Self {
        self.vars.push((name.into(), value.into()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcell"));
        command
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.home())
            .env("XDG_CACHE_HOME", cache_home())
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Seen {
        self.command(arguments).output().unwrap().into()
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Seen {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that fails early does not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap().into()
    }

    /// Replaces what differs from machine to machine.
    pub(crate) fn plain(&self, text: &str) -> String {
        text.replace(self.work().to_str().unwrap(), "[work]")
            .replace(self.home().to_str().unwrap(), "[home]")
    }
}

impl From<Output> for Seen {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Seen {
    /// What was printed, once the exit code is as expected.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Standard output as one JSON value a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
