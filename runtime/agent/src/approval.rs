//! Which calls may run, which a person decides on, and which never run: rules as plain data, written by people. Nothing
//! that a model or a tool says changes one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcell_core::BoxFuture;
pub use toolcell_core::approval::{ApprovalCause, ApprovalRequest, Decision};
use toolcell_core::event::Flow;

use crate::fingerprint::canonical;

/// All rules of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// The rules; where several match, the last one counts. Where none does, the call is allowed: what it can reach is
    /// the matter of its tool's policy.
    pub rules: Vec<ApprovalRule>,
    /// What happens to the call with which a session would have read private data, read content of strangers and be
    /// able to send outside.
    pub flow: FlowGuard,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name of the tool; `*` stands for any characters.
    pub tool: String,
    /// Patterns for arguments, by JSON Pointer (RFC 6901); all must match. A text is matched as it is, any other value
    /// as compact JSON; an argument that is not there matches nothing. `*` stands for any characters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// What happens to a call that matches.
    pub verdict: Verdict,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person decides.
    Ask,
    /// It does not run.
    Deny,
}

/// What happens to the call that completes the set of [`Flow`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowGuard {
    /// A person decides.
    #[default]
    Ask,
    /// It does not run.
    Refuse,
    /// Nothing.
    Off,
}

/// Puts questions to a person. Questions come one at a time.
///
/// Without an approver every question is answered with no, naming the rule. An approver that cannot reach a person (no
/// terminal, end of input) answers [`Decision::Deny`] itself.
pub trait Approver: Send + Sync {
    /// Asks and waits. Dropping the future takes the question back.
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision>;
}

/// What the rules say of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Ask(ApprovalCause, String),
    Shut(String),
}

impl ApprovalRule {
    /// A rule for every call of the tools that match.
    pub fn tool(pattern: impl Into<String>, verdict: Verdict) -> Self {
        Self {
            tool: pattern.into(),
            arguments: BTreeMap::new(),
            verdict,
        }
    }

    /// The same rule, for calls with an argument that matches.
    #[must_use]
    pub fn with_argument(mut self, pointer: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.arguments.insert(pointer.into(), pattern.into());
        self
    }

    /// Whether a call matches.
    pub fn matches(&self, tool: &str, arguments: &Value) -> bool {
        matches(&self.tool, tool)
            && self
                .arguments
                .iter()
                .all(|(pointer, pattern)| match arguments.pointer(pointer) {
                    Some(Value::String(text)) => matches(pattern, text),
                    Some(other) => matches(pattern, &canonical(other)),
                    None => false,
                })
    }
}

/// The rule as a person reads it: `ask for files_write where /path is /etc/*`.
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
    /// The verdict on a call and the rule that gives it; no rule means [`Verdict::Allow`].
    pub fn verdict(&self, tool: &str, arguments: &Value) -> (Verdict, Option<&ApprovalRule>) {
        let rule = self.rules.iter().rev().find(|rule| rule.matches(tool, arguments));
        (rule.map_or(Verdict::Allow, |rule| rule.verdict), rule)
    }

    /// Rules and flow guard together. `session` is what the session has touched, `tool_flow` what the tool touches;
    /// `approved` is what the session had touched when a person approved this very call.
    pub(crate) fn gate(
        &self,
        tool: &str,
        arguments: &Value,
        session: Flow,
        tool_flow: Flow,
        approved: Option<Flow>,
    ) -> Gate {
        let (verdict, rule) = self.verdict(tool, arguments);
        let named = || rule.map(|rule| format!("the rule `{rule}`")).unwrap_or_default();
        if verdict == Verdict::Deny {
            return Gate::Shut(named());
        }
        let completes = !session.is_complete() && session.union(tool_flow).is_complete();
        if completes && self.flow == FlowGuard::Refuse {
            return Gate::Shut(FLOW_REASON.into());
        }
        let foreseen = approved.is_some_and(|then| then.union(tool_flow).is_complete());
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

const FLOW_REASON: &str = "with this call the session would have read private data, read content that strangers can \
                           write, and be able to send data outside";

/// Whether a text matches a pattern in which `*` stands for any characters. Takes at most the product of both lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            p = at + 1;
            t = from + 1;
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("files_*", "files_read", true),
            ("files_*", "file_read", false),
            ("*.md", "a/b.md", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("a?c", "abc", false),
            ("", "a", false),
            ("**a", "ba", true),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_rule_that_matches_counts() {
        let approvals = Approvals {
            rules: vec![
                ApprovalRule::tool("*", Verdict::Ask),
                ApprovalRule::tool("files_read", Verdict::Allow),
                ApprovalRule::tool("files_*", Verdict::Deny).with_argument("/path", "/etc/*"),
            ],
            flow: FlowGuard::Off,
        };
        let verdict = |tool, arguments| approvals.verdict(tool, &arguments).0;
        assert_eq!(verdict("fetch", json!({})), Verdict::Ask);
        assert_eq!(verdict("files_read", json!({"path": "/work/a"})), Verdict::Allow);
        assert_eq!(
            verdict("files_read", json!({"path": "/etc/passwd"})),
            Verdict::Deny
        );
        assert_eq!(verdict("files_read", json!({})), Verdict::Allow);
    }

    #[test]
    fn values_that_are_no_text_are_matched_as_json() {
        let rule = ApprovalRule::tool("t", Verdict::Deny).with_argument("/options/force", "true");
        assert!(rule.matches("t", &json!({"options": {"force": true}})));
        assert!(!rule.matches("t", &json!({"options": {"force": false}})));
        assert_eq!(rule.to_string(), "deny t where /options/force is true");
    }

    #[test]
    fn the_call_that_completes_the_flow_is_held_and_no_other() {
        let approvals = Approvals::default();
        let private = Flow {
            reads_private: true,
            ..Flow::default()
        };
        let web = Flow {
            untrusted_content: true,
            can_send_out: true,
            ..Flow::default()
        };
        let gate = |session, tool, approved| approvals.gate("t", &json!({}), session, tool, approved);
        assert_eq!(gate(Flow::default(), web, None), Gate::Open);
        assert_eq!(gate(web, web, None), Gate::Open);
        assert!(matches!(
            gate(web, private, None),
            Gate::Ask(ApprovalCause::Flow, _)
        ));
        assert_eq!(gate(web, private, Some(web)), Gate::Open);
        // Approved when nothing was at stake yet: the person has not seen what it means now.
        assert!(matches!(
            gate(web, private, Some(Flow::default())),
            Gate::Ask(ApprovalCause::Flow, _)
        ));
        assert_eq!(gate(web.union(private), private, None), Gate::Open);
        let ruled = Approvals {
            rules: vec![ApprovalRule::tool("t", Verdict::Ask)],
            ..Approvals::default()
        };
        let cause = |session| match ruled.gate("t", &json!({}), session, private, None) {
            Gate::Ask(cause, _) => cause,
            other => panic!("{other:?}"),
        };
        assert_eq!(cause(web), ApprovalCause::RuleAndFlow);
        assert_eq!(cause(Flow::default()), ApprovalCause::Rule);
        let refusing = Approvals {
            flow: FlowGuard::Refuse,
            ..Approvals::default()
        };
        assert!(matches!(
            refusing.gate("t", &json!({}), web, private, Some(web)),
            Gate::Shut(_)
        ));
    }
}
