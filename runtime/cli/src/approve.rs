//! A person at the terminal decides on calls, and what they decided for always is remembered.
//!
//! What is remembered is scoped to a tool, the digest of its component and a pattern of arguments, lies in the person's
//! own state directory, and is written only when the person says so here. It answers questions that a rule asks; the
//! question of the flow guard is asked each time.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcell_agent::{ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FlowGuard, Verdict};
use toolcell_core::BoxFuture;

use crate::config::Settings;
use crate::config::file::{FlowRule, VerdictWord};
use crate::environment::Environment;
use crate::render::Console;
use crate::terminal::{FAINT, NAME, STRONG, WARN};

/// Name of the file with what is remembered, in the state directory.
const FILE: &str = "approvals.json";

/// Largest such file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The rules of the loop, as configuration has them.
pub(crate) fn rules(settings: &Settings) -> Approvals {
    Approvals {
        rules: settings
            .rules
            .iter()
            .map(|rule| ApprovalRule {
                tool: rule.tool.clone(),
                arguments: rule.arguments.clone(),
                verdict: match rule.verdict {
                    VerdictWord::Allow => Verdict::Allow,
                    VerdictWord::Ask => Verdict::Ask,
                    VerdictWord::Deny => Verdict::Deny,
                },
            })
            .collect(),
        flow: match settings.flow.value {
            FlowRule::Off => FlowGuard::Off,
            FlowRule::Ask => FlowGuard::Ask,
            FlowRule::Refuse => FlowGuard::Refuse,
        },
    }
}

/// Something that a person allowed for always.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remembered {
    /// Name of the tool.
    tool: String,
    /// Digest of its component: another version asks again.
    digest: String,
    /// The arguments, exactly; `None` means whatever they are.
    arguments: Option<Value>,
}

/// Asks the person at the terminal.
pub(crate) struct AtTerminal(Arc<Asking>);

struct Asking {
    console: Console,
    approvals: Approvals,
    /// Digest of the component behind each tool.
    digests: BTreeMap<String, String>,
    file: Option<PathBuf>,
    remembered: Mutex<Vec<Remembered>>,
    /// Whether the session is kept, so that another process can ask again.
    is_kept: bool,
}

impl AtTerminal {
    /// An approver, where there is a terminal to ask at; without one every question is answered with no.
    pub(crate) fn new(
        environment: &Environment,
        console: &Console,
        approvals: Approvals,
        digests: BTreeMap<String, String>,
        is_kept: bool,
    ) -> Option<Arc<Self>> {
        let terminals = environment.terminals;
        if !terminals.stdin || !terminals.stderr {
            return None;
        }
        let file = environment.state_dir.as_ref().map(|dir| dir.join(FILE));
        let remembered = match file.as_deref().map(read).transpose() {
            Ok(remembered) => remembered.unwrap_or_default(),
            Err(error) => {
                console.note(&format!("remembered approvals are not used: {error}"));
                Vec::new()
            }
        };
        Some(Arc::new(Self(Arc::new(Asking {
            console: console.clone(),
            approvals,
            digests,
            file,
            remembered: Mutex::new(remembered),
            is_kept,
        }))))
    }
}

impl Asking {
    /// Whether a rule asks, and nothing but a rule.
    fn is_asked_by_a_rule_alone(&self, request: &ApprovalRequest) -> bool {
        match self.approvals.verdict(&request.tool, &request.arguments) {
            (Verdict::Ask, Some(rule)) => request.reason == format!("the rule `{rule}`"),
            _ => false,
        }
    }

    fn is_remembered(&self, request: &ApprovalRequest) -> bool {
        let digest = self.digests.get(&request.tool);
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.iter().any(|known| {
            known.tool == request.tool
                && Some(&known.digest) == digest
                && known
                    .arguments
                    .as_ref()
                    .is_none_or(|arguments| *arguments == request.arguments)
        })
    }

    fn remember(&self, request: &ApprovalRequest, arguments: Option<Value>) {
        let (Some(file), Some(digest)) = (&self.file, self.digests.get(&request.tool)) else {
            return;
        };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.push(Remembered {
            tool: request.tool.clone(),
            digest: digest.clone(),
            arguments,
        });
        if let Err(error) = write(file, &remembered) {
            self.console.note(&format!("it is not remembered: {error}"));
        }
    }

    /// Shows exactly what will be executed, and what the answers mean.
    fn show(&self, request: &ApprovalRequest, rule_alone: bool) -> io::Result<()> {
        self.console.write(|s| {
            s.end_open_line()?;
            s.set_line_open(false);
            s.err.end_line()?;
            s.err.styled(WARN, "? ")?;
            s.err.styled(STRONG, &request.tool)?;
            s.err.line(" wants to run with")?;
            // Nothing is cut: what is hidden could be what matters.
            for line in format!("{:#}", request.arguments).lines() {
                s.err.line(&format!("    {line}"))?;
            }
            s.err
                .styled(FAINT, &format!("  asked because of {}", request.reason))?;
            s.err.end_line()?;
            s.err.styled(NAME, "  y")?;
            s.err.text(" once   ")?;
            if rule_alone {
                s.err.styled(NAME, "a")?;
                s.err.text(" always with these arguments   ")?;
                s.err.styled(NAME, "t")?;
                s.err.text(" always, with any   ")?;
            }
            if self.is_kept {
                s.err.styled(NAME, "l")?;
                s.err.text(" later   ")?;
            }
            s.err.styled(NAME, "n")?;
            s.err.text(" no: ")?;
            s.err.flush()
        })
    }

