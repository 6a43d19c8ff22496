//! Questions about calls: which facts they state, and which answers they offer.

use std::path::PathBuf;

use toolcell_agent::{ApprovalCause, ApprovalRequest, FLOW_REASON};
use toolcell_core::{Grant, SecretBinding};

use crate::approval::facts::{MAX_REACH, MAX_REASON, leads, lookalikes, warnings};
use crate::approval::saved_approvals::{self, Scope};
use crate::approval::terminal::Known;
use crate::config::settings::GrantLine;
use crate::environment::Environment;
use crate::ui::terminal::{Choice, Exhibit, Fact, Own, Question, Shown, Text, text};

/// Maximum number of strings in the arguments for which a pattern is offered.
pub(super) const MAX_PATTERNS: usize = 8;

/// Returns the question about a call: what the tool can access in our words, below exactly what will be executed. Only
/// questions of rules alone can be answered for always, and only those of saved sessions later (`is_kept`). A refusal may
/// have words, which the model reads.
pub(crate) fn of_call(request: &ApprovalRequest, known: Option<&Known>, is_kept: bool) -> Question {
    let mut facts: Vec<Fact> = leads(request).map(Fact::Plain).collect();
    facts.extend(known.map(reach).map(Fact::Plain));
    let findings = known.map(|known| known.findings.as_slice());
    facts.extend(warnings(findings.unwrap_or_default()));
    facts.extend(lookalikes(request));
    facts.push(Fact::Plain(match request.cause {
        ApprovalCause::Flow => text!("why you are asked: {}", Own(FLOW_REASON)),
        _ => text!("why you are asked: {}", request.reason).excerpt(MAX_REASON),
    }));
    let mut choices = vec![choice('y', "yes", "once")];
    if request.cause == ApprovalCause::Rule {
        choices.push(choice('a', "always", "always with these arguments"));
        if offers_patterns(request) {
            choices.push(choice('p', "pattern", "always with similar arguments"));
        }
        choices.push(choice('t', "tool", "always with any arguments"));
    }
    if is_kept {
        choices.push(choice('l', "later", "later"));
    }
    choices.push(choice('n', "no", "no, or no and what to do instead"));
    Question {
        title: text!("`{}` wants to run", request.tool),
        exhibit: Some(Exhibit::arguments(&request.arguments)),
        facts,
        choices,
        is_lasting: false,
        takes_words: true,
        needs_view: None,
    }
}

/// Returns the question about several calls of one step: for each what [`of_call`] says. They are approved together only
/// once all of it was shown; words of a refusal are for each of them.
pub(crate) fn of_calls(calls: &[(&ApprovalRequest, Option<&Known>)], is_kept: bool) -> Question {
    let shown = calls.iter().enumerate().map(|(i, (request, known))| {
        let Question { title, facts, .. } = of_call(request, *known, is_kept);
        (text!("{}. {}", i + 1, title), &request.arguments, facts)
    });
    let mut choices = vec![
        choice('y', "yes", "all of them, once"),
        choice('o', "one", "ask about one after the other"),
    ];
    if is_kept {
        choices.push(choice('l', "later", "all of them later"));
    }
    choices.push(choice('n', "no", "none, or no and what to do instead"));
    Question {
        title: text!("{} calls of this step need your approval", calls.len()),
        exhibit: Some(Exhibit::calls(shown)),
        facts: Vec::new(),
        choices,
        is_lasting: false,
        takes_words: true,
        needs_view: Some('y'),
    }
}

/// Returns the question that confirms an answer for always, with what the answer covers.
pub(super) fn of_scope(request: &ApprovalRequest, scope: &Scope, known: Option<&Known>) -> Question {
    let covers = match scope {
        Scope::Any => "it covers this tool with any arguments",
        Scope::Exactly(_) => "it covers exactly the arguments above",
        Scope::ArgumentPattern(_) => {
            "it covers arguments like those above, in which the texts below may vary"
        }
    };
    let mut facts = vec![Fact::Plain(covers.into())];
    if let Scope::ArgumentPattern(like) = scope {
        for (pointer, pattern) in like.patterns().take(MAX_PATTERNS) {
            let text = text!(
                "{} may be any text that matches {}",
                Shown(pointer),
                Shown(pattern)
            );
            facts.push(Fact::Plain(text));
        }
    }
    let has_arguments = !matches!(scope, Scope::Any);
    if has_arguments {
        facts.extend(leads(request).map(Fact::Plain));
    }
    facts.extend(known.map(reach).map(Fact::Plain));
    facts.push(Fact::Plain(
        "it applies to every session with the same access, until the component changes or `toolcell approval forget` \
         revokes it"
            .into(),
    ));
    Question {
        title: text!("from now on, never ask about `{}` again?", request.tool),
        exhibit: has_arguments.then(|| Exhibit::arguments(&request.arguments)),
        facts,
        choices: vec![
            choice('y', "yes", "yes, always"),
            choice('n', "no", "no, ask me again"),
        ],
        is_lasting: true,
        takes_words: false,
        needs_view: None,
    }
}

