//! Approver that asks the user at the terminal and saves answers given for always.
//!
//! Saved approvals ([`SavedApproval`]) answer questions of rules; the data-flow guard asks each time.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_agent::{
    ApprovalCause, ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FlowGuard, Verdict,
};
use toolcell_core::BoxFuture;

use crate::approval::question;
use crate::approval::saved_approvals::{self, ArgumentPattern, SavedApproval, Scope};
use crate::config::Settings;
use crate::config::file::{FlowRule, RuleTable, VerdictWord};
use crate::environment::Environment;
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Asking, Shown, Text, text};

/// Maximum length of a string in the question for its pattern, in characters; the full text is shown above.
const SHOWN_CHARS: usize = 60;

/// Maximum number of attempts if an answer for always is not confirmed.
const MAX_TRIES: usize = 3;

/// Returns the approval rules of the configuration.
pub(crate) fn rules(settings: &Settings, environment: &Environment) -> Approvals {
    Approvals {
        rules: settings
            .rules
            .iter()
            .map(|rule| rule.value.rule(environment))
            .collect(),
        flow: match settings.flow.value {
            FlowRule::Off => FlowGuard::Off,
            FlowRule::Ask => FlowGuard::Ask,
            FlowRule::Refuse => FlowGuard::Refuse,
        },
        base: environment.cwd.to_str().map(str::to_owned),
    }
}

impl RuleTable {
    /// Returns the rule, with `~/` in its patterns expanded.
    pub(crate) fn rule(&self, environment: &Environment) -> ApprovalRule {
        ApprovalRule {
            tool: self.tool.get_ref().clone(),
            arguments: (self.arguments.iter())
                .map(|(pointer, pattern)| {
                    (
                        pointer.get_ref().clone(),
                        from_home(pattern.get_ref(), environment),
                    )
                })
                .collect(),
            verdict: match self.verdict {
                VerdictWord::Allow => Verdict::Allow,
                VerdictWord::Ask => Verdict::Ask,
                VerdictWord::Deny => Verdict::Deny,
            },
        }
    }
}

/// Expands `~/` in a pattern to the home directory.
fn from_home(pattern: &str, environment: &Environment) -> String {
    let home = environment.home.as_deref().and_then(std::path::Path::to_str);
    match (pattern.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => pattern.to_owned(),
    }
}

/// Component of a tool, as shown in questions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Digest of the component.
    pub(crate) digest: String,
    /// Digest of its access ([`saved_approvals::access`]).
    pub(crate) access: String,
    /// Name of the component in the configuration.
    pub(crate) component: String,
    /// Descriptions of its grants.
    pub(crate) reach: Vec<Text>,
    /// Lint findings for its descriptions.
    pub(crate) findings: Vec<String>,
}

/// Approver that asks the user at the terminal.
pub(crate) struct TerminalApprover(Arc<ApproverState>);

struct ApproverState {
    console: Console,
    /// Component of each tool.
    known: BTreeMap<String, Known>,
    file: Option<PathBuf>,
    remembered: Mutex<Vec<SavedApproval>>,
    /// Base of relative path patterns.
    base: Option<String>,
    /// True if the session is saved, so that another process can ask again.
    is_kept: bool,
}

impl TerminalApprover {
    /// Creates an approver. Without a terminal it answers every question with no.
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
        let file = saved_approvals::file(environment);
        let remembered = match file.as_deref().map(saved_approvals::read).transpose() {
            Ok(remembered) => remembered.unwrap_or_default(),
            Err(error) => {
                console.note(text!("saved approvals are not used: {}", error));
                Vec::new()
            }
        };
        Some(Arc::new(Self(Arc::new(ApproverState {
            console: console.clone(),
            known,
            file,
            remembered: Mutex::new(remembered),
            base: environment.cwd.to_str().map(str::to_owned),
            is_kept,
        }))))
    }
}

