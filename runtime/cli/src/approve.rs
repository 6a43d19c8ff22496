//! A person at the terminal decides on calls, and what they decided for always is remembered.
//!
//! What is remembered ([`Remembered`]) answers questions that a rule asks; the question of the flow guard is asked each time.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_agent::{
    ApprovalCause, ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FlowGuard, Verdict,
};
use toolcell_core::BoxFuture;

use crate::config::Settings;
use crate::config::file::{FlowRule, VerdictWord};
use crate::environment::Environment;
use crate::remembered::{self, Like, Remembered, Scope};
use crate::render::Console;
use crate::terminal::{FAINT, NAME, STRONG, WARN};

/// Most texts in the arguments of one call for which a person is asked for patterns.
const MAX_PATTERNS: usize = 8;

/// Characters of a text that are shown where its pattern is asked for; the whole of it stands above.
const SHOWN_CHARS: usize = 60;

/// The rules of the loop, as configuration has them.
pub(crate) fn rules(settings: &Settings, environment: &Environment) -> Approvals {
    Approvals {
        rules: settings
            .rules
            .iter()
            .map(|rule| ApprovalRule {
                tool: rule.tool.clone(),
                arguments: (rule.arguments.iter())
                    .map(|(pointer, pattern)| (pointer.clone(), from_home(pattern, environment)))
                    .collect(),
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
        base: environment.cwd.to_str().map(str::to_owned),
    }
}

/// A pattern with the home directory in the place of `~/`.
fn from_home(pattern: &str, environment: &Environment) -> String {
    let home = environment.home.as_deref().and_then(std::path::Path::to_str);
    match (pattern.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => pattern.to_owned(),
    }
}

/// What is known of the component behind a tool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Its digest.
    pub(crate) digest: String,
    /// What a person should look at in its words.
    pub(crate) suspicions: Vec<String>,
}

/// Asks the person at the terminal.
pub(crate) struct AtTerminal(Arc<Asking>);

struct Asking {
    console: Console,
    /// The component behind each tool.
    known: BTreeMap<String, Known>,
    file: Option<PathBuf>,
    remembered: Mutex<Vec<Remembered>>,
    /// Where relative patterns of paths start.
    base: Option<String>,
    /// Whether the session is kept, so that another process can ask again.
    is_kept: bool,
}

impl AtTerminal {
    /// An approver, where there is a terminal to ask at; without one every question is answered with no.
    pub(crate) fn new(
        environment: &Environment,
        console: &Console,
        known: BTreeMap<String, Known>,
        is_kept: bool,
    ) -> Option<Arc<Self>> {
        let terminals = environment.terminals;
        if !terminals.stdin || !terminals.stderr {
            return None;
        }
        let file = remembered::file(environment);
        let remembered = match file.as_deref().map(remembered::read).transpose() {
            Ok(remembered) => remembered.unwrap_or_default(),
            Err(error) => {
                console.note(&format!("remembered approvals are not used: {error}"));
                Vec::new()
            }
        };
        Some(Arc::new(Self(Arc::new(Asking {
            console: console.clone(),
            known,
            file,
            remembered: Mutex::new(remembered),
            base: environment.cwd.to_str().map(str::to_owned),
            is_kept,
        }))))
    }
}

impl Asking {
    /// Whether a person answered for always what is asked. The flow guard asks about one moment, so that nothing
    /// remembered answers it.
    fn is_answered(&self, request: &ApprovalRequest) -> bool {
        request.cause == ApprovalCause::Rule && self.is_remembered(request)
    }

    fn is_remembered(&self, request: &ApprovalRequest) -> bool {
        let Some(Known { digest, .. }) = self.known.get(&request.tool) else {
            return false;
        };
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered
            .iter()
            .any(|known| known.allows(request, digest, self.base.as_deref()))
    }

    fn remember(&self, request: &ApprovalRequest, arguments: Scope) {
        let (Some(file), Some(Known { digest, .. })) = (&self.file, self.known.get(&request.tool)) else {
            self.console
                .note("it is not remembered: there is no place for it");
            return;
        };
        let new = Remembered {
            tool: request.tool.clone(),
            digest: digest.clone(),
            arguments,
            places: remembered::places_of(request),
        };
        self.console
            .note(&format!("from now on `{}` runs {}", new.tool, new.arguments));
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        // Another process may have added some, or a person deleted some, since they were read.
        let written = remembered::read(file).and_then(|mut all| {
            all.push(new.clone());
            remembered::write(file, &all)
        });
        remembered.push(new);
        if let Err(error) = written {
            self.console
                .note(&format!("it holds for this session only: {error}"));
        }
    }

    /// Asks for a pattern for each text in the arguments; `None` if the person gives up.
    fn ask_for_patterns(&self, request: &ApprovalRequest, withdrawn: &AtomicBool) -> Option<Like> {
        let ask = |question: &str| -> Option<String> {
            let asked = self.console.write(|s| {
                s.err.styled(NAME, question)?;
                s.err.text(" ")?;
                s.err.flush()
            });
            let mut line = String::new();
            match (asked, read_line(&mut line, withdrawn)) {
                (Ok(()), Ok(length)) if length > 0 => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
                _ => None,
            }
        };
        self.console
            .note("`*` stands for any characters; an empty line keeps the text as it is");
        let mut patterns = BTreeMap::new();
        for (pointer, text) in remembered::texts(&request.arguments) {
            let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
            if shown.len() < text.len() {
                shown.push('…');
            }
            let question = format!("  pattern for {pointer}, now {}:", Value::String(shown));
            loop {
                let pattern = ask(&question)?;
                if pattern.is_empty() {
                    break;
                }
                let one = BTreeMap::from([(pointer.clone(), pattern.clone())]);
                if Like::new(request, one, self.base.as_deref()).is_some() {
                    patterns.insert(pointer, pattern);
                    break;
                }
                self.console
                    .note("it does not match the text, or the text has `..` in it");
            }
        }
        Like::new(request, patterns, self.base.as_deref())
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
            let suspicions = self.known.get(&request.tool).map(|known| &known.suspicions);
            for suspicion in suspicions.into_iter().flatten() {
                s.err.styled(WARN, "  ! ")?;
                s.err.line(suspicion)?;
            }
            s.err
                .styled(FAINT, &format!("  asked because of {}", request.reason))?;
            s.err.end_line()?;
            s.err.styled(NAME, "  y")?;
            s.err.text(" once   ")?;
            if rule_alone {
                s.err.styled(NAME, "a")?;
                s.err.text(" always with these arguments   ")?;
                if offers_patterns(request) {
                    s.err.styled(NAME, "p")?;
                    s.err.text(" always with some like these   ")?;
                }
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
        let rule_alone = request.cause == ApprovalCause::Rule;
        if self.is_answered(request) {
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
                    self.remember(request, Scope::Exactly(request.arguments.clone()));
                    return Decision::Approve;
                }
                "p" if rule_alone && offers_patterns(request) => {
                    if let Some(like) = self.ask_for_patterns(request, withdrawn) {
                        self.remember(request, Scope::Like(like));
                        return Decision::Approve;
                    }
                }
                "t" if rule_alone => {
                    self.remember(request, Scope::Any);
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

/// Whether there are texts in the arguments that could have patterns, and not too many to be asked for each.
fn offers_patterns(request: &ApprovalRequest) -> bool {
    (1..=MAX_PATTERNS).contains(&remembered::texts(&request.arguments).len())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use serde_json::json;

    #[test]
    fn the_question_of_the_flow_guard_is_never_answered_from_memory() {
        let environment = Environment::for_tests(Path::new("/"), &[]);
        let known = Known {
            digest: "sha256:x".into(),
            ..Known::default()
        };
        let asking = Asking {
            console: Console::new(&environment),
            known: BTreeMap::from([("files_write".to_owned(), known)]),
            file: None,
            remembered: Mutex::new(vec![Remembered {
                tool: "files_write".into(),
                digest: "sha256:x".into(),
                arguments: Scope::Any,
                places: BTreeMap::new(),
            }]),
            base: None,
            is_kept: false,
        };
        for (cause, answered) in [
            (ApprovalCause::Rule, true),
            (ApprovalCause::Flow, false),
            (ApprovalCause::RuleAndFlow, false),
        ] {
            let request = ApprovalRequest {
                id: "1".into(),
                tool: "files_write".into(),
                arguments: json!({}),
                cause,
                reason: "the rule `ask for files_*`".into(),
                places: Vec::new(),
            };
            assert_eq!(asking.is_answered(&request), answered, "{cause:?}");
        }
    }
}