fn choice(key: char, word: &'static str, means: &'static str) -> Choice {
    Choice { key, word, means }
}

/// Describes what a tool can access, by its grants.
fn reach(known: &Known) -> Text {
    if known.reach.is_empty() {
        return text!(
            "it belongs to `{}`, which can only compute and log",
            known.component
        );
    }
    let more = known.reach.len().saturating_sub(MAX_REACH);
    let reach = Text::join(known.reach.iter().take(MAX_REACH).cloned(), "; ");
    if more > 0 {
        text!(
            "it belongs to `{}`, which can {}; and {} more",
            known.component,
            reach,
            more
        )
    } else {
        text!("it belongs to `{}`, which can {}", known.component, reach)
    }
}

/// Describes where a secret is sent, by its name and origins.
pub(crate) fn of_secret(binding: &SecretBinding) -> Text {
    let origins = binding.origins.iter().map(|origin| text!("`{}`", origin));
    text!(
        "send the secret `{}` to {}",
        binding.name,
        Text::join(origins, ", ")
    )
}

/// Describes what a grant allows: `read and change files in `~/notes``.
pub(crate) fn of_grant(line: &GrantLine, environment: &Environment) -> Text {
    match &line.grant {
        Grant::Dir { host, guest, access } => {
            // Removes `.` components.
            let host: PathBuf = environment.path(host, &line.base).components().collect();
            let host = environment.shown(&host);
            let does = if access.can_change() {
                "change files in"
            } else {
                "read files in"
            };
            match guest {
                None => text!("{} `{}`", Own(does), host),
                Some(guest) => text!("{} `{}`, mounted at `{}`", Own(does), host, guest),
            }
        }
        Grant::Env { name, .. } => text!("read the environment variable `{}`", name),
        Grant::Bucket(bucket) if bucket.write => text!("change the bucket `{}`", bucket.bucket),
        Grant::Bucket(bucket) => text!("read the bucket `{}`", bucket.bucket),
        Grant::Http(http) => text!("send requests: `{}`", Grant::Http(http.clone())),
        denial => text!("not use `{}`", denial),
    }
}

