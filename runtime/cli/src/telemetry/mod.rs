//! Traces and metrics for an OpenTelemetry collector, with the conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>), over OTLP/HTTP.
//!
//! Available in builds with the feature `otel`, and active only if a standard variable names a collector
//! (<https://opentelemetry.io/docs/specs/otel/protocol/exporter/>). Texts of the user, the model and tools are never
//! exported. An unresponsive collector delays the end of a run by [`PATIENCE`] at most, and is reported once.

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

/// Maximum time to wait for pending exports at exit.
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "nothing is sent"))]
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Variable with the collector of all signals.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Variable with the collector of traces.
const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Variable with the collector of metrics.
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";

/// Signals to export, from the standard variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) traces: bool,
    pub(crate) metrics: bool,
}

impl Signals {
    /// Reads the signals from the environment.
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

    /// True if no signal is exported.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Returns the state of the exporter on one line, and true if it matches the environment.
pub(crate) fn state(environment: &Environment) -> (String, bool) {
    let signals = Signals::wanted(environment);
    let names: Vec<&str> = [(signals.traces, "traces"), (signals.metrics, "metrics")]
        .into_iter()
        .filter_map(|(wanted, name)| wanted.then_some(name))
        .collect();
    match (cfg!(feature = "otel"), signals.is_empty()) {
        (true, true) => (format!("disabled; set {ENDPOINT} to enable it"), true),
        (true, false) => (format!("{} are sent to a collector", names.join(" and ")), true),
        (false, true) => (
            "not included in this build; `cargo build --features otel` includes it".into(),
            true,
        ),
        (false, false) => (
            format!("{ENDPOINT} is set, but this build has no exporter; build it with `--features otel`"),
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_variables_choose_exported_signals() {
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
