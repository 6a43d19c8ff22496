//! `[loop]` and `[context]`: how a turn runs, and how much of the conversation its model gets. A preset is the base, and
//! each key that is set replaces its value.

mod value;

use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolcell_agent::LoopPolicy;
use toolcell_agent::policy::{
    AllFailed, CallsPerStep, Control, ErrorVisibility, Finish, OnLimit, Prune, Reasoning,
};

use super::setting::{Setting, SettingSpec, SettingTable, Written, declare_settings};
use super::source::{Origin, Row, Source, Sourced};
use super::units::quantity::millis;
use super::units::{Bytes, Count, Span};
use crate::environment::Environment;
use crate::error::Failure;
use crate::ui::terminal::{Name, Text, text};
pub(crate) use value::{AtLeast, Choice, Exact, Number, Positive, PresetName, Switch};

/// Minimum size of the text of one result, in bytes.
const MIN_RESULT: u64 = 1 << 10;

/// Minimum length of a conversation that is summarised, in tokens.
const MIN_SUMMARISED: u64 = 1_000;

declare_settings! {
    /// How a turn runs. A project's file can lower the numbers that bound its work, and set nothing else.
    table LoopTable;

    /// Settings of the loop, with their origins.
    values LoopSettings;

    /// Flags of the settings of the loop that have one.
    flags LoopFlags;

    /// Preset of the agent loop: `default`, `sequential`, `task`, `resilient` or `stepwise`. Other settings of the loop replace
    /// its values. Not in a project's file.
    preset: PresetName, flag("--preset", "NAME");

    /// Maximum number of model requests in one turn, the last one without tools included [default: 50].
    max_steps: Number<1>, flag("--max-steps", "N"), variable("TOOLCELL_MAX_STEPS");

    /// Maximum wall time of one turn, such as `90s` or `5m` [default: none].
    deadline: Positive<Span>, flag("--deadline", "TIME"), variable("TOOLCELL_DEADLINE");

    /// At the step limit: `final_answer` of a last request without tools, `last_content` of the model, `best_effort`, a
    /// list of the results of calls, or `stop` without an answer [default: final_answer]. Not in a project's file.
    on_limit: Choice<OnLimit>;

    /// Maximum number of calls at a time; with 1 they run in order [default: 8].
    concurrency: Number<1>;

    /// Calls of one answer that run: `many` or `one`. Others get an error that asks for one at a time [default: many]. Not
    /// in a project's file.
    calls_per_step: Choice<CallsPerStep>;

    /// Maximum wall time of one call, waiting and pauses included, in addition to the limits of its tool [default: none].
    call_timeout: Positive<Span>;

    /// Attempts for a failed call, the first included, if its tool is idempotent and a repetition can help [default: 1].
    call_attempts: Number<1>;

    /// Pause before the second attempt; each further pause is longer by as much [default: 1s]. Not in a project's file.
    retry_pause: Exact<Span>;

    /// Text of one result in a request; of a longer one the middle is left out, and `read_result` reads it [default: 48
    /// KiB]. At least 1 KiB, so that the beginning and the end are more than the note about the middle. Not in a project's
    /// file.
    result_bytes: AtLeast<Bytes, MIN_RESULT>;

    /// If all calls of a step fail: `continue` with the errors, or a `fallback_answer` of one more request without tools
    /// [default: continue]. Not in a project's file.
    all_failed: Choice<AllFailed>;

    /// Number of identical errors in a row that ends a turn; 0 is no limit [default: 5].
    error_breaker: Number<0>;

    /// Errors in the conversation: `stored`, or `ephemeral`, which reduces them to a line after the next request [default:
    /// stored]. Not in a project's file.
    error_visibility: Choice<ErrorVisibility>;

    /// Number of identical calls with identical results after which the model is warned; 0 is never [default: 3]. Not in a
    /// project's file.
    repeat_warn: Number<0>;

    /// Number of identical calls with identical results after which a turn ends with an answer without tools; 0 is no limit
    /// [default: 5].
    repeat_stop: Number<0>;

    /// Failed requests to the model in one turn that are reported in the conversation and made again, after the retries of
    /// the provider [default: 0].
    provider_retries: Number<0>;
}

