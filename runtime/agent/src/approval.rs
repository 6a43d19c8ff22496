//! Which calls may run, which a person decides on, and which never run: rules as plain data, written by people. Nothing
//! that a model or a tool says changes one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use toolcell_core::approval::{ApprovalCause, ApprovalRequest, Decision};
use toolcell_core::event::Flow;
use toolcell_core::{ArgumentPlace, BoxFuture, PlaceKind};

use crate::tools::fingerprint::canonical;

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
    /// The directory of the host at which relative paths in rules start. Where an argument is a path, it is compared as it
    /// is written, as the tool sees it, and as it lies on the host, seen from here and from the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name of the tool; `*` stands for any characters.
    pub tool: String,
    /// Patterns for arguments, by JSON Pointer (RFC 6901); all must match. A text is matched as it is, any other value
    /// as compact JSON; an argument that is not there matches nothing. `*` stands for any characters.
    ///
    /// A path or URL ([`toolcell_core::place`]) matches a rule that asks or denies in any spelling, and wherever it really
    /// leads; a rule that allows only by where it really leads.
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

    /// Whether a call matches whose arguments lead nowhere.
    pub fn matches(&self, tool: &str, arguments: &Value) -> bool {
        self.judges(tool, arguments, &[], None)
    }

    /// Whether a call matches whose arguments lead to these places. Relative patterns start at `base`.
    pub fn judges(
        &self,
        tool: &str,
        arguments: &Value,
        places: &[ArgumentPlace],
        base: Option<&str>,
    ) -> bool {
        let fits = |(pointer, pattern): (&String, &String)| {
            let Some(argument) = arguments.pointer(pointer) else {
                return false;
            };
            let as_written = match argument {
                Value::String(text) => matches(pattern, text),
                other => matches(pattern, &canonical(other)),
            };
            let place = places.iter().find(|place| place.pointer == *pointer);
            if self.verdict == Verdict::Allow {
                return place.map_or(as_written, |place| is_within(place, pattern, base));
            }
            // A list of paths matches where one of them does.
            let below = |place: &&ArgumentPlace| {
                let rest = place.pointer.strip_prefix(pointer.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            as_written
                || places
                    .iter()
                    .filter(below)
                    .any(|place| is_met(place, pattern, base))
        };
        matches(&self.tool, tool) && self.arguments.iter().all(fits)
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
    /// The verdict on a call whose arguments lead to these places, and the rule that gives it; no rule means
    /// [`Verdict::Allow`].
    pub fn verdict(
        &self,
        tool: &str,
        arguments: &Value,
        places: &[ArgumentPlace],
    ) -> (Verdict, Option<&ApprovalRule>) {
        let judges = |rule: &&ApprovalRule| rule.judges(tool, arguments, places, self.base.as_deref());
        let rule = self.rules.iter().rev().find(judges);
        (rule.map_or(Verdict::Allow, |rule| rule.verdict), rule)
    }

    /// Rules and flow guard together. `session` is what the session has touched, `tool_flow` what the tool touches;
    /// `approved` is what the session had touched when a person approved this very call.
    pub(crate) fn gate(
        &self,
        tool: &str,
        (arguments, places): (&Value, &[ArgumentPlace]),
        session: Flow,
        tool_flow: Flow,
        approved: Option<Flow>,
    ) -> Gate {
        let (verdict, rule) = self.verdict(tool, arguments, places);
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

/// Whether a place meets a pattern in any spelling.
fn is_met(place: &ArgumentPlace, pattern: &str, base: Option<&str>) -> bool {
    let plain = plain(place.kind, pattern);
    place.is_met_by(base, |text| matches(&plain, text) || matches(pattern, text))
}

/// Whether a pattern holds for where an argument really leads: what a rule that allows asks, and an approval that is
/// remembered for a pattern. Relative patterns start at `base`.
pub fn is_within(place: &ArgumentPlace, pattern: &str, base: Option<&str>) -> bool {
    let plain = plain(place.kind, pattern);
    place.is_within(base, |text| matches(&plain, text))
}

/// A pattern of a path without `.`, empty parts, and `..` behind plain names.
fn plain(kind: PlaceKind, pattern: &str) -> String {
    if kind == PlaceKind::Url {
        return pattern.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." if parts
                .last()
                .is_some_and(|last| *last != ".." && !last.contains('*')) =>
            {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if pattern.starts_with('/') { "/" } else { "" };
    match format!("{root}{}", parts.join("/")) {
        plain if plain.is_empty() && !pattern.is_empty() => ".".into(),
        plain => plain,
    }
}

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

    /// `path` as a tool sees it that was granted the working directory `/work` at `/`.
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
        }]
    }

    #[test]
    fn a_rule_for_a_path_holds_in_every_spelling() {
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
    fn a_rule_that_allows_holds_for_what_is_real() {
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
    fn a_list_of_paths_is_denied_by_one_of_them() {
        let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", "private/*");
        let mut places = place("x", "/work/private/key");
        places[0].pointer = "/path/1".into();
        let arguments = json!({"path": ["a", "x"]});
        assert!(rule.judges("t", &arguments, &places, Some("/work")));
        assert!(!rule.judges("t", &arguments, &[], Some("/work")));
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
        let gate = |session, tool, approved| approvals.gate("t", (&json!({}), &[]), session, tool, approved);
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
        let cause = |session| match ruled.gate("t", (&json!({}), &[]), session, private, None) {
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
            refusing.gate("t", (&json!({}), &[]), web, private, Some(web)),
            Gate::Shut(_)
        ));
    }

    #[test]
    fn a_pattern_of_a_path_loses_only_what_changes_nothing() {
        for (pattern, expected) in [
            ("./a//b/", "a/b"),
            ("/a/../b", "/b"),
            ("a/b/../../c", "c"),
            ("../a", "../a"),
            ("../../a", "../../a"),
            ("*/../a", "*/../a"),
            ("a*/../b", "a*/../b"),
            ("a/..", "."),
            (".", "."),
            ("", ""),
            ("/", "/"),
        ] {
            assert_eq!(plain(PlaceKind::Path, pattern), expected, "{pattern}");
            assert_eq!(plain(PlaceKind::Url, pattern), pattern);
        }
    }
}
