//! Facts below a question about a call: where its arguments lead, and what is odd about them.

use serde_json::Value;
use toolcell_agent::ApprovalRequest;
use toolcell_core::PlaceKind;

use crate::approval::saved_approvals;
use crate::ui::terminal::{Fact, Lookalike, Shown, ShownUrl, Text, lookalike, text};

/// Maximum number of grants of a tool, and of resolved arguments, in a question.
pub(super) const MAX_REACH: usize = 4;

/// Maximum number of warnings of one kind in a question.
pub(super) const MAX_WARNINGS: usize = 3;

/// Maximum length of a reason or a warning in a question, in characters.
pub(super) const MAX_REASON: usize = 400;

/// Maximum length of a string that is checked for lookalikes as a whole, in bytes. Of longer URLs the host is.
const MAX_NAME: usize = 1_000;

/// Describes the resolved targets of the arguments, under the grants of the tool.
pub(super) fn leads(request: &ApprovalRequest) -> impl Iterator<Item = Text> {
    let more = request.places.len().saturating_sub(MAX_REACH);
    let shown = request.places.iter().take(MAX_REACH).map(|place| {
        if place.pointer.is_empty() {
            return "there are more paths and URLs than are listed, which may lead anywhere".into();
        }
        if let (true, PlaceKind::Url, Some(origin)) = (place.is_unresolved, place.kind, &place.real) {
            return text!(
                "{} leads to {}, and anywhere there: servers differ in how they read its path",
                Shown(&place.pointer),
                ShownUrl(origin)
            );
        }
        if place.is_unresolved {
            return text!(
                "{} may lead anywhere: it is too long, incomplete, or one path too many to be resolved",
                Shown(&place.pointer)
            );
        }
        let to = place.real.as_deref().unwrap_or(&place.plain);
        match place.kind {
            PlaceKind::Path => text!("{} resolves to {}", Shown(&place.pointer), Shown(to)),
            PlaceKind::Url => text!("{} resolves to {}", Shown(&place.pointer), ShownUrl(to)),
        }
    });
    shown.chain((more > 0).then(|| text!("and {} more arguments with resolved targets", more)))
}

/// Returns the first warnings and the number of further ones.
pub(super) fn warnings(all: &[String]) -> impl Iterator<Item = Fact> {
    let more = all.len().saturating_sub(MAX_WARNINGS);
    let shown = all.iter().take(MAX_WARNINGS);
    let shown = shown.map(|warning| Fact::Warning(text!("{}", warning).excerpt(MAX_REASON)));
    let rest =
        (more > 0).then(|| Fact::Warning(text!("and {} more; `toolcell tool inspect` shows them", more)));
    shown.chain(rest)
}

/// Finds strings in the arguments that look like other names, and hosts of URLs of any length.
pub(super) fn lookalikes(request: &ApprovalRequest) -> Vec<Fact> {
    // A text with blanks or line breaks is not a name.
    let is_name = |text: &str| text.len() <= MAX_NAME && !text.contains([' ', '\n']);
    let mut facts = Vec::new();
    let mut number = 0_usize;
    let mut check = |pointer: &str, text: &str| {
        let Some(found) = lookalike(text) else {
            return;
        };
        number += 1;
        if number <= MAX_WARNINGS {
            let (at, text) = (Shown(pointer), Shown(text));
            facts.push(Fact::Warning(match found {
                Lookalike::MixedScripts => text!("{} mixes letters of several scripts: {}", at, text),
                Lookalike::LooksLike(other) => {
                    text!("{} is not {}, it only looks like it", at, Shown(&other))
                }
                Lookalike::OddBlank => text!("{} has a blank other than the space: {}", at, text),
                Lookalike::Punycode => {
                    text!(
                        "{} has a host in Punycode, which browsers show with other letters: {}",
                        at,
                        text
                    )
                }
            }));
        }
    };
    saved_approvals::each_text(&request.arguments, |pointer, text| {
        if is_name(text) {
            check(pointer, text);
        }
    });
    for place in request.places.iter().filter(|place| place.kind == PlaceKind::Url) {
        let written = request.arguments.pointer(&place.pointer).and_then(Value::as_str);
        if !written.is_some_and(is_name) {
            check(&place.pointer, host(&place.plain));
        }
    }
    let more = number.saturating_sub(MAX_WARNINGS);
    if more > 0 {
        facts.push(Fact::Warning(text!(
            "and {} more names that look like others",
            more
        )));
    }
    facts
}