declare_settings! {
    /// How much of the conversation the model gets. Tokens are those that the provider counts, or a quarter of the bytes.
    /// Not in a project's file.
    table ContextTable;

    /// Settings of the context, with their origins.
    values ContextSettings;

    /// Flags of the settings of the context that have one.
    flags ContextFlags;

    /// Tokens of the conversation from which on its older part is replaced by a summary, such as `100k`. Without it only a
    /// conversation that the model refuses as too long is summarised [default: none]. At least 1 k: a summary has some hundred
    /// tokens itself.
    summarise_at: AtLeast<Count, MIN_SUMMARISED>, flag("--summarise-at", "TOKENS");

    /// Number of latest rounds that a summary leaves as they are. A round is a message of the user, or an answer with the
    /// results of its calls [default: 4].
    keep_rounds: Number<0>;

    /// Maximum number of messages in a request; older rounds are left out [default: none]. At least 3: a message of the user, and
    /// an answer with the results of its calls.
    max_messages: Number<3>;

    /// Removes the results of old calls from requests [default: true].
    prune: Switch;

    /// Tokens of the latest results that are never removed [default: 40 k].
    prune_protect: Exact<Count>;

    /// Tokens of results that must be removable before any is: each removal invalidates the provider's prompt cache
    /// [default: 20 k].
    prune_at_least: Exact<Count>;
}

impl LoopSettings {
    /// Returns the preset, which is the base of all settings.
    fn base(&self) -> LoopPolicy {
        let preset = self.preset.as_ref();
        preset.map(|preset| preset.value.policy()).unwrap_or_default()
    }

    /// Returns the policy of the main agent.
    pub(crate) fn policy(&self, context: &ContextSettings) -> LoopPolicy {
        let mut policy = self.base();
        put(&mut policy.max_steps, self.max_steps.as_ref(), |steps| steps.0);
        put(&mut policy.deadline_ms, self.deadline.as_ref(), |time| {
            Some(millis(time.0))
        });
        put(&mut policy.on_limit, self.on_limit.as_ref(), |choice| choice.0);
        put(
            &mut policy.calls_per_step,
            self.calls_per_step.as_ref(),
            |choice| choice.0,
        );
        put(&mut policy.all_failed, self.all_failed.as_ref(), |choice| {
            choice.0
        });
        put(&mut policy.repeats.warn, self.repeat_warn.as_ref(), |times| {
            times.0
        });
        put(&mut policy.repeats.stop, self.repeat_stop.as_ref(), |times| {
            times.0
        });
        self.apply_shared(context, &mut policy);
        policy
    }

    /// Sets what applies to subagents as well: calls, errors and context.
    pub(crate) fn apply_shared(&self, context: &ContextSettings, policy: &mut LoopPolicy) {
        put(&mut policy.concurrency, self.concurrency.as_ref(), |calls| {
            usize::try_from(calls.0).unwrap_or(usize::MAX)
        });
        put(&mut policy.call_timeout_ms, self.call_timeout.as_ref(), |time| {
            Some(millis(time.0))
        });
        put(
            &mut policy.tool_retry.attempts,
            self.call_attempts.as_ref(),
            |times| times.0,
        );
        put(
            &mut policy.tool_retry.backoff_ms,
            self.retry_pause.as_ref(),
            |time| millis(time.0),
        );
        put(&mut policy.result_bytes, self.result_bytes.as_ref(), |bytes| {
            usize::try_from(bytes.0.0).unwrap_or(usize::MAX)
        });
        put(&mut policy.error_breaker, self.error_breaker.as_ref(), |times| {
            times.0
        });
        put(
            &mut policy.error_visibility,
            self.error_visibility.as_ref(),
            |choice| choice.0,
        );
        put(
            &mut policy.provider_retries,
            self.provider_retries.as_ref(),
            |times| times.0,
        );
        context.apply(policy);
    }

    /// Returns every key of `[loop]` and `[context]` with its effective value.
    pub(crate) fn rows(&self, context: &ContextSettings) -> Vec<Row> {
        let base = self.base();
        let of_default = shown(&LoopPolicy::default());
        let of_preset = shown(&base);
        let effective = shown(&self.policy(context));
        let name = self.preset.as_ref().map_or("default", |preset| preset.value.0);
        let loop_settings = self.all().map(|setting| ("loop", setting));
        let all = loop_settings.chain(context.all().map(|setting| ("context", setting)));
        all.map(|(table, (spec, setting))| {
            let key = spec.key;
            let unset = || match of_preset.get(key) == of_default.get(key) {
                true => Origin::Default,
                false => Origin::Preset(name),
            };
            let value = match key {
                "preset" => Some(name.to_owned()),
                key => effective.get(key),
            };
            let origin = setting.origin().cloned().unwrap_or_else(unset);
            Row {
                key: format!("{table}.{key}"),
                value,
                origin,
            }
        })
        .collect()
    }