impl ApproverState {
    /// True if a saved approval answers the question. The data-flow guard asks about the current session, so no saved
    /// approval answers it.
    fn is_answered(&self, request: &ApprovalRequest) -> bool {
        request.cause == ApprovalCause::Rule && self.is_saved(request)
    }

    fn is_saved(&self, request: &ApprovalRequest) -> bool {
        let Some(known) = self.known.get(&request.tool) else {
            return false;
        };
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered
            .iter()
            .any(|saved| saved.allows(request, known, self.base.as_deref()))
    }

    fn save(&self, request: &ApprovalRequest, arguments: Scope) {
        let (Some(file), Some(known)) = (&self.file, self.known.get(&request.tool)) else {
            self.console
                .note("the approval is not saved: there is no state directory");
            return;
        };
        let new = SavedApproval {
            tool: request.tool.clone(),
            digest: known.digest.clone(),
            access: known.access.clone(),
            arguments,
            places: saved_approvals::places_of(request),
            base: self.base.clone(),
        };
        self.console
            .note(text!("saved: `{}` runs {}", new.tool, new.arguments));
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let written = saved_approvals::add(file, &new);
        remembered.push(new);
        if let Err(error) = written {
            self.console
                .note(text!("it applies to this session only: {}", error));
        }
    }

    /// Asks for a pattern for each string in the arguments; returns `None` if the user cancels.
    fn ask_for_patterns(
        &self,
        request: &ApprovalRequest,
        asking: &mut Asking<'_>,
    ) -> io::Result<Option<ArgumentPattern>> {
        asking.say("  `*` matches any characters; an empty line keeps the text unchanged")?;
        let mut patterns = BTreeMap::new();
        for (pointer, text) in
            saved_approvals::texts(&request.arguments, question::MAX_PATTERNS).unwrap_or_default()
        {
            let now = Value::String(shortened(&text)).to_string();
            loop {
                let question = text!("  for {}, now {}", Shown(&pointer), Shown(&now));
                let Answer::Line(pattern) = asking.line(question, "  pattern, then Enter: ")? else {
                    return Ok(None);
                };
                if pattern.is_empty() {
                    break;
                }
                let one = BTreeMap::from([(pointer.clone(), pattern.clone())]);
                if ArgumentPattern::new(request, one, self.base.as_deref()).is_some() {
                    patterns.insert(pointer, pattern);
                    break;
                }
                asking.say("  the pattern does not match the text, or the text contains `..`")?;
            }
        }
        Ok(ArgumentPattern::new(request, patterns, self.base.as_deref()))
    }

    /// Shows what an answer for always covers, and asks for confirmation.
    fn confirms(
        &self,
        request: &ApprovalRequest,
        scope: &Scope,
        asking: &mut Asking<'_>,
    ) -> io::Result<bool> {
        let question = question::of_scope(request, scope, self.known.get(&request.tool));
        Ok(asking.choose(&question)? == Answer::Key('y'))
    }

    /// Decides about the calls of one step: together, or one after the other if the user prefers that.
    fn answer_all(&self, requests: &[ApprovalRequest], withdrawn: &AtomicBool) -> Vec<Decision> {
        let is_open =
            |request: &&ApprovalRequest| !self.is_answered(request) && request.cause != ApprovalCause::Client;
        let open: Vec<&ApprovalRequest> = requests.iter().filter(is_open).collect();
        let together = match open.as_slice() {
            [_, _, ..] => self.answer_together(&open, withdrawn),
            _ => None,
        };
        let of = open.len();
        let mut asked = 0;
        let decisions = requests.iter().map(|request| {
            let was_open = open.iter().any(|open| open.id == request.id);
            asked += usize::from(was_open);
            match &together {
                Some(decision) if was_open => decision.clone(),
                _ => self.answer(request, (of > 1).then_some((asked, of)), withdrawn),
            }
        });
        decisions.collect()
    }

