//! A user at a shell: a private home directory, an otherwise empty environment, and the built `toolcell`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::probe::Probe;
use crate::support::planted::{Planted, files_below};

/// A variable in the environment of every user that no test grants to a tool.
const PLANTED: (&str, &str) = ("PLANTED_BY_THE_SUITE", "pl4nted-in-every-environment");

/// Compile cache shared by all tests, keyed by what is compiled.
fn cache_home() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Arguments of a turn with the scripted model of `script.json`.
pub(crate) const SCRIPTED: [&str; 6] = ["run", "x", "--provider", "scripted", "--model", "script.json"];

/// A user with a home and a working directory. Both are removed on drop; before that, every file in them is searched
/// for the user's secrets.
pub(crate) struct User {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
    planted: Vec<Planted>,
    /// Files written by the test itself.
    own: RefCell<BTreeSet<PathBuf>>,
}

/// Output of a command.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl User {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home/.config/toolcell", "work"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self {
            dir,
            vars: vec![(PLANTED.0.into(), PLANTED.1.into())],
            planted: vec![Planted::new(PLANTED.1)],
            own: RefCell::default(),
        }
    }

    /// Returns the working directory.
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
        std::fs::write(&path, content).unwrap();
        self.own.borrow_mut().insert(path);
        self
    }

    /// Writes the user's own configuration.
    pub(crate) fn configure(&self, toml: &str) -> &Self {
        let path = self.home().join(".config/toolcell/config.toml");
        std::fs::write(&path, toml).unwrap();
        self.own.borrow_mut().insert(path);
        self
    }

    /// Writes a test tool to a file below the working directory.
    pub(crate) fn probe(&self, path: &str, probe: &Probe) -> &Self {
        self.file(path, probe.build())
    }

    /// Sets an environment variable. The values of keys and tokens must not appear in any output.
    pub(crate) fn var(&mut self, name: &str, value: &str) -> &mut Self {
        let is_secret = ["KEY", "TOKEN", "SECRET"].iter().any(|word| name.ends_with(word));
        if is_secret && value.len() >= 8 {
            self.planted.push(Planted::new(value));
        }
        self.vars.push((name.into(), value.into()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_toolcell"), arguments)
    }

    /// Another program in the same environment.
    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
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
        self.seen(arguments, self.command(arguments).output().unwrap())
    }

    /// Converts the output, after searching it for secrets.
    #[track_caller]
    pub(crate) fn seen(&self, arguments: &[&str], output: Output) -> Seen {
        for planted in &self.planted {
            planted.is_absent(&format!("standard output of {arguments:?}"), &output.stdout);
            planted.is_absent(&format!("standard error of {arguments:?}"), &output.stderr);
        }
        output.into()
    }

    /// Runs a turn with the scripted model of `script.json` and these flags.
    pub(crate) fn run_script(&self, flags: &[&str]) -> Seen {
        self.run(&[&SCRIPTED[..], flags].concat())
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Seen {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that fails early may not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        self.seen(arguments, child.wait_with_output().unwrap())
    }

    /// Replaces paths that differ between machines.
    pub(crate) fn plain(&self, text: &str) -> String {
        text.replace(self.work().to_str().unwrap(), "[work]")
            .replace(self.home().to_str().unwrap(), "[home]")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let own = self.own.borrow();
        for file in files_below(self.dir.path()) {
            // A file can disappear in the meantime, such as those of a SQLite journal.
            let (false, Ok(bytes)) = (own.contains(&file), std::fs::read(&file)) else {
                continue;
            };
            for planted in &self.planted {
                planted.is_absent(&file.display().to_string(), &bytes);
            }
        }
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
    /// Asserts the exit code.
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

    /// Parses standard output as JSON lines.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
