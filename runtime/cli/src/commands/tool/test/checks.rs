//! Checks that no author has to write: they follow from the definitions of the tools.

use serde_json::{Map, Value};
use toolcell_core::inert::is_hidden;
use toolcell_core::tool::LogSource;
use toolcell_core::{CallResult, Limits, Schema, ToolError, ToolSpec};
use toolcell_sandbox::{Ability, ComponentKind, NO_DESCRIPTION};

use super::cases::{Case, Expected};
use super::expectation::{short, text_of};
use super::fixture::Ran;
use super::generate::{broken, resolve, valid};
use super::report::{Finding, Outcome};
use super::{Run, Subject};
use crate::components::tool_lint;
use crate::config::limits::{self, NamedLimit};
use crate::config::units::Bytes;
use crate::error::Failure;

/// Size of a component above which it is reported, in bytes. Python and the large engine of JavaScript have 10 to 20 MiB;
/// above that, the first load compiles for half a minute.
const LARGE_COMPONENT: u64 = 20 << 20;

/// Length of a message of an error above which it is reported, in bytes: a model reads it whole.
const LONG_MESSAGE: usize = 2 << 10;

/// Part of a default limit that ordinary calls may use: half, so that larger arguments still fit.
const PART_OF_LIMIT: u64 = 2;

/// Wall time of a generated call: without grants it waits for nothing, and computes little.
const WALL: NamedLimit = NamedLimit {
    name: "wall",
    value: 5_000,
};

/// Minimum length of a description, in characters.
const SHORT_DESCRIPTION: usize = 10;

/// Maximum number of messages of one finding.
const MAX_MESSAGES: usize = 5;

/// Traces of a programming language in a message that a model should understand.
const TRACES: [&str; 5] = [
    "panicked at",
    "RUST_BACKTRACE",
    "Traceback (most recent call last)",
    "called `Result::unwrap()`",
    "    at Object.<anonymous>",
];

/// Checks one tool.
///
/// # Errors
/// Returns an error if a call could not be prepared.
pub(super) async fn of_tool(
    run: &Run<'_>,
    subject: &Subject,
    spec: &ToolSpec,
) -> Result<Vec<Finding>, Failure> {
    let name = spec.name.as_str();
    let finding = |check, outcome, messages| Finding::check(name, check, outcome, messages);
    let mut found = vec![finding("description", Outcome::Warned, descriptions(spec))];
    let all = valid(&spec.input, run.seed, run.generated);
    let mut bad = Messages::default();
    let mut unequal = Messages::default();
    let mut errors = Messages::default();
    let mut streams = Messages::default();
    if all.is_empty() && run.generated > 0 {
        errors.add("no arguments could be generated from the schema; write cases".into());
    }
    for arguments in &all {
        let first = call(run, subject, name, arguments).await?;
        if run.cancel.is_cancelled() {
            return Ok(found);
        }
        let shown = || short(&Value::Object(arguments.clone()).to_string());
        if let Some(why) = misbehaviour(&first.result) {
            bad.add(format!("{}: {why}", shown()));
            // A tool that does not end would take this long for each of them.
            if matches!(first.result.error, Some(ToolError::Limit { .. })) {
                break;
            }
            continue;
        }
        if let Some(error) = &first.result.error {
            for why in problems_of_message(error) {
                errors.add(format!("{}: {why}", shown()));
            }
        }
        if subject.component.kind() != ComponentKind::Program
            && let Some(line) = written(&first)
        {
            streams.add(format!("{}: it wrote {}", shown(), short(line)));
        }
        if run.unequal(subject, name) == Outcome::Passed {
            continue;
        }
        let second = call(run, subject, name, arguments).await?;
        if let Some(difference) = difference(&first.result, &second.result) {
            unequal.add(format!("{}: {difference}", shown()));
        }
    }
    if all.is_empty() {
        // The other checks did not run.
        if !errors.0.is_empty() {
            found.push(finding("errors", Outcome::Warned, errors.0));
        }
        return Ok(found);
    }
    let mut accepted = Messages::default();
    for broken in all.first().into_iter().flat_map(|base| broken(&spec.input, base)) {
        let ran = call(run, subject, name, &broken.arguments).await?;
        if !matches!(ran.result.error, Some(ToolError::InvalidArguments { .. })) {
            let arguments = Value::Object(broken.arguments).to_string();
            accepted.add(format!("{}: {} was not refused", broken.rule, short(&arguments)));
        }
    }
    found.push(finding("valid arguments", Outcome::Failed, bad.0));
    found.push(finding("invalid arguments", Outcome::Failed, accepted.0));
    found.push(finding("equal calls", run.unequal(subject, name), unequal.0));
    found.push(finding("errors", Outcome::Warned, errors.0));
    found.push(finding("streams", Outcome::Warned, streams.0));
    Ok(found)
}

