//! A user at a real terminal: a pseudo-terminal with the program, and keys typed once a text is shown.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::cli_user::User;

/// Timeout without output.
const PATIENCE: Timespec = Timespec {
    tv_sec: 120,
    tv_nsec: 0,
};

/// A terminal with a program.
pub(crate) struct Terminal {
    master: File,
    /// Held so that the terminal outlives the program.
    slave: File,
    child: Child,
    /// All output so far.
    pub(crate) seen: String,
    bytes: Vec<u8>,
    /// Offset of the output already waited for.
    at: usize,
}

impl Terminal {
    /// Starts a command on a terminal of this kind and size.
    pub(crate) fn start(user: &User, command: &[&str], term: &str, columns: u16, rows: u16) -> Self {
        Self::start_command(user.command(command), term, columns, rows)
    }

    /// Starts any program.
    pub(crate) fn start_command(mut command: Command, term: &str, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let open = || -> Stdio { OwnedFd::from(slave.try_clone().unwrap()).into() };
        command
            // A job of its own, as a shell makes one.
            .process_group(0)
            .env("TERM", term)
            .env("NO_COLOR", "1")
            .stdin(open())
            .stdout(open())
            .stderr(open());
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        Self {
            master: File::from(master),
            slave: slave.try_clone().unwrap(),
            child: command.spawn().unwrap(),
            seen: String::new(),
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program is stopped.
    pub(crate) fn wait_for_stop(&self) {
        let pid = Pid::from_child(&self.child);
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        let (_, status) =
            patiently(|| waitpid(Some(pid), options).unwrap()).expect("the program is not stopped");
        assert!(status.stopped(), "{status:?}");
    }

    /// Returns the modes of the terminal.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Waits for the prompt of a question and types an answer as a user does: each key by itself, and with the digits that
    /// the prompt names, if it does.
    #[track_caller]
    pub(crate) fn answer(&mut self, answer: &str) -> &mut Self {
        self.answer_with(&format!("{answer}#"))
    }

    /// Answers the next question, with the digits of its prompt, if it has some, in the place of `#`.
    pub(crate) fn answer_with(&mut self, answer: &str) -> &mut Self {
        self.wait_for("Enter: ");
        let prompt = &self.seen[..self.at];
        let prompt = &prompt[prompt.rfind("your answer").unwrap()..];
        let digits: String = prompt.chars().filter(char::is_ascii_digit).take(2).collect();
        for key in answer.replace('#', &digits).chars() {
            // What is shown was taken.
            self.keys(&key.to_string()).wait_for(&key.to_string());
        }
        self.keys("\n")
    }

    /// Types keys.
    pub(crate) fn keys(&mut self, keys: &str) -> &mut Self {
        self.master.write_all(keys.as_bytes()).unwrap();
        self
    }

    /// Reads until the text occurs in new output.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> &mut Self {
        self.wait_for_any(&[text]);
        self
    }

    /// Reads until one of the texts occurs in new output, and returns its index.
    #[track_caller]
    pub(crate) fn wait_for_any(&mut self, texts: &[&str]) -> usize {
        loop {
            let new = &self.seen[self.at..];
            let found = texts
                .iter()
                .enumerate()
                .find_map(|(i, text)| Some((i, new.find(text)?)));
            if let Some((i, found)) = found {
                self.at += found + texts[i].len();
                return i;
            }
            let mut input = [PollFd::new(&self.master, PollFlags::IN)];
            let ready = poll(&mut input, Some(&PATIENCE)).unwrap();
            assert!(ready > 0, "{texts:?} did not come: {}", self.seen);
            let mut piece = [0; 4096];
            let length = self.master.read(&mut piece).unwrap_or(0);
            assert!(
                length > 0,
                "the terminal is gone and {texts:?} did not come: {}",
                self.seen
            );
            self.bytes.extend_from_slice(&piece[..length]);
            // A character may be split between two reads.
            let whole = match std::str::from_utf8(&self.bytes) {
                Ok(text) => text.len(),
                Err(error) => error.valid_up_to(),
            };
            let new: Vec<u8> = self.bytes.drain(..whole).collect();
            self.seen.push_str(std::str::from_utf8(&new).unwrap());
        }
    }

    /// Waits for the end of the program and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let status = patiently(|| self.child.try_wait().unwrap()).expect("the program does not end");
        status.code()
    }

    /// Reads until the program has ended. Returns its exit code.
    pub(crate) fn finish(&mut self) -> Option<i32> {
        let code = self.end();
        // Follows all output of the program.
        self.slave.write_all(b"\n@@ended@@\n").unwrap();
        self.wait_for("@@ended@@");
        code
    }

    /// Returns the lines, without those erased by a carriage return.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.seen
            .split('\n')
            .map(|line| line.trim_end_matches('\r'))
            .collect()
    }
}

/// Repeats until there is a value; none after [`PATIENCE`].
fn patiently<T>(mut get: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let value = get();
        if value.is_some() || start.elapsed().as_secs() > PATIENCE.tv_sec.unsigned_abs() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