/// Returns the host of a URL, which may lack its scheme.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.trim_start_matches(['/', '\\']);
    rest.split(['/', '\\', '?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_agent::ApprovalCause;
    use toolcell_core::ArgumentPlace;

    use super::*;

    #[test]
    fn confusable_host_of_long_url_is_flagged() {
        let long = "a".repeat(MAX_NAME);
        for (written, plain, flagged) in [
            (
                format!("https://g\u{456}thub.com/?{long}"),
                "https://xn--gthub-n2e.com/?aaa",
                "Punycode",
            ),
            (
                format!("g\u{456}thub.com?{long}"),
                "g\u{456}thub.com?aaa",
                "several scripts",
            ),
            (
                format!("//g\u{456}thub.com/{long}"),
                "//g\u{456}thub.com/aaa",
                "several scripts",
            ),
            (
                format!("https://github.com/?{long}"),
                "https://github.com/?aaa",
                "",
            ),
        ] {
            for kind in [PlaceKind::Url, PlaceKind::Path] {
                let request = ApprovalRequest {
                    id: "1".into(),
                    tool: "fetch".into(),
                    arguments: json!({ "url": written }),
                    cause: ApprovalCause::Rule,
                    reason: String::new(),
                    places: vec![ArgumentPlace {
                        pointer: "/url".into(),
                        kind,
                        plain: plain.into(),
                        named: None,
                        real: None,
                        is_unresolved: !plain.contains("://"),
                    }],
                };
                let told: Vec<String> = lookalikes(&request)
                    .into_iter()
                    .map(|fact| match fact {
                        Fact::Plain(text) | Fact::Warning(text) => text.to_string(),
                    })
                    .collect();
                let expected = kind == PlaceKind::Url && !flagged.is_empty();
                assert_eq!(told.len(), usize::from(expected), "{written} {told:?}");
                assert!(told.iter().all(|told| told.contains(flagged)), "{told:?}");
            }
        }
    }

    #[test]
    fn names_are_compared_with_others() {
        let told = |arguments: serde_json::Value, places: Vec<ArgumentPlace>| {
            let request = ApprovalRequest {
                id: "1".into(),
                tool: "fetch".into(),
                arguments,
                cause: ApprovalCause::Rule,
                reason: String::new(),
                places,
            };
            let facts = lookalikes(&request).into_iter();
            let texts = facts.map(|fact| match fact {
                Fact::Plain(text) | Fact::Warning(text) => text.to_string(),
            });
            texts.collect::<Vec<_>>()
        };
        let flagged = |arguments| told(arguments, Vec::new());
        let odd = "g\u{456}thub.com";
        let longest = format!("{odd}/{}", "x".repeat(MAX_NAME - odd.len() - 1));
        for (text, is_flagged) in [
            ("github.com", false),
            (odd, true),
            (&format!("{odd} is text"), false),
            (&format!("{odd}\nis text"), false),
            (&longest, true),
            (&format!("{longest}x"), false),
        ] {
            assert_eq!(
                flagged(json!({ "at": text })).len(),
                usize::from(is_flagged),
                "{text}"
            );
        }
        assert_eq!(flagged(json!(vec![odd; MAX_WARNINGS])).len(), MAX_WARNINGS);
        let more = flagged(json!(vec![odd; MAX_WARNINGS + 2]));
        assert_eq!(more.len(), MAX_WARNINGS + 1);
        assert!(more[MAX_WARNINGS].contains("and 2 more names"), "{more:?}");

        // The host of a URL that is shown as a whole is not shown again.
        let url = format!("https://{odd}/");
        let place = ArgumentPlace {
            pointer: "/at".into(),
            kind: PlaceKind::Url,
            plain: url.clone(),
            named: None,
            real: None,
            is_unresolved: false,
        };
        assert_eq!(told(json!({ "at": url }), vec![place]).len(), 1);
    }
}
