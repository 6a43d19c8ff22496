//! Approval rules: which calls run, which the user decides on, and which are denied. Plain data, written by the user;
//! no output of a model or tool changes a rule.

mod check;
mod comparison;
mod wildcard;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use toolcell_core::approval::{ApprovalCause, ApprovalRequest, Decision};
use toolcell_core::event::DataFlow;
use toolcell_core::{ArgumentPlace, BoxFuture, ToolError};

pub use self::check::{InvalidRule, MAX_PATTERN, UnusedRule};
use self::comparison::Comparison;
pub use self::comparison::is_within;
use crate::context::messages;

/// All approval rules of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// Rules; the last one that matches applies. A call that matches none is allowed, within its tool's policy.
    pub rules: Vec<ApprovalRule>,
    /// Action for a call that would combine private data, untrusted content and network egress in one session.
    pub flow: FlowGuard,
    /// Host directory against which relative paths in rules are resolved. A path argument is compared as written, as
    /// the tool sees it, and as the host path, relative to this directory and absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// Approval rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name of the tool; `*` matches any characters.
    pub tool: String,
    /// Patterns for arguments, by JSON Pointer (RFC 6901); all must match. A string is matched as it is, any other
    /// value as compact JSON; a missing argument matches nothing. `*` matches any characters.
    ///
    /// A path or URL ([`toolcell_core::place`]) matches an `ask` or `deny` rule in any spelling and by its resolved
    /// target; an `allow` rule only by its resolved target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Action for a call that matches.
    pub verdict: Verdict,
}

/// Action for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Run the call.
    Allow,
    /// Ask the user.
    Ask,
    /// Refuse the call.
    Deny,
}

/// Action for the call that completes all three parts of [`DataFlow`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowGuard {
    /// Ask the user.
    #[default]
    Ask,
    /// Refuse the call.
    Refuse,
    /// No restriction.
    Off,
}

/// Asks the user for decisions, one at a time.
///
/// Without an approver, every call that needs a decision is refused with the rule's name. An approver that cannot reach
/// the user (no terminal, end of input) returns [`Decision::Deny`] itself.
pub trait Approver: Send + Sync {
    /// Asks and waits for the decision. Dropping the future withdraws the request.
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision>;

    /// Asks about several calls of one step, and returns a decision for each, in order; a missing one is a refusal. By
    /// default they are asked about one after the other.
    fn decide_all<'a>(&'a self, requests: &'a [ApprovalRequest]) -> BoxFuture<'a, Vec<Decision>> {
        Box::pin(async move {
            let mut decisions = Vec::with_capacity(requests.len());
            for request in requests {
                decisions.push(self.decide(request).await);
            }
            decisions
        })
    }
}

/// Result of the rules for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Ask(ApprovalCause, String),
    Shut(String),
}

impl ApprovalRule {
    /// A rule for every call of the matching tools.
    pub fn tool(pattern: impl Into<String>, verdict: Verdict) -> Self {
        Self {
            tool: pattern.into(),
            arguments: BTreeMap::new(),
            verdict,
        }
    }

    /// The same rule, restricted to calls with a matching argument.
    #[must_use]
    pub fn with_argument(mut self, pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.arguments.insert(pointer.into(), pattern.into());
        self
    }

    /// True if the rule matches a call whose arguments contain no paths or URLs.
    pub fn matches(&self, tool: &str, arguments: &Value) -> bool {
        self.judges(tool, arguments, &[], None)
    }

    /// True if the rule matches a call whose arguments resolve to these places. Relative patterns start at `base`.
    pub fn judges(
        &self,
        tool: &str,
        arguments: &Value,
        places: &[ArgumentPlace],
        base: Option<&str>,
    ) -> bool {
        Comparison::new(tool, arguments, places, base).is_judged_by(self)
    }
}

/// Readable form of the rule: `ask for files_write where /path is /etc/*`.
impl std::fmt::Display for ApprovalRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask for",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {}", self.tool)?;
        for (i, (pointer, pattern)) in self.arguments.iter().enumerate() {
            write!(
                f,
                "{} {pointer} is {pattern}",
                if i == 0 { " where" } else { " and" }
            )?;
        }
        Ok(())
    }
}