    /// Asks about several calls together. Returns `None` if the user wants to be asked about each.
    fn answer_together(&self, open: &[&ApprovalRequest], withdrawn: &AtomicBool) -> Option<Decision> {
        let calls: Vec<_> = open
            .iter()
            .map(|request| (*request, self.known.get(&request.tool)))
            .collect();
        let question = question::of_calls(&calls, self.is_kept);
        let is_withdrawn = || withdrawn.load(Ordering::Relaxed);
        match (self.console).ask(&is_withdrawn, |asking| asking.choose(&question)) {
            Ok(Answer::Key('y')) => Some(Decision::Approve),
            Ok(Answer::Key('l')) => Some(Decision::Later),
            Ok(Answer::Key('o')) => None,
            Ok(Answer::Words(words)) => Some(Decision::Deny {
                reason: Some(format!("the user says about these {} calls: {words}", open.len())),
            }),
            Ok(Answer::Key(_)) => Some(Decision::Deny { reason: None }),
            Ok(_) => Some(unanswered()),
            Err(_) => Some(unattended()),
        }
    }

    /// Decides about one call, which may be one of several of its step: its number and theirs.
    fn answer(
        &self,
        request: &ApprovalRequest,
        number: Option<(usize, usize)>,
        withdrawn: &AtomicBool,
    ) -> Decision {
        // The client has the result; there is nothing that the user could allow.
        if request.cause == ApprovalCause::Client {
            self.console.note(text!(
                "the call of `{}` waits for the client of `/v1` that asked, which runs the tool itself",
                request.tool
            ));
            return Decision::Later;
        }
        if self.is_answered(request) {
            self.console.note(text!(
                "`{}` runs by a saved approval (`toolcell approval list`)",
                request.tool
            ));
            return Decision::Approve;
        }
        let is_withdrawn = || withdrawn.load(Ordering::Relaxed);
        let decided = self
            .console
            .ask(&is_withdrawn, |asking| self.decide(request, number, asking));
        // An earlier question may have been answered for always, which answers this one too.
        let (decision, scope) = decided.unwrap_or_else(|_| (unattended(), None));
        if let Some(scope) = scope {
            self.save(request, scope);
        }
        decision
    }

    fn decide(
        &self,
        request: &ApprovalRequest,
        number: Option<(usize, usize)>,
        asking: &mut Asking<'_>,
    ) -> io::Result<(Decision, Option<Scope>)> {
        let mut question = question::of_call(request, self.known.get(&request.tool), self.is_kept);
        if let Some((number, of)) = number {
            question.title = text!("{} of {}: {}", number, of, question.title);
        }
        for _ in 0..MAX_TRIES {
            let scope = match asking.choose(&question)? {
                Answer::Key('y') => return Ok((Decision::Approve, None)),
                Answer::Key('l') => return Ok((Decision::Later, None)),
                Answer::Key('a') => Some(Scope::Exactly(request.arguments.clone())),
                Answer::Key('t') => Some(Scope::Any),
                Answer::Key('p') => self
                    .ask_for_patterns(request, asking)?
                    .map(Scope::ArgumentPattern),
                Answer::Words(words) => {
                    let reason = Some(format!("the user says: {words}"));
                    return Ok((Decision::Deny { reason }, None));
                }
                Answer::Key(_) => return Ok((Decision::Deny { reason: None }, None)),
                _ => return Ok((unanswered(), None)),
            };
            if let Some(scope) = scope
                && self.confirms(request, &scope, asking)?
            {
                return Ok((Decision::Approve, Some(scope)));
            }
        }
        Ok((Decision::Deny { reason: None }, None))
    }
}

/// The input ended, or nothing of it was an answer.
fn unanswered() -> Decision {
    Decision::Deny {
        reason: Some("the question was not answered".into()),
    }
}

fn unattended() -> Decision {
    Decision::Deny {
        reason: Some("no user can be asked".into()),
    }
}

