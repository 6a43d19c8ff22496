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
use toolcell_core::{BoxFuture, Grant};

use crate::approval::facts::{MAX_REACH, MAX_REASON, leads, lookalikes, warnings};
use crate::approval::saved_approvals::{self, ArgumentPattern, SavedApproval, Scope};
use crate::config::Settings;
use crate::config::file::{FlowRule, RuleTable, VerdictWord};
use crate::config::settings::GrantLine;
use crate::environment::Environment;
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Asking, Choice, Exhibit, Fact, Own, Question, Shown, Text, text};

/// Maximum number of strings in the arguments for which a pattern is offered.
const MAX_PATTERNS: usize = 8;

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
        for (pointer, text) in saved_approvals::texts(&request.arguments) {
            let now = Value::String(shortened(&text)).to_string();
            loop {
                let question = text!("  for {}, now {}", Shown(&pointer), Shown(&now));
                let Answer::Line(pattern) = asking.line(question)? else {
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
        let covers = match scope {
            Scope::Any => "it covers this tool with any arguments",
            Scope::Exactly(_) => "it covers exactly the arguments above",
            Scope::ArgumentPattern(_) => {
                "it covers arguments like those above, in which the texts below may vary"
            }
        };
        let mut facts = vec![Fact::Plain(covers.into())];
        if let Scope::ArgumentPattern(like) = scope {
            for (pointer, pattern) in like.patterns().take(MAX_PATTERNS) {
                let text = text!(
                    "{} may be any text that matches {}",
                    Shown(pointer),
                    Shown(pattern)
                );
                facts.push(Fact::Plain(text));
            }
        }
        if !matches!(scope, Scope::Any) {
            facts.extend(leads(request).map(Fact::Plain));
        }
        facts.extend(self.reach(&request.tool).map(Fact::Plain));
        facts.push(Fact::Plain(
            "it applies to every session with the same access, until the component changes or `toolcell approval forget` \
             revokes it"
                .into(),
        ));
        let question = Question {
            title: text!("from now on, never ask about `{}` again?", request.tool),
            exhibit: (!matches!(scope, Scope::Any)).then(|| Exhibit::arguments(&request.arguments)),
            facts,
            choices: vec![
                choice('y', "yes", "yes, always"),
                choice('n', "no", "no, ask me again"),
            ],
            is_lasting: true,
        };
        Ok(asking.choose(&question)? == Answer::Key('y'))
    }

    /// Returns a description of what the tool can access, by its grants.
    fn reach(&self, tool: &str) -> Option<Text> {
        let known = self.known.get(tool)?;
        if known.reach.is_empty() {
            return Some(text!(
                "it belongs to `{}`, which can only compute and log",
                known.component
            ));
        }
        let more = known.reach.len().saturating_sub(MAX_REACH);
        let reach = Text::join(known.reach.iter().take(MAX_REACH).cloned(), "; ");
        Some(if more > 0 {
            text!(
                "it belongs to `{}`, which can {}; and {} more",
                known.component,
                reach,
                more
            )
        } else {
            text!("it belongs to `{}`, which can {}", known.component, reach)
        })
    }

    /// Builds the question about a call: what the tool can access in our words, below exactly what will be executed.
    fn question(&self, request: &ApprovalRequest, rule_alone: bool) -> Question {
        let mut facts: Vec<Fact> = leads(request).map(Fact::Plain).collect();
        facts.extend(self.reach(&request.tool).map(Fact::Plain));
        let findings = self
            .known
            .get(&request.tool)
            .map(|known| known.findings.as_slice());
        facts.extend(warnings(findings.unwrap_or_default()));
        facts.extend(lookalikes(request));
        facts.push(Fact::Plain(
            text!("you are asked because: {}", request.reason).excerpt(MAX_REASON),
        ));
        let mut choices = vec![choice('y', "yes", "once")];
        if rule_alone {
            choices.push(choice('a', "always", "always with these arguments"));
            if offers_patterns(request) {
                choices.push(choice('p', "pattern", "always with similar arguments"));
            }
            choices.push(choice('t', "tool", "always with any arguments"));
        }
        if self.is_kept {
            choices.push(choice('l', "later", "later"));
        }
        choices.push(choice('n', "no", "no"));
        Question {
            title: text!("`{}` wants to run with", request.tool),
            exhibit: Some(Exhibit::arguments(&request.arguments)),
            facts,
            choices,
            is_lasting: false,
        }
    }

    fn answer(&self, request: &ApprovalRequest, withdrawn: &AtomicBool) -> Decision {
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
            .ask(&is_withdrawn, |asking| self.decide(request, asking));
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
        asking: &mut Asking<'_>,
    ) -> io::Result<(Decision, Option<Scope>)> {
        let question = self.question(request, request.cause == ApprovalCause::Rule);
        for _ in 0..MAX_TRIES {
            let scope = match asking.choose(&question)? {
                Answer::Key('y') => return Ok((Decision::Approve, None)),
                Answer::Key('l') => return Ok((Decision::Later, None)),
                Answer::Key('a') => Some(Scope::Exactly(request.arguments.clone())),
                Answer::Key('t') => Some(Scope::Any),
                Answer::Key('p') => self
                    .ask_for_patterns(request, asking)?
                    .map(Scope::ArgumentPattern),
                Answer::Key(_) => return Ok((Decision::Deny { reason: None }, None)),
                _ => return Ok((unattended(), None)),
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

fn unattended() -> Decision {
    Decision::Deny {
        reason: Some("no user can be asked".into()),
    }
}

fn choice(key: char, word: &'static str, means: &'static str) -> Choice {
    Choice { key, word, means }
}

/// Shortens a string for the question about its pattern; the full text is shown above.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Describes what a grant allows: `read and change files in `~/notes``.
pub(crate) fn reach(line: &GrantLine, environment: &Environment) -> Text {
    match &line.grant {
        Grant::Dir { host, guest, access } => {
            // Removes `.` components.
            let host: PathBuf = environment.path(host, &line.base).components().collect();
            let host = environment.shown(&host);
            let does = if access.can_change() {
                "change files in"
            } else {
                "read files in"
            };
            match guest {
                None => text!("{} `{}`", Own(does), host),
                Some(guest) => text!("{} `{}`, mounted at `{}`", Own(does), host, guest),
            }
        }
        Grant::Env { name, .. } => text!("read the environment variable `{}`", name),
        Grant::Bucket(bucket) if bucket.write => text!("change the bucket `{}`", bucket.bucket),
        Grant::Bucket(bucket) => text!("read the bucket `{}`", bucket.bucket),
        Grant::Http(http) => text!("send requests: `{}`", Grant::Http(http.clone())),
        denial => text!("not use `{}`", denial),
    }
}

/// True if the arguments contain strings, and not more than can be asked about.
fn offers_patterns(request: &ApprovalRequest) -> bool {
    (1..=MAX_PATTERNS).contains(&saved_approvals::texts(&request.arguments).len())
}

impl Approver for TerminalApprover {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        let (asking, request) = (self.0.clone(), request.clone());
        Box::pin(async move {
            // Reading a line blocks its thread. Cancelling the turn drops this future, which withdraws the question.
            let withdrawn = Withdrawn::default();
            let flag = withdrawn.0.clone();
            let asked = tokio::task::spawn_blocking(move || asking.answer(&request, &flag));
            asked.await.unwrap_or(Decision::Deny { reason: None })
        })
    }
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

    #[test]
    fn question_says_how_much_more_a_tool_reaches() {
        let environment = Environment::for_tests(Path::new("/"), &[]);
        let reach = |count: usize| {
            let known = Known {
                component: "files".into(),
                reach: (0..count).map(|n| text!("do {}", n)).collect(),
                ..Known::default()
            };
            let asking = ApproverState {
                console: Console::new(&environment),
                known: BTreeMap::from([("t".to_owned(), known)]),
                file: None,
                remembered: Mutex::default(),
                base: None,
                is_kept: false,
            };
            asking.reach("t").unwrap().to_string()
        };
        assert!(reach(0).ends_with("can only compute and log"));
        assert!(reach(1).ends_with("can do 0"));
        assert!(!reach(MAX_REACH).contains("more"));
        assert!(reach(MAX_REACH + 2).ends_with("and 2 more"));
    }
}
