//! Tokens and cost, as in the last line of a turn and in the list of sessions.

use toolcell_core::provider::Usage;

use crate::config::units::Count;
use crate::config::units::money::Money;
use crate::ui::terminal::{Own, Text, text};

/// Describes tokens and cost, each if it is known. What providers do not report is not mentioned, "about" stands before what
/// has estimates, and "at least" before the cost if some of the tokens have no price.
pub(crate) fn parts(usage: &Usage, cost_micros: Option<u64>) -> Vec<Text> {
    let mut parts = Vec::new();
    let about = Own(if usage.estimated { "about " } else { "" });
    if usage.total() > 0 {
        let cached = match usage.cache_read {
            0 => Text::default(),
            cached => text!(" ({} cached)", Count(cached)),
        };
        let reasoning = match usage.reasoning {
            0 => Text::default(),
            reasoning => text!(" ({} reasoning)", Count(reasoning)),
        };
        parts.push(text!(
            "{}{} {} in{}, {} out{}",
            about,
            Count(usage.input),
            Own(if usage.input == 1 { "token" } else { "tokens" }),
            cached,
            Count(usage.output),
            reasoning
        ));
    }
    let at_least = Own(if usage.unpriced { "at least " } else { "" });
    parts.extend(cost_micros.map(|cost| text!("cost {}{}{}", at_least, about, Money(cost))));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(usage: Usage, cost: Option<u64>) -> String {
        Text::join(parts(&usage, cost), " · ").plain()
    }

    #[test]
    fn only_what_the_provider_reports_is_shown() {
        let mut usage = Usage::default();
        assert_eq!(shown(usage, None), "");
        usage.input = 900;
        usage.output = 40;
        assert_eq!(shown(usage, None), "900 tokens in, 40 out");
        usage.cache_read = 800;
        usage.reasoning = 12;
        let all = "900 tokens in (800 cached), 40 out (12 reasoning) · cost 0.0015";
        assert_eq!(shown(usage, Some(1_500)), all);
    }

    #[test]
    fn estimates_and_incomplete_costs_are_called_so() {
        for (estimated, unpriced, expected) in [
            (true, false, "about 900 tokens in, 40 out · cost about 0.0015"),
            (false, true, "900 tokens in, 40 out · cost at least 0.0015"),
            (
                true,
                true,
                "about 900 tokens in, 40 out · cost at least about 0.0015",
            ),
        ] {
            let usage = Usage {
                input: 900,
                output: 40,
                estimated,
                unpriced,
                ..Usage::default()
            };
            assert_eq!(shown(usage, Some(1_500)), expected);
        }
    }
}