/// Shortens a string for the question about its pattern; the full text is shown above.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl Approver for TerminalApprover {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        let (asking, request) = (self.0.clone(), request.clone());
        Box::pin(async move {
            let decided = blocking(move |withdrawn| asking.answer(&request, None, withdrawn)).await;
            decided.unwrap_or(Decision::Deny { reason: None })
        })
    }

    fn decide_all<'a>(&'a self, requests: &'a [ApprovalRequest]) -> BoxFuture<'a, Vec<Decision>> {
        let (asking, requests) = (self.0.clone(), requests.to_vec());
        Box::pin(async move {
            let decided = blocking(move |withdrawn| asking.answer_all(&requests, withdrawn)).await;
            decided.unwrap_or_default()
        })
    }
}

/// Asks on a thread that may block. Cancelling the turn drops the future, which withdraws the question. Returns `None` if
/// asking failed.
pub(crate) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Option<T> {
    let withdrawn = Withdrawn::default();
    let flag = withdrawn.0.clone();
    tokio::task::spawn_blocking(move || ask(&flag)).await.ok()
}

/// Set when the answer is no longer awaited.
#[derive(Default)]
struct Withdrawn(Arc<AtomicBool>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use serde_json::json;

    #[test]
    fn call_of_a_client_waits_for_it() {
        let environment = Environment::for_tests(Path::new("/"), &[]);
        let asking = ApproverState {
            console: Console::new(&environment),
            known: BTreeMap::new(),
            file: None,
            remembered: Mutex::new(Vec::new()),
            base: None,
            is_kept: true,
        };
        let request = |id: &str| ApprovalRequest {
            id: id.into(),
            tool: "weather".into(),
            arguments: json!({}),
            places: Vec::new(),
            cause: ApprovalCause::Client,
            reason: "the client runs this tool".into(),
        };
        // Without a terminal, a question would be refused.
        let all = asking.answer_all(&[request("1"), request("2")], &AtomicBool::new(false));
        assert_eq!(all, [Decision::Later, Decision::Later]);
    }

    #[test]
    fn flow_guard_question_ignores_saved_approvals() {
        let environment = Environment::for_tests(Path::new("/"), &[]);
        let known = Known {
            digest: "sha256:x".into(),
            ..Known::default()
        };
        let asking = ApproverState {
            console: Console::new(&environment),
            known: BTreeMap::from([("files_write".to_owned(), known)]),
            file: None,
            remembered: Mutex::new(vec![SavedApproval {
                tool: "files_write".into(),
                digest: "sha256:x".into(),
                access: String::new(),
                arguments: Scope::Any,
                places: BTreeMap::new(),
                base: None,
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
            let of_other = ApprovalRequest {
                tool: "files_edit".into(),
                ..request
            };
            assert!(!asking.is_answered(&of_other));
        }
    }

    #[test]
    fn long_text_is_shortened_in_the_question_for_its_pattern() {
        for letter in ["x", "é"] {
            let whole = letter.repeat(SHOWN_CHARS);
            assert_eq!(shortened(&whole), whole);
            assert_eq!(shortened(&format!("{whole}x")), format!("{whole}…"));
        }
    }

    #[test]
    fn dropped_answer_withdraws_its_question() {
        let withdrawn = Withdrawn::default();
        let flag = withdrawn.0.clone();
        assert!(!flag.load(Ordering::Relaxed));
        drop(withdrawn);
        assert!(flag.load(Ordering::Relaxed));
    }

    #[test]
    fn pattern_of_a_rule_starts_at_home_if_it_says_so() {
        let mut environment = Environment::for_tests(Path::new("/"), &[]);
        environment.home = Some("/home/ada".into());
        for (pattern, expected) in [
            ("~/private/*", "/home/ada/private/*"),
            ("~ada/x", "~ada/x"),
            ("private/~/*", "private/~/*"),
        ] {
            assert_eq!(from_home(pattern, &environment), expected);
        }
        environment.home = None;
        assert_eq!(from_home("~/private/*", &environment), "~/private/*");
    }
}
