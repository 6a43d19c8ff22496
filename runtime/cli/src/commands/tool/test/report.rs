//! Findings of a test run, for the terminal and for programs.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value, json};
use toolcell_core::Receipt;

use super::Subject;
use crate::commands::tool::calibrate::Most;
use crate::config::limits;
use crate::config::units::Bytes;
use crate::ui::render::console::Streams;
use crate::ui::render::receipt;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Name, Own, STRONG, Text, WARN, text};

/// Factor between the highest measured use and a proposed limit.
const MARGIN: u64 = 4;

/// One finding: a case, or a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    /// The tool, or the component for what concerns all of its tools.
    pub(super) tool: String,
    /// Name of the case or of the check.
    pub(super) name: String,
    pub(super) kind: FindingKind,
    pub(super) outcome: Outcome,
    /// Reasons; none if it passed.
    pub(super) messages: Vec<String>,
    /// Time of its calls, in microseconds.
    pub(super) wall_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingKind {
    /// Written by the author.
    Case,
    /// Follows from the definition of the tool.
    Check,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Passed,
    /// To be improved; a failure with `--strict`.
    Warned,
    Failed,
}

impl Finding {
    /// Creates the finding of a check: passed without messages, otherwise `outcome`.
    pub(super) fn check(tool: &str, check: &'static str, outcome: Outcome, messages: Vec<String>) -> Self {
        Self {
            tool: tool.to_owned(),
            name: check.to_owned(),
            kind: FindingKind::Check,
            outcome: if messages.is_empty() {
                Outcome::Passed
            } else {
                outcome
            },
            messages,
            wall_us: 0,
        }
    }
}

/// All findings of a run.
pub(in crate::commands::tool) struct Report<'a> {
    pub(super) subject: &'a Subject,
    pub(super) findings: Vec<Finding>,
    pub(super) most: Most,
    /// Number of calls.
    pub(super) calls: u64,
}

impl Report<'_> {
    /// Number of findings with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.outcome == outcome).count()
    }

    pub(super) fn json(&self) -> Value {
        let identity = self.subject.component.identity();
        let proposals = self.most.proposals(MARGIN).into_iter();
        let proposed: Map<String, Value> = proposals
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        json!({
            "component": self.subject.settings.name,
            "digest": identity.digest().to_string(),
            "size": identity.size(),
            "passed": self.count(Outcome::Passed),
            "warned": self.count(Outcome::Warned),
            "failed": self.count(Outcome::Failed),
            "calls": self.calls,
            "findings": self.findings,
            "used": {
                "fuel": self.most.fuel,
                "wall_us": self.most.wall_us,
                "memory": self.most.memory,
                "output": self.most.output,
            },
            "proposed": proposed,
        })
    }

    /// Prints the cases, and of the checks those that found something.
    pub(in crate::commands::tool) fn print(&self, s: &mut Streams) -> io::Result<()> {
        let identity = self.subject.component.identity();
        s.out
            .styled(NAME, text!("{}", Name(&self.subject.settings.name)))?;
        s.out.styled(
            FAINT,
            text!("  {}, {}", Bytes(identity.size()), identity.digest()),
        )?;
        s.out.end_line()?;
        for finding in &self.findings {
            let is_silent = finding.outcome == Outcome::Passed && finding.kind == FindingKind::Check;
            if !is_silent {
                print_finding(finding, s)?;
            }
        }
        let checks = self
            .findings
            .iter()
            .filter(|finding| finding.kind == FindingKind::Check);
        let passed = checks
            .clone()
            .filter(|finding| finding.outcome == Outcome::Passed);
        s.out.line(text!(
            "{} of {} checks passed, {} calls",
            passed.count(),
            checks.count(),
            self.calls
        ))?;
        s.out.flush()?;
        self.print_summary(s)
    }

    fn print_summary(&self, s: &mut Streams) -> io::Result<()> {
        let [passed, warned, failed] =
            [Outcome::Passed, Outcome::Warned, Outcome::Failed].map(|outcome| self.count(outcome));
        let style = match (failed, warned) {
            (0, 0) => GOOD,
            (0, _) => WARN,
            _ => BAD,
        };
        s.err.styled(
            style,
            text!("{} passed, {} warned, {} failed", passed, warned, failed),
        )?;
        s.err.end_line()?;
        let used = Receipt {
            fuel: self.most.fuel,
            wall_us: self.most.wall_us,
            peak_memory: self.most.memory,
            ..Receipt::default()
        };
        s.err
            .styled(FAINT, text!("highest use: {}", receipt::line(&used)))?;
        s.err.end_line()?;
        let proposals = self.most.proposals(MARGIN).into_iter();
        let proposed = proposals.map(|(name, value)| {
            let shown = limits::exactly(name, value);
            text!("{} = {}", Own(name), crate::ui::escape::toml(&shown))
        });
        s.err.styled(
            FAINT,
            text!("limits with a margin: {}", Text::join(proposed, ", ")),
        )?;
        s.err.end_line()?;
        s.err.flush()
    }
}

fn print_finding(finding: &Finding, s: &mut Streams) -> io::Result<()> {
    let (style, mark) = match finding.outcome {
        Outcome::Passed => (GOOD, "✓ "),
        Outcome::Warned => (WARN, "! "),
        Outcome::Failed => (BAD, "✗ "),
    };
    s.out.styled(style, mark)?;
    s.out.styled(STRONG, text!("{}", Name(&finding.tool)))?;
    s.out.line(text!(": {}", Name(&finding.name)))?;
    for message in &finding.messages {
        s.out.text("  ")?;
        s.out.line(Text::of_others(message.as_str()))?;
    }
    Ok(())
}