impl Approvals {
    /// True if a call is judged by its arguments: by a rule, and by what the question about it shows.
    pub(crate) fn judges_arguments(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The verdict for a call whose arguments resolve to these places, and the rule that gives it; without a matching
    /// rule, [`Verdict::Allow`].
    ///
    /// All comparisons together have a limit; beyond it, the next rule that asks or denies applies.
    pub fn verdict(
        &self,
        tool: &str,
        arguments: &Value,
        places: &[ArgumentPlace],
    ) -> (Verdict, Option<&ApprovalRule>) {
        let (verdict, rule, _) = self.decide(tool, arguments, places);
        (verdict, rule)
    }

    /// The same, and whether the rule applies only because there was too much to compare.
    fn decide(
        &self,
        tool: &str,
        arguments: &Value,
        places: &[ArgumentPlace],
    ) -> (Verdict, Option<&ApprovalRule>, bool) {
        let call = Comparison::new(tool, arguments, places, self.base.as_deref());
        let rule = self.rules.iter().rev().find(|rule| call.is_judged_by(rule));
        (
            rule.map_or(Verdict::Allow, |rule| rule.verdict),
            rule,
            call.is_undecided(),
        )
    }

    /// Rules and flow guard combined. `session` is the data flow of the session, `tool_flow` that of the tool;
    /// `approved` is that of the session when the user approved this call.
    pub(crate) fn gate(
        &self,
        tool: &str,
        (arguments, places): (&Value, &[ArgumentPlace]),
        session: DataFlow,
        tool_flow: DataFlow,
        approved: Option<DataFlow>,
    ) -> Gate {
        let (verdict, rule, is_undecided) = self.decide(tool, arguments, places);
        let why = match is_undecided {
            true => " (the arguments are too long to compare with all rules)",
            false => "",
        };
        let named = || {
            rule.map(|rule| format!("the rule `{rule}`{why}"))
                .unwrap_or_default()
        };
        if verdict == Verdict::Deny {
            return Gate::Shut(named());
        }
        let after = session.union(tool_flow);
        let completes = after.exposes_more_than(session);
        if completes && self.flow == FlowGuard::Refuse {
            return Gate::Shut(format!(
                "the data-flow guard, which is set to `refuse`: {FLOW_REASON}"
            ));
        }
        let foreseen = approved.is_some_and(|then| !after.exposes_more_than(then.union(tool_flow)));
        if completes && self.flow == FlowGuard::Ask && !foreseen {
            return match verdict {
                Verdict::Ask => Gate::Ask(
                    ApprovalCause::RuleAndFlow,
                    format!("{}; and {FLOW_REASON}", named()),
                ),
                _ => Gate::Ask(ApprovalCause::Flow, FLOW_REASON.into()),
            };
        }
        if verdict == Verdict::Ask && approved.is_none() {
            return Gate::Ask(ApprovalCause::Rule, named());
        }
        Gate::Open
    }
}

/// Check of a call when its guest is about to start.
pub(crate) type CheckStart = dyn Fn() -> Result<(), ToolError> + Send + Sync;

/// Compares where the arguments of a call lead now with where they led when it was judged.
///
/// # Errors
/// A refusal, if it is elsewhere.
pub(crate) fn check_places(judged: &[ArgumentPlace], now: &[ArgumentPlace]) -> Result<(), ToolError> {
    match judged == now {
        true => Ok(()),
        false => Err(ToolError::denied(messages::TARGET_CHANGED, None)),
    }
}

/// Reason of the flow guard, for the user and the model: that of each request whose cause is [`ApprovalCause::Flow`].
pub const FLOW_REASON: &str = "together with this call, the session reads private data, reads content of others, and can send \
                           data out, so that instructions hidden in that content could make the model leak the data";

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_core::PlaceKind;

    use super::wildcard::MAX_WORK;
    use super::*;

