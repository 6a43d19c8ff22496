//! `[loop]` and `[context]` of a project's file.
//!
//! A project lowers the numbers that bound the work of a turn. It chooses nothing else: which errors and results the
//! model sees, how a turn ends, and what of the conversation is left out is the user's.

use std::fmt::Display;
use std::sync::Arc;

use super::forbid::{forbid_preset, refused};
use super::project::raised;
use crate::config::setting::{SettingTable as _, Written};
use crate::config::settings::Settings;
use crate::config::source::{Origin, Source, Sourced};
use crate::config::turn::{ContextTable, LoopTable, Number, Positive, PresetName};
use crate::error::Failure;
use crate::ui::terminal::{Name, Shown, text};

/// Applies `[loop]` of a project's file.
///
/// # Errors
/// Returns an error if it raises a number or sets anything else.
pub(super) fn narrow_loop(
    settings: &mut Settings,
    table: &LoopTable,
    source: &Arc<Source>,
    user_file: &str,
) -> Result<(), Failure> {
    let LoopTable {
        preset,
        max_steps,
        deadline,
        on_limit,
        concurrency,
        calls_per_step,
        call_timeout,
        call_attempts,
        retry_pause,
        result_bytes,
        all_failed,
        error_breaker,
        error_visibility,
        repeat_warn,
        repeat_stop,
        provider_retries,
    } = table;
    forbid_preset(preset.as_ref(), source)?;
    for (key, place) in [
        ("on_limit", on_limit.as_ref().map(Written::span)),
        ("calls_per_step", calls_per_step.as_ref().map(Written::span)),
        ("retry_pause", retry_pause.as_ref().map(Written::span)),
        ("result_bytes", result_bytes.as_ref().map(Written::span)),
        ("all_failed", all_failed.as_ref().map(Written::span)),
        ("error_visibility", error_visibility.as_ref().map(Written::span)),
        ("repeat_warn", repeat_warn.as_ref().map(Written::span)),
    ] {
        if let Some(place) = place {
            return Err(
                refused(text!("a project's file cannot set `{}` of the loop", key))
                    .why(source.point_at(&place))
                    .why("it can only lower the numbers that bound the work of a turn")
                    .hint("move it to your own configuration"),
            );
        }
    }
    let Settings { turn, overrides, .. } = settings;
    let flags = &overrides.turn;
    let preset = flags.preset.as_ref().or(turn.preset.as_ref());
    let base = Base {
        preset: preset.map(|preset| preset.value),
        source,
        user_file,
    };
    let policy = base.preset.map(PresetName::policy).unwrap_or_default();
    let time = |ms: Option<u64>| ms.map(Positive::millis);
    let count = |count: usize| Number(u32::try_from(count).unwrap_or(u32::MAX));
    let as_is = |number: &Number<1>| number.0;
    // 0 is no limit.
    let or_none = |number: &Number<0>| if number.0 == 0 { u32::MAX } else { number.0 };
    let steps = Some(Number(policy.max_steps));
    base.narrow(
        Key("max_steps", Some("--max-steps NUMBER"), flags.max_steps.is_some()),
        &mut turn.max_steps,
        max_steps.as_ref(),
        steps,
        as_is,
    )?;
    base.narrow(
        Key("deadline", Some("--deadline TIME"), flags.deadline.is_some()),
        &mut turn.deadline,
        deadline.as_ref(),
        time(policy.deadline_ms),
        |time| time.0,
    )?;
    base.narrow(
        Key("concurrency", None, false),
        &mut turn.concurrency,
        concurrency.as_ref(),
        Some(count(policy.concurrency)),
        as_is,
    )?;
    base.narrow(
        Key("call_timeout", None, false),
        &mut turn.call_timeout,
        call_timeout.as_ref(),
        time(policy.call_timeout_ms),
        |time| time.0,
    )?;
    base.narrow(
        Key("call_attempts", None, false),
        &mut turn.call_attempts,
        call_attempts.as_ref(),
        Some(Number(policy.tool_retry.attempts)),
        as_is,
    )?;
    base.narrow(
        Key("error_breaker", None, false),
        &mut turn.error_breaker,
        error_breaker.as_ref(),
        Some(Number(policy.error_breaker)),
        or_none,
    )?;
    base.narrow(
        Key("repeat_stop", None, false),
        &mut turn.repeat_stop,
        repeat_stop.as_ref(),
        Some(Number(policy.repeats.stop)),
        or_none,
    )?;
    base.narrow(
        Key("provider_retries", None, false),
        &mut turn.provider_retries,
        provider_retries.as_ref(),
        Some(Number(policy.provider_retries)),
        |times| times.0,
    )
}

/// Refuses `[context]` in a project's file.
///
/// # Errors
/// Returns an error if it sets anything.
pub(super) fn forbid_context(table: &ContextTable, source: &Arc<Source>) -> Result<(), Failure> {
    let Some(place) = table.first_key() else {
        return Ok(());
    };
    Err(
        refused("a project's file cannot choose what of the conversation is sent")
            .why(source.point_at(&place))
            .why("it could make the model forget your instructions")
            .hint("move `[context]` to your own configuration"),
    )
}

/// A key of `[loop]`; the flag that sets it, with its value, if it has one; and true if that was given.
struct Key(&'static str, Option<&'static str>, bool);

/// What the project's values are compared with where the user sets none.
struct Base<'a> {
    preset: Option<PresetName>,
    source: &'a Arc<Source>,
    user_file: &'a str,
}

impl Base<'_> {
    /// Replaces the value of the user with that of the project, which must not be higher by `order`. `base` is the value
    /// where the user sets none; `None` is no limit.
    fn narrow<T: Clone + Display, O: Ord>(
        &self,
        key: Key,
        allowed: &mut Option<Sourced<T>>,
        written: Option<&Written<T>>,
        base: Option<T>,
        order: impl Fn(&T) -> O,
    ) -> Result<(), Failure> {
        let Key(name, flag, is_given) = key;
        let Some(written) = written else { return Ok(()) };
        let narrowed = Sourced {
            value: written.value(),
            origin: Origin::File(self.source.clone(), written.span()),
        };
        let by = self.preset.map_or(Origin::Default, |name| Origin::Preset(name.0));
        let base = base.map(|value| Sourced { value, origin: by });
        if let Some(most) = allowed.as_ref().or(base.as_ref())
            && order(&narrowed.value) > order(&most.value)
            && !is_given
        {
            let failure = raised(
                &format!("loop.{name}"),
                &narrowed.origin,
                &most.value.to_string(),
                &most.origin,
            );
            return Err(match flag {
                Some(flag) => failure.hint(text!("to allow more once: {}", flag)),
                None => failure.hint(text!(
                    "to allow more always: `{}` of `[loop]` in {}",
                    Name(name),
                    Shown(self.user_file)
                )),
            });
        }
        *allowed = Some(narrowed);
        Ok(())
    }
}
