//! Approval rules for the tools of components that projects bring.
//!
//! A rule of the user that allows by a pattern, such as `files_*` or `*_read`, was written for tools that the user knows. The
//! author of a project's component chooses the names of its tools, and must not choose rules with them: such a rule allows
//! nothing of a project. A rule that names a tool whole, and every rule that asks or denies, holds for it as for all others.

use toolcell_agent::{ApprovalRule, Verdict};

use crate::components::loader::Loaded;

/// What has to come after `rules`, in which the last rule that matches counts.
pub(crate) fn of(loaded: &[Loaded], rules: &[ApprovalRule]) -> Vec<ApprovalRule> {
    let of_projects = loaded.iter().filter(|loaded| loaded.settings.is_of_project());
    of_projects
        .flat_map(|loaded| &loaded.tools)
        .flat_map(|tool| of_tool(tool.spec().name.as_str(), rules))
        .collect()
}

/// The rules that hold for one tool, once more and for it alone, without those that allow by a pattern.
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
    fn a_pattern_that_allows_is_not_for_tools_of_a_project() {
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
}