    #[test]
    fn last_matching_rule_applies() {
        let approvals = Approvals {
            rules: vec![
                ApprovalRule::tool("*", Verdict::Ask),
                ApprovalRule::tool("files_read", Verdict::Allow),
                ApprovalRule::tool("files_*", Verdict::Deny).with_argument("/path", "/etc/*"),
            ],
            flow: FlowGuard::Off,
            ..Approvals::default()
        };
        let verdict = |tool, arguments| approvals.verdict(tool, &arguments, &[]).0;
        assert_eq!(verdict("fetch", json!({})), Verdict::Ask);
        assert_eq!(verdict("files_read", json!({"path": "/work/a"})), Verdict::Allow);
        assert_eq!(
            verdict("files_read", json!({"path": "/etc/passwd"})),
            Verdict::Deny
        );
        assert_eq!(verdict("files_read", json!({})), Verdict::Allow);
    }

    /// `path` as seen by a tool that was granted the working directory `/work` at `/`.
    fn place(path: &str, real: &str) -> [ArgumentPlace; 1] {
        let plain = format!("/{}", real.trim_start_matches("/work").trim_start_matches('/'));
        [ArgumentPlace {
            pointer: "/path".into(),
            kind: PlaceKind::Path,
            plain: if path.starts_with("/scratch") {
                path.into()
            } else {
                plain
            },
            named: Some(real.into()),
            real: Some(real.into()),
            is_unresolved: false,
        }]
    }

    #[test]
    fn path_rule_matches_every_spelling() {
        for pattern in [
            "private/*",
            "/private/*",
            "./private/*",
            "/work/private/*",
            "notes/../private//*",
        ] {
            for path in [
                "private/key",
                "./private/key",
                "/private/key",
                "data/../private/key",
                "/scratch/key",
            ] {
                let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", pattern);
                let arguments = json!({ "path": path });
                let judges = |real| rule.judges("t", &arguments, &place(path, real), Some("/work"));
                assert!(judges("/work/private/key"), "{pattern} {path}");
            }
            let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", pattern);
            let other = place("notes/a", "/work/notes/a");
            assert!(
                !rule.judges("t", &json!({"path": "notes/a"}), &other, Some("/work")),
                "{pattern}"
            );
        }
    }

    #[test]
    fn rule_for_a_directory_also_meets_the_directory_itself() {
        for pattern in [
            "private/*",
            "private/**",
            "./private/*",
            "/work/private/*",
            "sub/../private/**",
        ] {
            for (path, real, meets) in [
                ("private", "/work/private", true),
                ("private/", "/work/private", true),
                ("./private", "/work/private", true),
                ("/private", "/work/private", true),
                ("/work/private", "/work/private", true),
                ("sub/../private", "/work/private", true),
                ("link", "/work/private", true),
                ("private/key", "/work/private/key", true),
                ("private2", "/work/private2", false),
                ("notes/private", "/work/notes/private", false),
                (".", "/work", false),
            ] {
                let arguments = json!({ "path": path });
                let judges = |verdict, places: &[ArgumentPlace]| {
                    let rule = ApprovalRule::tool("*", verdict).with_argument("/path", pattern);
                    rule.judges("t", &arguments, places, Some("/work"))
                };
                for verdict in [Verdict::Ask, Verdict::Deny] {
                    assert_eq!(
                        judges(verdict, &place(path, real)),
                        meets,
                        "{verdict:?} {pattern} {path}"
                    );
                }
                // What allows the content of a directory does not allow the directory.
                let is_below = real.starts_with("/work/private/");
                assert_eq!(
                    judges(Verdict::Allow, &place(path, real)),
                    is_below,
                    "{pattern} {path}"
                );
            }
        }
        // Of an argument that is not known as a path, the same holds for the text.
        for (verdict, judged) in [
            (Verdict::Deny, true),
            (Verdict::Ask, true),
            (Verdict::Allow, false),
        ] {
            let rule = ApprovalRule::tool("*", verdict).with_argument("/path", "private/*");
            assert_eq!(rule.matches("t", &json!({"path": "private"})), judged);
        }
    }