    fn answer(&self, request: &ApprovalRequest, withdrawn: &AtomicBool) -> Decision {
        let deny = |reason: Option<String>| Decision::Deny { reason };
        let rule_alone = self.is_asked_by_a_rule_alone(request);
        if rule_alone && self.is_remembered(request) {
            return Decision::Approve;
        }
        let _pause = self.console.pause();
        for _ in 0..3 {
            if self.show(request, rule_alone).is_err() {
                return deny(Some("there is nobody to ask".into()));
            }
            let mut line = String::new();
            match read_line(&mut line, withdrawn) {
                Ok(0) | Err(_) => {
                    let _ = self.console.write(|s| s.err.end_line());
                    return deny(Some("there is nobody to ask".into()));
                }
                Ok(_) => {}
            }
            match line.trim() {
                "y" | "yes" => return Decision::Approve,
                "a" if rule_alone => {
                    self.remember(request, Some(request.arguments.clone()));
                    return Decision::Approve;
                }
                "t" if rule_alone => {
                    self.remember(request, None);
                    return Decision::Approve;
                }
                "l" if self.is_kept => return Decision::Later,
                "n" | "no" => return deny(None),
                _ => {}
            }
        }
        deny(None)
    }
}

impl Approver for AtTerminal {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        let (asking, request) = (self.0.clone(), request.clone());
        Box::pin(async move {
            // Reading a line blocks its thread. When the turn is cancelled this future is dropped, and the question with it.
            let withdrawn = Withdrawn::default();
            let flag = withdrawn.0.clone();
            let asked = tokio::task::spawn_blocking(move || asking.answer(&request, &flag));
            asked.await.unwrap_or(Decision::Deny { reason: None })
        })
    }
}

/// Set when nobody waits for the answer any more.
#[derive(Default)]
struct Withdrawn(Arc<AtomicBool>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a line, and stops to wait for it when the question is withdrawn, so that the next line is somebody else's.
#[cfg(unix)]
fn read_line(line: &mut String, withdrawn: &AtomicBool) -> io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = io::stdin();
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    loop {
        let ready = match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&tick)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if withdrawn.load(Ordering::Relaxed) {
            return Ok(0);
        }
        if ready > 0 {
            // A terminal hands over whole lines.
            return stdin.lock().read_line(line);
        }
    }
}

#[cfg(not(unix))]
fn read_line(line: &mut String, _: &AtomicBool) -> io::Result<usize> {
    io::stdin().lock().read_line(line)
}

fn read(file: &Path) -> io::Result<Vec<Remembered>> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_BYTES => {
            return Err(io::Error::other(format!(
                "`{}` is no file of approvals",
                file.display()
            )));
        }
        Ok(_) => {}
    }
    serde_json::from_slice(&std::fs::read(file)?).map_err(io::Error::other)
}

/// Writes the whole list to a new file and puts it in the place of the old one, so that no reader sees half of it.
fn write(file: &Path, remembered: &[Remembered]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let text = serde_json::to_vec_pretty(remembered).map_err(io::Error::other)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // What a person allowed is nobody else's business.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&new)?.write_all(&text)?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asking(file: &Path, digest: &str) -> Asking {
        let environment = Environment::for_tests(Path::new("/"), &[]);
        Asking {
            console: Console::new(&environment),
            approvals: Approvals {
                rules: vec![ApprovalRule::tool("files_*", Verdict::Ask)],
                flow: FlowGuard::Ask,
            },
            digests: BTreeMap::from([("files_write".to_owned(), digest.to_owned())]),
            file: Some(file.to_owned()),
            remembered: Mutex::new(read(file).unwrap()),
            is_kept: false,
        }
    }

    fn request(arguments: Value, reason: &str) -> ApprovalRequest {
        ApprovalRequest {
            id: "1".into(),
            tool: "files_write".into(),
            arguments,
            reason: reason.into(),
        }
    }

    #[test]
    fn what_is_remembered_holds_for_the_same_tool_digest_and_arguments_and_for_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/approvals.json");
        let same = request(json!({"path": "/a"}), "the rule `ask for files_*`");
        asking(&file, "sha256:1").remember(&same, Some(same.arguments.clone()));
        let later = asking(&file, "sha256:1");
        assert!(later.is_remembered(&same));
        assert!(later.is_asked_by_a_rule_alone(&same));
        assert!(!later.is_remembered(&request(json!({"path": "/b"}), "")));
        assert!(!asking(&file, "sha256:2").is_remembered(&same));
        later.remember(&same, None);
        assert!(asking(&file, "sha256:1").is_remembered(&request(json!({"path": "/b"}), "")));
    }

    #[test]
    fn the_question_of_the_flow_guard_is_never_answered_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let asking = asking(&dir.path().join("a.json"), "sha256:1");
        let flow = request(
            json!({}),
            "the rule `ask for files_*`; and with this call the session would have …",
        );
        assert!(!asking.is_asked_by_a_rule_alone(&flow));
    }
}
