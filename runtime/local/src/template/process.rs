//! Templates in a process of their own: the template engine can be made to exhaust the stack, the memory or the time of its process in
//! ways that its own limits do not cover, and a Rust program cannot go on after the first two.

use std::io::{self, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use super::{ChatTemplate, Checked, Conversation, MAX_OUTPUT_BYTES};
use crate::ChildCommand;
use crate::error::TemplateError;

/// Maximum time of one text, in seconds: published templates take milliseconds.
pub const MAX_SECONDS: u64 = 10;

/// Maximum memory of the process, in bytes: 1 GiB, four times what [`super::FUEL`] allows. Only Linux keeps to it.
pub const MAX_MEMORY: u64 = 1 << 30;

/// Maximum size of what the process reads and writes, in bytes: JSON takes up to six bytes for one of a text.
const MAX_MESSAGE: u64 = 6 * MAX_OUTPUT_BYTES as u64 + (4 << 20);

/// Work of the process.
#[derive(Serialize, Deserialize)]
struct Job {
    source: String,
    /// Conversation to write; without one, the template is checked.
    conversation: Option<Conversation>,
    /// Time that it writes, as RFC 3339 has it without a zone.
    now: Option<String>,
}

/// Result of the process.
#[derive(Serialize, Deserialize)]
enum Done {
    Checked(Checked),
    Text(String),
    Failed(TemplateError),
}

/// Runs templates.
#[derive(Debug, Clone)]
pub struct Templates(Place);

#[derive(Debug, Clone)]
enum Place {
    Process(ChildCommand),
    #[cfg(test)]
    Here,
}

impl Templates {
    /// Runs templates in processes, which call [`template_child_main`].
    pub fn new(command: ChildCommand) -> Self {
        Self(Place::Process(command))
    }

    /// Runs templates in this process.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self(Place::Here)
    }

    /// Writes a short conversation, without tools and with one. Waits for a process.
    ///
    /// # Errors
    /// [`TemplateError`] if the one without tools fails, or the process ends.
    pub fn check(&self, source: &str) -> Result<Checked, TemplateError> {
        match self.run(source, None)? {
            Done::Checked(checked) => Ok(checked),
            Done::Failed(error) => Err(error),
            Done::Text(_) => Err(TemplateError::Stopped),
        }
    }

    /// Writes a conversation. Waits for a process.
    ///
    /// # Errors
    /// [`TemplateError`] if the template raises an error, as many do for orders of messages that they do not know, exceeds a limit, or
    /// the process ends.
    pub fn render(&self, source: &str, conversation: &Conversation) -> Result<String, TemplateError> {
        match self.run(source, Some(conversation))? {
            Done::Text(text) => Ok(text),
            Done::Failed(error) => Err(error),
            Done::Checked(_) => Err(TemplateError::Stopped),
        }
    }

    fn run(&self, source: &str, conversation: Option<&Conversation>) -> Result<Done, TemplateError> {
        let job = Job {
            source: source.to_owned(),
            now: conversation
                .and_then(|conversation| conversation.now)
                .map(|now| now.to_string()),
            conversation: conversation.cloned(),
        };
        match &self.0 {
            Place::Process(command) => ask(command, &job),
            #[cfg(test)]
            Place::Here => Ok(work(job)),
        }
    }
}

/// Gives a process its work, and waits for the result.
fn ask(command: &ChildCommand, job: &Job) -> Result<Done, TemplateError> {
    let message = serde_json::to_vec(job).map_err(|error| TemplateError::Failed(error.to_string()))?;
    if message.len() as u64 > MAX_MESSAGE {
        return Err(TemplateError::InputTooLong);
    }
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(TemplateError::Start)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (sender, answers) = mpsc::channel();
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        let read = output.map(|output| output.take(MAX_MESSAGE).read_to_end(&mut answer));
        // Nobody waits after the time.
        let _ = sender.send(matches!(read, Some(Ok(_))).then_some(answer));
    });
    std::thread::spawn(move || {
        // A process that ends early says so by its output.
        let _ = input.map(|mut input| input.write_all(&message));
    });
    let answer = answers.recv_timeout(Duration::from_secs(MAX_SECONDS));
    // It has ended, or is not to go on.
    let _ = child.kill();
    let _ = child.wait();
    let answer = answer.ok().flatten().ok_or(TemplateError::Stopped)?;
    serde_json::from_slice(&answer).map_err(|_| TemplateError::Stopped)
}

fn work(job: Job) -> Done {
    let done = ChatTemplate::parse(&job.source).and_then(|template| match job.conversation {
        None => template.check().map(Done::Checked),
        Some(mut conversation) => {
            conversation.now = job.now.and_then(|now| now.parse::<DateTime>().ok());
            template.render(&conversation).map(Done::Text)
        }
    });
    done.unwrap_or_else(Done::Failed)
}

/// Runs a process that was started for a template, and returns its exit status. A program that has local models calls only this
/// function when it is started with the arguments of the [`ChildCommand`].
pub fn template_child_main() -> ExitCode {
    confine();
    let mut message = Vec::new();
    let read = io::stdin().take(MAX_MESSAGE).read_to_end(&mut message);
    let job = serde_json::from_slice(&message);
    let (Ok(_), Ok(job)) = (read, job) else {
        return ExitCode::FAILURE;
    };
    let written = serde_json::to_vec(&work(job)).map(|answer| io::stdout().write_all(&answer));
    match written {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Limits what the process can take.
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
    limit(Resource::Cpu, MAX_SECONDS);
    #[cfg(target_os = "linux")]
    {
        limit(Resource::As, MAX_MEMORY);
        let _ = rustix::thread::set_no_new_privs(true);
    }
}
