//! Approval rules for tools of project components.
//!
//! A rule of the user that allows by a pattern, such as `files_*` or `*_read`, was written for tools the user knows.
//! The author of a project component chooses the names of its tools and could match such a rule, so allowing patterns
//! do not apply to project tools. Rules with an exact tool name, and all rules that ask or deny, do apply.

use toolcell_agent::{ApprovalRule, Verdict};

use crate::components::loader::Loaded;

/// Returns the rules to append to `rules`, of which the last matching one applies.
pub(crate) fn of(loaded: &[Loaded], rules: &[ApprovalRule]) -> Vec<ApprovalRule> {
    let of_projects = loaded.iter().filter(|loaded| loaded.settings.is_of_project());
    of_projects
        .flat_map(|loaded| &loaded.tools)
        .flat_map(|tool| of_tool(tool.spec().name.as_str(), rules))
        .collect()
}

/// Returns the rules that match one tool, restricted to it, without patterns that allow.
fn of_tool(tool: &str, rules: &[ApprovalRule]) -> Vec<ApprovalRule> {
    let matches = |rule: &&ApprovalRule| {
        let name = ApprovalRule::tool(rule.tool.as_str(), rule.verdict);
        name.matches(tool, &serde_json::Value::Null)
    };
    let is_for_others = |rule: &ApprovalRule| rule.verdict == Verdict::Allow && rule.tool.contains('*');
    let for_it = |rule: &ApprovalRule| ApprovalRule {
        tool: tool.to_owned(),
        ..rule.clone()
    };
    rules
        .iter()
        .filter(matches)
        .filter(|rule| !is_for_others(rule))
        .map(for_it)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Allow, Ask, Deny};

    #[test]
    fn allowing_pattern_does_not_match_project_tools() {
        for (rules, expected) in [
            (&[("*", Ask), ("*_read", Allow)][..], Some(Ask)),
            (&[("*", Deny), ("their_*", Allow)], Some(Deny)),
            (&[("*", Ask), ("their_read", Allow)], Some(Allow)),
            (&[("*", Ask), ("their_read", Allow), ("*_read", Deny)], Some(Deny)),
            (&[("*", Allow), ("other_*", Ask)], Some(Allow)),
            (&[("other_read", Deny)], None),
        ] {
            let mut all: Vec<ApprovalRule> = rules
                .iter()
                .map(|(tool, verdict)| ApprovalRule::tool(*tool, *verdict))
                .collect();
            all.extend(of_tool("their_read", &all));
            let last = all
                .iter()
                .rfind(|rule| rule.matches("their_read", &serde_json::json!({})));
            assert_eq!(last.map(|rule| rule.verdict), expected, "{rules:?}");
        }
    }

    #[test]
    fn rules_for_project_tools_apply_to_no_others() {
        let verdict_of = |tool: &str| {
            let mut all = vec![ApprovalRule::tool("*", Deny), ApprovalRule::tool("mine", Allow)];
            all.extend(of_tool("their_read", &all));
            let matches = |rule: &&ApprovalRule| rule.matches(tool, &serde_json::Value::Null);
            all.iter().rfind(matches).map(|rule| rule.verdict)
        };
        assert_eq!(verdict_of("mine"), Some(Allow));
        assert_eq!(verdict_of("their_read"), Some(Deny));
    }
}