/// Checks that concern the whole component.
pub(super) fn of_component(run: &Run<'_>, subject: &Subject) -> Vec<Finding> {
    let name = subject.settings.name.as_str();
    let mut found = Vec::new();
    let size = subject.component.identity().size();
    let large = (size > LARGE_COMPONENT).then(|| {
        format!(
            "{} take long to compile: strip it, and optimize it for size",
            Bytes(size)
        )
    });
    found.push(Finding::check(
        name,
        "size",
        Outcome::Warned,
        large.into_iter().collect(),
    ));
    let default = Limits::default();
    let most = run.most();
    let used = [
        ("fuel", most.fuel),
        ("wall", most.wall_us / 1_000),
        ("memory", most.memory),
        ("output", most.output),
    ];
    let near = used.into_iter().filter_map(|(limit, used)| {
        let allowed = limits::get(&default, limit);
        (used > allowed / PART_OF_LIMIT).then(|| {
            format!(
                "a call used {} of `{limit}`, more than half of the default of {}",
                limits::shown(limit, used),
                limits::shown(limit, allowed)
            )
        })
    });
    found.push(Finding::check(name, "limits", Outcome::Warned, near.collect()));
    let specs = subject.component.definitions().iter().map(|spec| &**spec);
    let misleading = tool_lint::findings_in_component(specs, &[]);
    found.push(Finding::check(
        name,
        "misleading words",
        Outcome::Warned,
        misleading,
    ));
    found
}

/// First messages of a check.
#[derive(Default)]
struct Messages(Vec<String>);

impl Messages {
    fn add(&mut self, message: String) {
        if self.0.len() < MAX_MESSAGES {
            self.0.push(message);
        }
    }
}