/// True if the arguments contain strings, and not more than can be asked about.
fn offers_patterns(request: &ApprovalRequest) -> bool {
    saved_approvals::texts(&request.arguments, MAX_PATTERNS).is_some_and(|texts| !texts.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use toolcell_core::{ArgumentPlace, PlaceKind};

    use super::*;
    use crate::approval::facts::MAX_WARNINGS;
    use crate::approval::saved_approvals::ArgumentPattern;
    use crate::config::Origin;

    fn request(arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            id: "1".into(),
            tool: "t".into(),
            arguments,
            cause: ApprovalCause::Rule,
            reason: "the rule `ask for t`".into(),
            places: Vec::new(),
        }
    }

    fn place(pointer: &str, plain: &str) -> ArgumentPlace {
        ArgumentPlace {
            pointer: pointer.into(),
            kind: PlaceKind::Path,
            plain: plain.into(),
            named: None,
            real: None,
            is_unresolved: false,
        }
    }

    fn keys(question: &Question) -> String {
        question.choices.iter().map(|choice| choice.key).collect()
    }

    /// The facts, one a line, of which warnings begin with `!`.
    fn facts(facts: &[Fact]) -> String {
        let line = |fact: &Fact| match fact {
            Fact::Plain(text) => format!("{text}\n"),
            Fact::Warning(text) => format!("! {text}\n"),
        };
        facts.iter().map(line).collect()
    }

    #[test]
    fn question_names_the_secrets_that_a_tool_sends() {
        let written = r#"{ "name": "github", "origins": ["https://api.github.com", "https://b.test"], "header": "authorization" }"#;
        let binding: SecretBinding = serde_json::from_str(written).unwrap();
        assert_eq!(
            of_secret(&binding).to_string(),
            "send the secret `github` to `https://api.github.com`, `https://b.test`"
        );
    }

    #[test]
    fn only_rules_alone_can_be_answered_for_always() {
        let keys_of = |cause, arguments, is_kept| {
            let request = ApprovalRequest {
                cause,
                ..request(arguments)
            };
            keys(&of_call(&request, None, is_kept))
        };
        let path = || json!({"path": "a"});
        for (cause, arguments, is_kept, expected) in [
            (ApprovalCause::Rule, path(), true, "yaptln"),
            (ApprovalCause::Rule, path(), false, "yaptn"),
            (ApprovalCause::Rule, json!({"n": 1}), false, "yatn"),
            (
                ApprovalCause::Rule,
                json!(vec!["x"; MAX_PATTERNS]),
                false,
                "yaptn",
            ),
            (
                ApprovalCause::Rule,
                json!(vec!["x"; MAX_PATTERNS + 1]),
                false,
                "yatn",
            ),
            (ApprovalCause::Flow, path(), false, "yn"),
            (ApprovalCause::RuleAndFlow, path(), true, "yln"),
        ] {
            assert_eq!(keys_of(cause, arguments, is_kept), expected, "{cause:?}");
        }
    }

    #[test]
    fn reason_of_the_flow_guard_is_own_text() {
        let mut asked = request(json!({}));
        asked.cause = ApprovalCause::Flow;
        asked.reason = "by others".into();
        let facts = facts(&of_call(&asked, None, false).facts);
        assert!(
            facts.contains(FLOW_REASON) && !facts.contains("by others"),
            "{facts}"
        );
    }

    #[test]
    fn confirmation_shows_what_it_covers() {
        let mut shown = request(json!({"path": "notes/a"}));
        shown.places = vec![place("/path", "/work/notes/a")];
        let pattern = [("/path".to_owned(), "/work/notes/*".to_owned())].into();
        let pattern = ArgumentPattern::new(&shown, pattern, None).unwrap();
        for (scope, has_arguments, covers) in [
            (Scope::Any, false, "any arguments"),
            (
                Scope::Exactly(shown.arguments.clone()),
                true,
                "exactly the arguments",
            ),
            (Scope::ArgumentPattern(pattern), true, "texts below may vary"),
        ] {
            let is_pattern = matches!(scope, Scope::ArgumentPattern(_));
            let question = of_scope(&shown, &scope, None);
            let facts = facts(&question.facts);
            assert_eq!(question.exhibit.is_some(), has_arguments, "{scope}");
            assert_eq!(facts.contains("/work/notes/a"), has_arguments, "{facts}");
            assert_eq!(facts.contains("/work/notes/*"), is_pattern, "{facts}");
            assert!(facts.contains(covers), "{facts}");
            assert!(question.is_lasting && keys(&question) == "yn");
        }
    }

    #[test]
    fn question_says_how_much_more_a_tool_reaches() {
        let reach = |count: usize| {
            let known = Known {
                component: "files".into(),
                reach: (0..count).map(|n| text!("do {}", n)).collect(),
                ..Known::default()
            };
            facts(&of_call(&request(json!({})), Some(&known), false).facts)
        };
        assert!(reach(0).contains("can only compute and log"));
        assert!(reach(1).contains("which can do 0\n"), "{}", reach(1));
        assert!(reach(MAX_REACH).contains("do 3\n"), "{}", reach(MAX_REACH));
        let more = reach(MAX_REACH + 2);
        assert!(more.contains("do 3; and 2 more\n"), "{more}");
    }

    #[test]
    fn question_says_where_arguments_lead() {
        let leads = |count: usize| {
            let mut request = request(json!({}));
            request.places = (0..count).map(|n| place(&format!("/{n}"), "/a")).collect();
            facts(&of_call(&request, None, false).facts)
        };
        assert!(!leads(MAX_REACH).contains("more"), "{}", leads(MAX_REACH));
        let more = leads(MAX_REACH + 1);
        assert_eq!(more.matches("resolves to").count(), MAX_REACH, "{more}");
        assert!(more.contains("and 1 more arguments"), "{more}");
        let mut request = request(json!({}));
        request.places = vec![
            ArgumentPlace {
                real: Some("/real".into()),
                ..place("/a", "/plain")
            },
            ArgumentPlace {
                is_unresolved: true,
                ..place("/b", "/plain")
            },
        ];
        let facts = facts(&of_call(&request, None, false).facts);
        assert!(facts.contains("/real") && !facts.contains("/plain"), "{facts}");
        assert!(facts.contains("may lead anywhere"), "{facts}");
    }

    #[test]
    fn question_shows_first_findings_and_number_of_others() {
        let findings = |count: usize| {
            let known = Known {
                findings: (0..count).map(|n| format!("finding {n}")).collect(),
                ..Known::default()
            };
            facts(&of_call(&request(json!({})), Some(&known), false).facts)
        };
        assert_eq!(findings(MAX_WARNINGS).matches("\n! ").count(), MAX_WARNINGS);
        let more = findings(MAX_WARNINGS + 2);
        assert!(
            more.contains("! finding 2\n! and 2 more; `toolcell tool"),
            "{more}"
        );
    }

    #[test]
    fn grant_is_described_by_what_it_allows() {
        let environment = Environment::for_tests(Path::new("/work"), &[]);
        for (grant, expected) in [
            ("read=./a", "read files in `a`"),
            ("create=/a", "change files in `/a`"),
            ("write=/a:/b", "change files in `/a`, mounted at `/b`"),
            ("env=A=1", "read the environment variable `A`"),
            ("keyvalue=b", "change the bucket `b`"),
            ("keyvalue-read=b", "read the bucket `b`"),
            ("http=example.com", "send requests: `http=example.com`"),
            ("deny=a", "not use `deny=a`"),
        ] {
            let line = GrantLine {
                grant: grant.parse().unwrap(),
                base: "/work".into(),
                origin: Origin::Default,
            };
            assert_eq!(of_grant(&line, &environment).to_string(), expected);
        }
    }
}
