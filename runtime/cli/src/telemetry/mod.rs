//! Traces and metrics for an OpenTelemetry collector, with the conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>), over OTLP/HTTP.
//!
//! Only in a build with the feature `otel`, and only where a standard variable names a collector
//! (<https://opentelemetry.io/docs/specs/otel/protocol/exporter/>). What a person, a model or a tool said is never sent.
//! A collector that does not answer costs a run nothing but [`PATIENCE`] at its end, and is reported once.

#[cfg(not(feature = "otel"))]
mod absent;
#[cfg(feature = "otel")]
mod conventions;
#[cfg(feature = "otel")]
mod export;
pub(crate) mod log;
pub(crate) mod log_files;
#[cfg(feature = "otel")]
mod sender;

#[cfg(not(feature = "otel"))]
pub(crate) use absent::Telemetry;
#[cfg(feature = "otel")]
pub(crate) use export::Telemetry;

use std::time::Duration;

use crate::environment::Environment;

/// Longest time that the end of a process waits for what is left to be sent.
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "nothing is sent"))]
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Names a collector for all signals.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Names one for traces alone.
const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Names one for metrics alone.
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";

/// What is sent, as the standard variables say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) traces: bool,
    pub(crate) metrics: bool,
}

impl Signals {
    /// What the environment asks for.
    pub(crate) fn wanted(environment: &Environment) -> Self {
        let disabled = environment.var("OTEL_SDK_DISABLED");
        if disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Self::default();
        }
        let set = |name| environment.var(name).is_some();
        Self {
            traces: set(ENDPOINT) || set(TRACES),
            metrics: set(ENDPOINT) || set(METRICS),
        }
    }

    /// Whether nothing is sent.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What there is of it, on one line, and whether that is what the environment asks for.
pub(crate) fn state(environment: &Environment) -> (String, bool) {
    let signals = Signals::wanted(environment);
    let names: Vec<&str> = [(signals.traces, "traces"), (signals.metrics, "metrics")]
        .into_iter()
        .filter_map(|(wanted, name)| wanted.then_some(name))
        .collect();
    match (cfg!(feature = "otel"), signals.is_empty()) {
        (true, true) => (format!("nothing is sent; {ENDPOINT} names a collector"), true),
        (true, false) => (format!("{} go to a collector", names.join(" and ")), true),
        (false, true) => (
            "not part of this build; `cargo build --features otel` has it".into(),
            true,
        ),
        (false, false) => (
            format!("{ENDPOINT} is set, and this build sends nothing; build it with `--features otel`"),
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_variables_say_what_is_sent() {
        let wanted = |vars: &[(&str, &str)]| {
            let signals = Signals::wanted(&Environment::for_tests("/".as_ref(), vars));
            (signals.traces, signals.metrics)
        };
        assert_eq!(wanted(&[]), (false, false));
        assert_eq!(wanted(&[(ENDPOINT, "http://c")]), (true, true));
        assert_eq!(wanted(&[(TRACES, "http://c")]), (true, false));
        assert_eq!(wanted(&[(METRICS, "http://c")]), (false, true));
        for (value, sends) in [("true", false), ("TRUE", false), ("false", true), ("1", true)] {
            let vars = [(ENDPOINT, "http://c"), ("OTEL_SDK_DISABLED", value)];
            assert_eq!(wanted(&vars), (sends, sends), "{value}");
        }
    }
}
