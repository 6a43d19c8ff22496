//! Fuzz target for the patterns of approval rules. See `tests/fuzz` for how to run it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use fuzz::Target;
use serde_json::json;
use toolcell_agent::{ApprovalRule, Approvals, Verdict};

/// Reference implementation of `*` patterns.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // The prefixes of the text that the current prefix of the pattern matches.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for byte in pattern {
        if *byte == b'*' {
            let first = reached.iter().position(|r| *r).unwrap_or(text.len() + 1);
            reached.iter_mut().skip(first).for_each(|r| *r = true);
        } else {
            for at in (0..text.len()).rev() {
                reached[at + 1] = reached[at] && text[at] == *byte;
            }
            reached[0] = false;
        }
    }
    reached[text.len()]
}

/// A pattern for the tool, its name, a pattern for an argument and the argument, one per line.
#[test]
fn fuzz_approval_rules_match_their_patterns() {
    let words = [
        "*", "**", "a", "aa", "*a*a*", "/etc/", "files_", "read", "\n", "é", "\\", "?", "[a]", "/", "..",
        "\0",
    ];
    let tried = Target::new("approval", 20_000)
        .seeds([
            "files_*\nfiles_read\n/etc/*\n/etc/passwd",
            "*\nx\n*.md\na/b.md",
            "a*b*c\naXbYc\n**\n",
        ])
        .words(&words)
        .run(|input| {
            let text = String::from_utf8_lossy(input);
            let mut lines = text.split('\n');
            let mut next = || lines.next().unwrap_or_default();
            let (tool_pattern, tool, pattern, argument) = (next(), next(), next(), next());
            let rule = ApprovalRule::tool(tool_pattern, Verdict::Deny).with_argument("/path", pattern);
            let arguments = json!({ "path": argument });
            // A rule that asks or denies for everything below a directory also meets the directory.
            let directory = pattern
                .strip_suffix("/**")
                .or_else(|| pattern.strip_suffix("/*"))
                .filter(|directory| !directory.is_empty());
            let meets = |pattern: &str| matches(pattern.as_bytes(), argument.as_bytes());
            let expected = matches(tool_pattern.as_bytes(), tool.as_bytes())
                && (meets(pattern) || directory.is_some_and(meets));
            assert_eq!(rule.matches(tool, &arguments), expected, "{text:?}");
            // Without the argument it never matches.
            assert!(!rule.matches(tool, &json!({})));
            let stored = serde_json::to_string(&rule).unwrap();
            assert_eq!(
                serde_json::from_str::<ApprovalRule>(&stored).unwrap(),
                rule,
                "{stored}"
            );
            let approvals = Approvals {
                rules: vec![ApprovalRule::tool("*", Verdict::Allow), rule],
                ..Approvals::default()
            };
            let (verdict, _) = approvals.verdict(tool, &arguments, &[]);
            assert_eq!(verdict == Verdict::Deny, expected, "{text:?}");
            let stars = pattern.matches('*').count().min(3);
            format!("{verdict:?}, {stars} stars, empty: {}", argument.is_empty())
        });
    assert!(tried.outcomes.len() > 8, "{tried:?}");
}