    #[test]
    fn rules_beyond_the_work_of_a_call_ask_or_deny_and_never_allow() {
        // Each comparison of this argument takes more than a fiftieth of the work.
        let text = "a".repeat(usize::try_from(MAX_WORK).unwrap() / 50);
        let arguments = json!({ "text": text });
        let other = |verdict| ApprovalRule::tool("*", verdict).with_argument("/text", "a*b*a");
        let short = || ApprovalRule::tool("*", Verdict::Deny).with_argument("/missing", "*");
        for (rules, verdict, expected) in [
            (49, Verdict::Allow, Verdict::Allow),
            (49, Verdict::Ask, Verdict::Allow),
            (49, Verdict::Deny, Verdict::Allow),
            (60, Verdict::Allow, Verdict::Allow),
            (60, Verdict::Ask, Verdict::Ask),
            (60, Verdict::Deny, Verdict::Deny),
        ] {
            let mut all = vec![short()];
            all.extend((0..rules).map(|_| other(verdict)));
            let approvals = Approvals {
                rules: all,
                ..Approvals::default()
            };
            assert_eq!(
                approvals.verdict("t", &arguments, &[]).0,
                expected,
                "{rules} {verdict:?}"
            );
        }
        let denying = Approvals {
            rules: (0..60).map(|_| other(Verdict::Deny)).collect(),
            ..Approvals::default()
        };
        let Gate::Shut(reason) = denying.gate(
            "t",
            (&arguments, &[]),
            DataFlow::default(),
            DataFlow::default(),
            None,
        ) else {
            panic!("not denied")
        };
        assert!(reason.contains("too long to compare"), "{reason}");
    }

    #[test]
    fn allow_rule_matches_resolved_target_only() {
        let rule = ApprovalRule::tool("*", Verdict::Allow).with_argument("/path", "notes/*");
        for (path, real, allowed) in [
            ("notes/a", "/work/notes/a", true),
            ("./notes//a", "/work/notes/a", true),
            ("/notes/a", "/work/notes/a", true),
            ("notes/../private/key", "/work/private/key", false),
            ("notes/link/key", "/work/private/key", false),
            ("notes/link", "/elsewhere/notes/a", false),
        ] {
            let arguments = json!({ "path": path });
            let judged = rule.judges("t", &arguments, &place(path, real), Some("/work"));
            assert_eq!(judged, allowed, "{path}");
        }
    }