    /// Returns what ends a turn, in words, with its origin: the preset chooses it as a whole, and no key does.
    pub(crate) fn end_of_turn(&self) -> (Text, Origin) {
        let (of_default, policy) = (LoopPolicy::default(), self.base());
        let ends = |control: &&Control| {
            matches!(
                control,
                Control::TaskCompletion | Control::TaskComplete | Control::AskQuestion | Control::Converse
            )
        };
        let tools = policy.control.iter().filter(ends);
        let tools = Text::join(tools.map(|control| text!("`{}`", Name(control.name()))), " or ");
        let ends = match policy.finish {
            Finish::Content => text!("an answer without a call"),
            Finish::Tool => text!("a call of {}", tools),
            Finish::Either => text!("an answer without a call, or a call of {}", tools),
        };
        let origin = match &self.preset {
            Some(preset) if policy.finish != of_default.finish => Origin::Preset(preset.value.0),
            _ => Origin::Default,
        };
        (ends, origin)
    }

    /// Returns the reasoning effort of the preset with its origin, in words, if it sets one.
    pub(crate) fn reasoning_of_preset(&self) -> Option<Row> {
        let preset = self.preset.as_ref()?.value;
        let shown = match preset.policy().reasoning {
            Reasoning::Provider => return None,
            Reasoning::Always { effort } => effort,
            Reasoning::WhenAsked { effort } => format!("{effort}, if the prompt asks for analysis"),
        };
        Some(Row::new("provider.reasoning", shown, &Origin::Preset(preset.0)))
    }
}

impl ContextSettings {
    fn apply(&self, policy: &mut LoopPolicy) {
        let context = &mut policy.context;
        put(&mut context.summarise_at, self.summarise_at.as_ref(), |tokens| {
            Some(tokens.0.0)
        });
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        put(&mut context.keep_rounds, self.keep_rounds.as_ref(), |rounds| {
            number(rounds.0)
        });
        put(
            &mut context.max_messages,
            self.max_messages.as_ref(),
            |messages| Some(number(messages.0)),
        );
        put(&mut context.prune, self.prune.as_ref(), |prune| {
            prune.0.then(Prune::default)
        });
        if let Some(prune) = &mut context.prune {
            put(&mut prune.protect, self.prune_protect.as_ref(), |tokens| {
                tokens.0.0
            });
            put(&mut prune.at_least, self.prune_at_least.as_ref(), |tokens| {
                tokens.0.0
            });
        }
    }
}

/// Replaces a value of a policy with that of a setting.
fn put<T, V>(place: &mut V, setting: Option<&Sourced<T>>, value: impl FnOnce(&T) -> V) {
    if let Some(setting) = setting {
        *place = value(&setting.value);
    }
}

