//! Standard input of a command, and what is piped to it.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::fd::AsFd as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::prompt::MAX_BINARY;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Seconds to wait for the first byte of a pipe. A pipe that nobody writes to, as some programs leave it, would otherwise
/// hold a turn for ever.
const FIRST_BYTE_SECONDS: i32 = 3;

/// Programs that start another one, wait for it, and never read the standard input that both have. Others, such as
/// `nice` and `env`, become the program that they start.
const WRAPPERS: [&str; 13] = [
    "timeout",
    "time",
    "setsid",
    "flock",
    "sudo",
    "doas",
    "runuser",
    "strace",
    "ltrace",
    "unshare",
    "bwrap",
    "tini",
    "dumb-init",
];

/// Maximum number of such programs around each other.
const MAX_WRAPPERS: usize = 16;

/// Reads everything; `None` if there is more than `most`.
pub(super) fn read_at_most(input: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Reads what is piped or redirected to standard input; `None` if nothing is.
///
/// Input that the parent process may read as well is left alone: a shell that gets its script on standard input would lose
/// the rest of it.
/// A pipe is read if its first byte comes in time. Terminals, devices and sockets are not read.
pub(super) fn piped(console: &Console) -> Result<Option<Vec<u8>>, Failure> {
    let fail = || Failure::new(Exit::Usage, "could not read standard input");
    let stdin = io::stdin();
    let Ok(file) = stdin.as_fd().try_clone_to_owned().map(File::from) else {
        return Ok(None);
    };
    let kind = rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_ours = match kind {
        Ok(FileType::RegularFile) => {
            (&file).stream_position().is_ok_and(|position| position == 0) && !is_of_parent()
        }
        Ok(FileType::Fifo) => !is_of_parent(),
        _ => return Ok(None),
    };
    if !is_ours {
        console.note("standard input is not sent, because the program that started this one may read it as well; `--attach -` sends it");
        return Ok(None);
    }
    let is_pipe = kind == Ok(FileType::Fifo);
    if is_pipe && !first_byte(&file).map_err(|e| fail().because(io::Error::from(e)))? {
        console.note(text!(
            "nothing came on standard input in {} s, so the prompt goes alone; `< /dev/null` says so at once",
            FIRST_BYTE_SECONDS
        ));
        return Ok(None);
    }
    Ok(Some(all_of_input()?).filter(|bytes| !bytes.is_empty()))
}

pub(super) fn all_of_input() -> Result<Vec<u8>, Failure> {
    let fail = || Failure::new(Exit::Usage, "could not read standard input");
    let bytes = read_at_most(io::stdin(), MAX_BINARY).map_err(|e| fail().because(e))?;
    bytes.ok_or_else(|| fail().why(text!("it has more than {} MiB", MAX_BINARY >> 20)))
}

/// True if a program that started this one has the same standard input, and may read it. Where the system does not say
/// (proc(5)), it has not.
fn is_of_parent() -> bool {
    let input = |process: &str| std::fs::read_link(format!("/proc/{process}/fd/0")).ok();
    let Some(own) = input("self") else {
        return false;
    };
    let mut parent = rustix::process::getppid().map(|id| id.as_raw_nonzero().get());
    // Each has started the one before, so the walk ends; the bound holds for numbers that are used again meanwhile.
    for _ in 0..MAX_WRAPPERS {
        let Some(process) = parent.map(|id| id.to_string()) else {
            return false;
        };
        if input(&process).as_ref() != Some(&own) {
            return false;
        }
        let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else {
            return true;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        if !field("Name:").is_some_and(|name| WRAPPERS.contains(&name)) {
            return true;
        }
        parent = field("PPid:").and_then(|id| id.parse().ok()).filter(|id| *id > 0);
    }
    true
}

/// Waits until a pipe has a byte or its end; false if neither comes in time.
fn first_byte(pipe: &File) -> Result<bool, Errno> {
    let time = Timespec {
        tv_sec: FIRST_BYTE_SECONDS.into(),
        tv_nsec: 0,
    };
    loop {
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&time)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_read_up_to_its_limit() {
        assert_eq!(read_at_most(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(read_at_most(&b"abcd"[..], 3).unwrap(), None);
    }
}
