//! The engine's process: reads requests from standard input, and writes answers to standard output.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::protocol::{Fault, FromEngine, Generate, Load, MAX_REQUEST_BYTES, ToEngine};
use super::runner::{Runner, with_model};

/// Runs a process that was started as described in [`crate::ChildCommand`], and returns its exit status. A program that has local
/// models calls only this function when it is started with the corresponding arguments.
pub fn engine_child_main() -> ExitCode {
    confine();
    match serve(io::BufReader::new(io::stdin()), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Drops rights that a model does not need.
fn confine() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |resource, most| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        // A lower limit of the system stays.
        let _ = setrlimit(resource, limit);
    };
    // No core dump, which would hold the conversation, and no growing file.
    limit(Resource::Core, 0);
    limit(Resource::Fsize, 0);
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::thread::set_no_new_privs(true);
    }
}

fn serve(mut input: impl BufRead + Send + 'static, output: &mut dyn Write) -> io::Result<()> {
    let Some(ToEngine::Load(load)) = read(&mut input)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (jobs, is_cancelled) = listen(input);
    match run(&load, &jobs, &is_cancelled, output) {
        Ok(served) => served,
        Err(fault) => say(output, &FromEngine::Failed(fault)),
    }
}

fn run(
    load: &Load,
    jobs: &mpsc::Receiver<Box<Generate>>,
    is_cancelled: &AtomicBool,
    output: &mut dyn Write,
) -> Result<io::Result<()>, Fault> {
    with_model(load, |runner| {
        say(
            output,
            &FromEngine::Loaded {
                control: runner.control_names(),
            },
        )?;
        for job in jobs {
            answer(runner, &job, is_cancelled, output)?;
        }
        Ok(())
    })
}

fn answer(
    runner: &mut Runner<'_>,
    job: &Generate,
    is_cancelled: &AtomicBool,
    output: &mut dyn Write,
) -> io::Result<()> {
    let is_cancelled = || is_cancelled.load(Ordering::Acquire);
    let answered = runner.generate(job, &is_cancelled, &mut |message| say(output, &message));
    let last = match answered {
        Ok(Ok(done)) => FromEngine::Done(done),
        Ok(Err(error)) => return Err(error),
        Err(fault) => FromEngine::Failed(fault),
    };
    say(output, &last)
}

/// Reads requests on a thread, so that one can be cancelled. The process ends with its input, even within an answer.
fn listen(mut input: impl BufRead + Send + 'static) -> (mpsc::Receiver<Box<Generate>>, Arc<AtomicBool>) {
    let (sender, jobs) = mpsc::sync_channel(1);
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_cancelled);
    std::thread::spawn(move || {
        loop {
            match read(&mut input) {
                Ok(Some(ToEngine::Generate(job))) => {
                    flag.store(false, Ordering::Release);
                    if sender.send(job).is_err() {
                        break;
                    }
                }
                Ok(Some(ToEngine::Cancel)) => flag.store(true, Ordering::Release),
                Ok(Some(ToEngine::Load(_)) | None) | Err(_) => break,
            }
        }
        // Nobody waits for an answer any more.
        std::process::exit(0);
    });
    (jobs, is_cancelled)
}

fn read(input: &mut impl BufRead) -> io::Result<Option<ToEngine>> {
    let mut line = Vec::new();
    let most = MAX_REQUEST_BYTES as u64 + 1;
    let length = input.take(most).read_until(b'\n', &mut line)?;
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

fn say(output: &mut dyn Write, message: &FromEngine) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