/// Values of a policy by the key that sets them. One that is missing means no limit.
struct ShownPolicy(Vec<(&'static str, Option<String>)>);

impl ShownPolicy {
    fn get(&self, key: &str) -> Option<String> {
        let mut values = self.0.iter();
        values.find(|(name, _)| *name == key)?.1.clone()
    }
}

fn shown(policy: &LoopPolicy) -> ShownPolicy {
    let LoopPolicy {
        max_steps,
        on_limit,
        concurrency,
        calls_per_step,
        tool_retry,
        all_failed,
        error_breaker,
        error_visibility,
        repeats,
        provider_retries,
        deadline_ms,
        call_timeout_ms,
        result_bytes,
        context,
        // How a turn ends is chosen by the preset as a whole.
        finish: _,
        no_call: _,
        control: _,
        // `[provider] request_timeout` and `reasoning`, and `[budget]`.
        request_timeout_ms: _,
        reasoning: _,
        budget: _,
    } = policy;
    let time = |ms: &Option<u64>| ms.map(|ms| Positive::millis(ms).to_string());
    let count = |count: u64| Exact(Count(count)).to_string();
    let prune = context.prune.as_ref();
    let bytes = u64::try_from(*result_bytes).unwrap_or(u64::MAX);
    ShownPolicy(vec![
        ("max_steps", Some(max_steps.to_string())),
        ("deadline", time(deadline_ms)),
        ("on_limit", Some(Choice(*on_limit).to_string())),
        ("concurrency", Some(concurrency.to_string())),
        ("calls_per_step", Some(Choice(*calls_per_step).to_string())),
        ("call_timeout", time(call_timeout_ms)),
        ("call_attempts", Some(tool_retry.attempts.to_string())),
        ("retry_pause", time(&Some(tool_retry.backoff_ms))),
        ("result_bytes", Some(Exact(Bytes(bytes)).to_string())),
        ("all_failed", Some(Choice(*all_failed).to_string())),
        ("error_breaker", Some(error_breaker.to_string())),
        ("error_visibility", Some(Choice(*error_visibility).to_string())),
        ("repeat_warn", Some(repeats.warn.to_string())),
        ("repeat_stop", Some(repeats.stop.to_string())),
        ("provider_retries", Some(provider_retries.to_string())),
        ("summarise_at", context.summarise_at.map(count)),
        ("keep_rounds", Some(context.keep_rounds.to_string())),
        ("max_messages", context.max_messages.map(|most| most.to_string())),
        ("prune", Some(prune.is_some().to_string())),
        ("prune_protect", prune.map(|prune| count(prune.protect))),
        ("prune_at_least", prune.map(|prune| count(prune.at_least))),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::config::source::Layer;

    /// Every key with a value that no preset has.
    const ALL: &str = r#"
        max_steps = 7
        deadline = "7 s"
        on_limit = "stop"
        concurrency = 7
        calls_per_step = "one"
        call_timeout = "7 s"
        call_attempts = 7
        retry_pause = "7 ms"
        result_bytes = "7 KiB"
        all_failed = "fallback_answer"
        error_breaker = 7
        error_visibility = "ephemeral"
        repeat_warn = 7
        repeat_stop = 0
        provider_retries = 7
    "#;
    const CONTEXT: &str = r#"
        summarise_at = "7 k"
        keep_rounds = 7
        max_messages = 7
        prune = true
        prune_protect = 7
        prune_at_least = 0
    "#;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source {
            layer: Layer::User,
            path: "/c.toml".into(),
            shown: "c.toml".into(),
            text: text.into(),
            line_starts: OnceLock::new(),
        })
    }

    fn settings(of_loop: &str, context: &str) -> (LoopSettings, ContextSettings) {
        (
            LoopSettings::of_table(&toml::from_str(of_loop).unwrap(), &source(of_loop)),
            ContextSettings::of_table(&toml::from_str(context).unwrap(), &source(context)),
        )
    }

    #[test]
    fn every_key_of_loop_and_context_sets_its_own_value() {
        let (turn, context) = settings(ALL, CONTEXT);
        let lines = ALL.lines().map(|line| ("loop", line));
        let lines = lines.chain(CONTEXT.lines().map(|line| ("context", line)));
        let mut written: Vec<(String, String)> = lines
            .filter_map(|(table, line)| {
                let (key, value) = line.trim().split_once(" = ")?;
                Some((format!("{table}.{key}"), value.replace('"', "")))
            })
            .collect();
        let rows = turn.rows(&context);
        let is_set = |row: &&Row| matches!(row.origin, Origin::File(..));
        let shown = rows.iter().filter(is_set);
        let shown: Vec<_> = shown
            .map(|row| (row.key.clone(), row.value.clone().unwrap()))
            .collect();
        assert_eq!(shown, written);
        written.push(("loop.preset".into(), "default".into()));
        assert_eq!(rows.len(), written.len());
        // Each key alone changes its own row and no other.
        let defaults = settings("", "");
        let defaults = defaults.0.rows(&defaults.1);
        for (key, _) in written.iter().filter(|(key, _)| key != "loop.preset") {
            let name = key.rsplit('.').next().unwrap();
            let line = |text: &str| {
                let of_key = |line: &&str| line.trim().starts_with(&format!("{name} ="));
                text.lines().find(of_key).unwrap_or_default().to_owned()
            };
            let (turn, context) = settings(&line(ALL), &line(CONTEXT));
            let changed: Vec<String> = (turn.rows(&context).into_iter().zip(&defaults))
                .filter(|(row, default)| row.value != default.value)
                .map(|(row, _)| row.key)
                .collect();
            let expected: &[&str] = if name == "prune" { &[] } else { &[key] };
            assert_eq!(changed, expected);
        }
    }

    #[test]
    fn values_too_small_to_be_of_use_are_refused() {
        for (table, key, least, below) in [
            ("loop", "result_bytes", "1024", "1023"),
            ("context", "summarise_at", "1000", "999"),
        ] {
            let read = |value: &str| {
                let text = format!("{key} = {value}");
                match table {
                    "loop" => toml::from_str::<LoopTable>(&text).map(drop),
                    _ => toml::from_str::<ContextTable>(&text).map(drop),
                }
            };
            assert!(read(least).is_ok(), "{key}");
            let error = read(below).unwrap_err().to_string();
            assert!(error.contains("too small to be of use: use at least"), "{error}");
        }
    }

    #[test]
    fn end_of_a_turn_is_that_of_the_preset() {
        let end = |text: &str| settings(text, "").0.end_of_turn().0.plain();
        let origin = |text: &str| settings(text, "").0.end_of_turn().1;
        assert_eq!(end(""), "an answer without a call");
        assert_eq!(end("preset = \"task\""), "a call of `task_complete`");
        let stepwise = end("preset = \"stepwise\"");
        assert_eq!(
            stepwise,
            "a call of `task_completion` or `ask_question` or `converse`"
        );
        assert!(matches!(origin("preset = \"task\""), Origin::Preset("task")));
        assert!(matches!(origin("preset = \"resilient\""), Origin::Default));
    }

    #[test]
    fn preset_is_the_base_and_origin_of_what_it_changes() {
        let (turn, context) = settings("preset = \"resilient\"\nconcurrency = 2\n", "prune = false");
        let row = |key: &str| {
            let rows = turn.rows(&context);
            let row = rows.into_iter().find(|row| row.key == key).unwrap();
            (row.value, row.origin.to_string())
        };
        let value = |value: &str| Some(value.to_owned());
        assert_eq!(row("loop.preset"), (value("resilient"), "c.toml:1".into()));
        assert_eq!(row("loop.max_steps"), (value("10"), "preset resilient".into()));
        assert_eq!(row("loop.concurrency"), (value("2"), "c.toml:2".into()));
        assert_eq!(row("loop.error_breaker"), (value("5"), "default".into()));
        assert_eq!(row("loop.deadline"), (None, "default".into()));
        assert_eq!(row("context.prune"), (value("false"), "c.toml:1".into()));
        assert_eq!(row("context.prune_protect"), (None, "default".into()));
        let reasoning = turn.reasoning_of_preset().unwrap();
        assert_eq!(
            reasoning.value.as_deref(),
            Some("high, if the prompt asks for analysis")
        );
        assert_eq!(
            settings("", "").0.reasoning_of_preset().map(|row| row.value),
            None
        );
        let policy = turn.policy(&context);
        assert_eq!(
            (policy.max_steps, policy.concurrency, policy.context.prune),
            (10, 2, None)
        );
    }

    #[test]
    fn subagents_get_what_concerns_calls_and_context() {
        let (turn, context) = settings(ALL, CONTEXT);
        let mut policy = LoopPolicy::default();
        turn.apply_shared(&context, &mut policy);
        let main = turn.policy(&context);
        assert_eq!(policy.context, main.context);
        assert_eq!(policy.call_timeout_ms, Some(7_000));
        assert_eq!(policy.result_bytes, 7 << 10);
        assert_eq!(policy.tool_retry, main.tool_retry);
        let default = LoopPolicy::default();
        assert_eq!((policy.max_steps, policy.deadline_ms), (default.max_steps, None));
        assert_eq!(
            (policy.on_limit, policy.repeats),
            (default.on_limit, default.repeats)
        );
    }

    #[test]
    fn values_are_taken_up_to_their_bounds() {
        for (text, is_taken) in [
            ("max_steps = 1", true),
            ("max_steps = 0", false),
            ("max_steps = 4294967295", true),
            ("max_steps = 4294967296", false),
            ("deadline = \"1 ms\"", true),
            ("deadline = \"0 s\"", false),
            ("concurrency = 0", false),
            ("call_attempts = 0", false),
            ("call_timeout = \"0 ms\"", false),
            ("retry_pause = \"0 s\"", true),
            ("result_bytes = 1024", true),
            ("result_bytes = 1023", false),
            ("error_breaker = 0", true),
            ("provider_retries = -1", false),
            ("on_limit = \"best_effort\"", true),
            ("on_limit = \"BestEffort\"", false),
            ("preset = \"task\"", true),
            ("preset = \"tasks\"", false),
        ] {
            assert_eq!(toml::from_str::<LoopTable>(text).is_ok(), is_taken, "{text}");
        }
        for (text, is_taken) in [
            ("summarise_at = 1000", true),
            ("summarise_at = 999", false),
            ("keep_rounds = 0", true),
            ("max_messages = 2", false),
            ("max_messages = 3", true),
            ("prune_protect = 0", true),
            ("prune = \"no\"", false),
        ] {
            assert_eq!(toml::from_str::<ContextTable>(text).is_ok(), is_taken, "{text}");
        }
    }

    #[test]
    fn unknown_value_is_refused_with_those_there_are() {
        for (text, reason) in [
            (
                "on_limit = \"finish\"",
                "final_answer, last_content, best_effort, stop",
            ),
            ("on_limit = \"final\"", "did you mean `final_answer`?"),
            (
                "preset = \"step\"",
                "there is no loop preset `step`; did you mean `stepwise`?",
            ),
            ("max_steps = 0", "`0` is too small: use at least 1"),
        ] {
            let error = toml::from_str::<LoopTable>(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
