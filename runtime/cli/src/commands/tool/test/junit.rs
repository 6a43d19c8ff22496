//! JUnit XML, as CI systems read it (`testsuites`, `testsuite`, `testcase`, `failure`, `system-out`).

use std::fmt::Write as _;

use super::report::{Finding, FindingKind, Outcome, Report};

/// Returns the report as JUnit XML. Warnings are the output of tests that passed, unless they fail.
pub(super) fn xml(report: &Report<'_>, is_strict: bool) -> String {
    document(&report.subject.settings.name, &report.findings, is_strict)
}

fn document(component: &str, findings: &[Finding], is_strict: bool) -> String {
    let fails = |finding: &Finding| match finding.outcome {
        Outcome::Failed => true,
        Outcome::Warned => is_strict,
        Outcome::Passed => false,
    };
    let failures = findings.iter().filter(|finding| fails(finding)).count();
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    let total = seconds(findings.iter().map(|finding| finding.wall_us).sum());
    let (tests, suite) = (findings.len(), escaped(component));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{total}\">\n\
         \x20 <testsuite name=\"{suite}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{total}\">\n"
    );
    for finding in findings {
        let class = match finding.kind {
            FindingKind::Case => "case",
            FindingKind::Check => "check",
        };
        let messages = escaped(&finding.messages.join("\n"));
        let body = match (fails(finding), messages.is_empty()) {
            (true, _) => {
                let first = escaped(finding.messages.first().map_or("failed", String::as_str));
                format!("<failure message=\"{first}\">{messages}</failure>")
            }
            (false, false) => format!("<system-out>{messages}</system-out>"),
            (false, true) => String::new(),
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{suite}.{}.{class}\" name=\"{}\" time=\"{}\">{body}</testcase>",
            escaped(&finding.tool),
            escaped(&finding.name),
            seconds(finding.wall_us)
        );
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Escapes a text for XML 1.0. Characters that it does not have are replaced (W3C XML 1.0, section 2.2).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str, outcome: Outcome, messages: &[&str]) -> Finding {
        Finding {
            tool: "t".into(),
            name: name.into(),
            kind: FindingKind::Case,
            outcome,
            messages: messages.iter().map(ToString::to_string).collect(),
            wall_us: 1_500_000,
        }
    }

    #[test]
    fn outcomes_become_test_cases() {
        let findings = [
            finding("one", Outcome::Passed, &[]),
            finding("two", Outcome::Warned, &["slow"]),
            finding("three", Outcome::Failed, &["first", "second"]),
        ];
        insta::assert_snapshot!(document("text", &findings, false), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="3" failures="1" errors="0" time="4.500000">
          <testsuite name="text" tests="3" failures="1" errors="0" skipped="0" time="4.500000">
            <testcase classname="text.t.case" name="one" time="1.500000"></testcase>
            <testcase classname="text.t.case" name="two" time="1.500000"><system-out>slow</system-out></testcase>
            <testcase classname="text.t.case" name="three" time="1.500000"><failure message="first">first&#10;second</failure></testcase>
          </testsuite>
        </testsuites>
        "#);
        assert!(document("text", &findings, true).contains("failures=\"2\""));
    }

    #[test]
    fn foreign_text_stays_text() {
        let name = "\"><failure/>\u{1b}[2J\u{0}&\u{ffff}";
        let xml = document(name, &[finding(name, Outcome::Failed, &["]]></failure>"])], false);
        assert!(
            !xml.contains("<failure/>") && !xml.contains("]]></failure>"),
            "{xml}"
        );
        assert!(!xml.contains(['\u{1b}', '\u{0}', '\u{ffff}']), "{xml}");
    }
}