    #[test]
    fn one_denied_path_denies_the_list() {
        let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", "private/*");
        let mut places = place("x", "/work/private/key");
        places[0].pointer = "/path/1".into();
        let arguments = json!({"path": ["a", "x"]});
        assert!(rule.judges("t", &arguments, &places, Some("/work")));
        assert!(!rule.judges("t", &arguments, &[], Some("/work")));
    }

    #[test]
    fn list_of_paths_is_allowed_if_every_path_is() {
        let rule = ApprovalRule::tool("*", Verdict::Allow).with_argument("/path", "notes/*");
        let mut places = Vec::new();
        for (number, (name, allowed)) in [("notes/a", true), ("notes/b", true), ("private/key", false)]
            .into_iter()
            .enumerate()
        {
            let [mut place] = place(name, &format!("/work/{name}"));
            place.pointer = format!("/path/{number}");
            places.push(place);
            let list = &["notes/a", "notes/b", "private/key"][..=number];
            let arguments = json!({ "path": list });
            assert_eq!(
                rule.judges("t", &arguments, &places, Some("/work")),
                allowed,
                "{name}"
            );
        }
    }

    #[test]
    fn unresolved_path_is_denied_and_never_allowed() {
        for (verdict, judges) in [
            (Verdict::Allow, false),
            (Verdict::Ask, true),
            (Verdict::Deny, true),
        ] {
            let rule = ApprovalRule::tool("*", verdict).with_argument("/path", "notes/*");
            let [mut place] = place("x", "/work/x");
            place.real = None;
            place.is_unresolved = true;
            assert_eq!(
                rule.judges("t", &json!({"path": "x"}), &[place], Some("/work")),
                judges,
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn non_string_values_are_matched_as_json() {
        let rule = ApprovalRule::tool("t", Verdict::Deny).with_argument("/options/force", "true");
        assert!(rule.matches("t", &json!({"options": {"force": true}})));
        assert!(!rule.matches("t", &json!({"options": {"force": false}})));
        assert_eq!(rule.to_string(), "deny t where /options/force is true");
    }

    #[test]
    fn allow_rule_matches_only_arguments_of_its_pattern() {
        let rule = ApprovalRule::tool("t", Verdict::Allow).with_argument("/branch", "topic-*");
        assert!(rule.matches("t", &json!({"branch": "topic-1"})));
        assert!(!rule.matches("t", &json!({"branch": "main"})));
        assert!(!rule.matches("t", &json!({})));
        // One without a pointer stands for all arguments that are not listed.
        let anywhere = [ArgumentPlace {
            pointer: String::new(),
            kind: PlaceKind::Path,
            plain: String::new(),
            named: None,
            real: None,
            is_unresolved: true,
        }];
        let written = json!({"path": "a", "branch": "b"});
        for (verdict, is_met) in [
            (Verdict::Allow, false),
            (Verdict::Ask, true),
            (Verdict::Deny, true),
        ] {
            let rule = ApprovalRule::tool("t", verdict).with_argument("/path", "a");
            assert_eq!(rule.judges("t", &written, &anywhere, None), is_met, "{verdict:?}");
        }
        // A path in another argument changes nothing.
        let arguments = json!({"branch": "main", "path": "a"});
        assert!(!rule.judges("t", &arguments, &place("/a", "/a"), None));
    }

    #[test]
    fn only_call_completing_the_data_flow_is_held() {
        let approvals = Approvals::default();
        let private = DataFlow {
            reads_private: true,
            ..DataFlow::default()
        };
        let web = DataFlow {
            untrusted_content: true,
            can_send_out: true,
            ..DataFlow::default()
        };
        let gate = |session, tool, approved| approvals.gate("t", (&json!({}), &[]), session, tool, approved);
        assert_eq!(gate(DataFlow::default(), web, None), Gate::Open);
        assert_eq!(gate(web, web, None), Gate::Open);
        let Gate::Ask(ApprovalCause::Flow, reason) = gate(web, private, None) else {
            panic!("the call is not held");
        };
        assert!(reason.starts_with("together with this call, the session reads private data"));
        assert_eq!(gate(web, private, Some(web)), Gate::Open);
        // Approved before the session had touched anything: the user has not seen the present risk.
        assert!(matches!(
            gate(web, private, Some(DataFlow::default())),
            Gate::Ask(ApprovalCause::Flow, _)
        ));
        assert_eq!(gate(web.union(private), private, None), Gate::Open);
        // What was allowed for the data of a service is not allowed for that of files.
        let service = DataFlow {
            reads_service: true,
            can_send_elsewhere: true,
            ..web
        };
        for approved in [None, Some(web), Some(DataFlow::default())] {
            assert!(matches!(
                gate(service, private, approved),
                Gate::Ask(ApprovalCause::Flow, _)
            ));
        }
        assert_eq!(gate(service, private, Some(service)), Gate::Open);
        let ruled = Approvals {
            rules: vec![ApprovalRule::tool("t", Verdict::Ask)],
            ..Approvals::default()
        };
        let cause = |session| match ruled.gate("t", (&json!({}), &[]), session, private, None) {
            Gate::Ask(cause, _) => cause,
            other => panic!("{other:?}"),
        };
        assert_eq!(cause(web), ApprovalCause::RuleAndFlow);
        assert_eq!(cause(DataFlow::default()), ApprovalCause::Rule);
        let refusing = Approvals {
            flow: FlowGuard::Refuse,
            ..Approvals::default()
        };
        let Gate::Shut(reason) = refusing.gate("t", (&json!({}), &[]), web, private, Some(web)) else {
            panic!("not refused")
        };
        let sentence = format!("refused by {reason}");
        assert!(
            sentence.starts_with("refused by the data-flow guard, which is set to `refuse`: together with"),
            "{sentence}"
        );
    }
}