async fn call(
    run: &Run<'_>,
    subject: &Subject,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Ran, Failure> {
    let case = Case {
        name: String::new(),
        tool: Some(tool.to_owned()),
        arguments: arguments.clone(),
        expected: Expected::default(),
        grants: Vec::new(),
        limits: vec![WALL],
        files: Default::default(),
        answers: Vec::new(),
    };
    run.call(subject, tool, &case).await
}

/// The reason why a tool must not end a call with valid arguments like this; an answer and an error in its words are fine.
fn misbehaviour(result: &CallResult) -> Option<String> {
    match result.error.as_ref()? {
        error @ (ToolError::Crashed { .. } | ToolError::Limit { .. } | ToolError::Host { .. }) => {
            Some(error.to_string())
        }
        _ => None,
    }
}

/// Returns what makes the message of an error useless to a model.
fn problems_of_message(error: &ToolError) -> Vec<String> {
    let (ToolError::InvalidArguments { message }
    | ToolError::Denied { message, .. }
    | ToolError::Unavailable { message }
    | ToolError::Failed { message }) = error
    else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if message.trim().is_empty() {
        problems.push(format!("an error `{}` without a message", error.kind()));
    }
    if message.len() > LONG_MESSAGE {
        problems.push(format!("a message of {} bytes", message.len()));
    }
    let is_odd = |c: char| is_hidden(c) || (c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
    if message.contains(is_odd) {
        problems.push("a message with hidden or control characters".into());
    }
    if let Some(trace) = TRACES.into_iter().find(|trace| message.contains(trace)) {
        problems.push(format!("a message with the trace of a crash: \"{trace}\""));
    }
    problems
}

/// The first line that a call wrote to standard output or standard error.
fn written(ran: &Ran) -> Option<&str> {
    let of_stream = |source| matches!(source, LogSource::Stdout | LogSource::Stderr);
    let line = ran.lines.iter().find(|line| of_stream(line.source));
    line.map(|line| line.message.as_str())
}

/// Compares the results of two equal calls.
pub(super) fn difference(first: &CallResult, second: &CallResult) -> Option<String> {
    let is_equal = first.content == second.content
        && first.structured == second.structured
        && first.error == second.error;
    (!is_equal).then(|| {
        format!(
            "the first answer is {}, the second {}",
            short(&text_of(first)),
            short(&text_of(second))
        )
    })
}

/// Outcome of different answers to equal calls: a tool that can read the time or random numbers may mean them.
pub(super) fn unequal(abilities: &[Ability]) -> Outcome {
    let may_vary = abilities.iter().any(|ability| {
        matches!(
            ability,
            Ability::WallClock | Ability::MonotonicClock | Ability::Random
        )
    });
    if may_vary {
        Outcome::Warned
    } else {
        Outcome::Failed
    }
}

/// Returns what the definition of a tool lacks.
fn descriptions(spec: &ToolSpec) -> Vec<String> {
    let mut found = Vec::new();
    let description = spec.description.trim();
    if description.chars().count() < SHORT_DESCRIPTION || description.ends_with(NO_DESCRIPTION) {
        found.push("its description does not say what it does".into());
    }
    found.extend(parameters(&spec.input));
    found
}

fn parameters(schema: &Schema) -> Vec<String> {
    let root = schema.as_value();
    let mut found = Vec::new();
    let properties = root.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let property = resolve(root, property);
        let described = property.get("description").and_then(Value::as_str);
        if described.is_none_or(|text| text.trim().is_empty()) {
            found.push(format!("its parameter `{name}` has no description"));
        }
    }
    let is_closed = ["additionalProperties", "unevaluatedProperties"]
        .iter()
        .any(|keyword| root.get(keyword).is_some_and(|value| *value != Value::Bool(true)));
    if !is_closed {
        found.push("it accepts unknown parameters, so that a misspelt name is not refused".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(schema: Value) -> Vec<String> {
        parameters(&Schema::new(schema).unwrap())
    }

    #[test]
    fn parameters_need_descriptions() {
        let closed = |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
        assert_eq!(
            said(closed(json!({"a": {"type": "string", "description": "A."}}))),
            [""; 0]
        );
        assert_eq!(
            said(closed(json!({"a": {"enum": [1], "description": " "}}))).len(),
            1
        );
        assert_eq!(said(json!({"type": "object"})).len(), 1);
    }

    #[test]
    fn message_of_an_error_must_help() {
        for (message, problems) in [
            ("`n` is negative", 0),
            (" ", 1),
            ("it\u{200b}", 1),
            ("\u{1b}[2J", 1),
            ("thread 'main' panicked at src/lib.rs", 1),
        ] {
            let error = ToolError::Failed {
                message: message.into(),
            };
            assert_eq!(problems_of_message(&error).len(), problems, "{message}");
        }
        let long = |length: usize| problems_of_message(&ToolError::invalid("x".repeat(length))).len();
        assert_eq!((long(LONG_MESSAGE), long(LONG_MESSAGE + 1)), (0, 1));
    }

    #[test]
    fn crash_and_limit_are_misbehaviour_and_refusal_is_not() {
        let limit = ToolError::Limit {
            limit: toolcell_core::Limit::Fuel(5),
        };
        for (error, is_bad) in [
            (ToolError::crashed("unreachable"), true),
            (limit, true),
            (ToolError::invalid("no"), false),
            (ToolError::denied("no", None), false),
        ] {
            let result = CallResult::failed(error);
            assert_eq!(misbehaviour(&result).is_some(), is_bad, "{result:?}");
        }
    }

    #[test]
    fn answers_that_differ_are_a_failure_without_a_clock() {
        let (one, other) = (CallResult::text("1"), CallResult::text("2"));
        assert_eq!(difference(&one, &one), None);
        assert!(difference(&one, &other).is_some());
        let failed = CallResult::failed(ToolError::invalid("1"));
        assert!(difference(&one, &failed).is_some());
        assert_eq!(unequal(&[Ability::Files, Ability::Http]), Outcome::Failed);
        for ability in [Ability::WallClock, Ability::MonotonicClock, Ability::Random] {
            assert_eq!(unequal(&[Ability::Files, ability]), Outcome::Warned);
        }
    }
}
