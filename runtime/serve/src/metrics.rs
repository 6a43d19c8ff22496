//! Metrics of `/api`, `/v1` and the page in the text format of Prometheus, beside those of the server of the Model Context Protocol.
//!
//! Values of labels are routes, methods, statuses, names of agents and of tools, and outcomes: nothing that a client or a model chooses,
//! and no more than a fixed number of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use toolcell_core::provider::Usage;
use toolcell_core::{ApprovalCause, Event, EventSink};

use crate::host::TurnEnd;

/// Upper bounds of the histograms, in seconds: of requests, which are mostly fast, and of turns, which wait for models.
const BOUNDS: [f64; 12] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0, 600.0,
];

/// Maximum number of tools with a series of their own. Calls of further ones are those of `other`.
const MAX_TOOLS: usize = 256;

/// Label of calls whose tool is not told: those of tools that do not exist, whose names a model has written, and beyond [`MAX_TOOLS`].
const OTHER: &str = "other";

/// Label of calls of tools that a client runs itself.
const OF_CLIENT: &str = "client";

/// Metrics of the server.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Requests by route, method and status.
    requests: BTreeMap<(&'static str, &'static str, u16), u64>,
    /// Time until the head of the answer, by route.
    request_times: BTreeMap<&'static str, Times>,
    /// Open streams by route.
    streams: BTreeMap<&'static str, i64>,
    /// Turns that run, by API.
    running: BTreeMap<&'static str, i64>,
    /// Turns that ended, by API, agent and outcome.
    turns: BTreeMap<(&'static str, String, String), u64>,
    turn_times: BTreeMap<&'static str, Times>,
    /// Tokens by agent and type.
    tokens: BTreeMap<(String, &'static str), u64>,
    /// Costs by agent, in millionths of the currency unit.
    costs: BTreeMap<String, u64>,
    /// Calls that ended, by tool and outcome.
    calls: BTreeMap<(String, &'static str), u64>,
    tools: BTreeSet<String>,
}

/// Histogram of times.
#[derive(Default, Clone, Copy)]
struct Times {
    below: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        for (bound, below) in BOUNDS.iter().zip(&mut self.below) {
            *below += u64::from(time.as_secs_f64() <= *bound);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
    }
}

impl Metrics {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that is answered.
    pub(crate) fn responded(&self, route: &'static str, method: &str, status: StatusCode, time: Duration) {
        const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"];
        let method = METHODS
            .into_iter()
            .find(|known| *known == method)
            .unwrap_or(OTHER);
        let mut counts = self.lock();
        *counts
            .requests
            .entry((route, method, status.as_u16()))
            .or_default() += 1;
        counts.request_times.entry(route).or_default().add(time);
    }

    /// Counts a stream until the result is dropped.
    pub(crate) fn stream(self: &Arc<Self>, route: &'static str) -> OpenStream {
        *self.lock().streams.entry(route).or_default() += 1;
        OpenStream {
            metrics: self.clone(),
            route,
        }
    }

    /// Counts a turn until its end; one whose result is dropped before is interrupted. `names` are those of the tools of its client.
    pub(crate) fn turn(
        self: &Arc<Self>,
        api: &'static str,
        agent: &str,
        names: BTreeSet<String>,
    ) -> TurnInProgress {
        *self.lock().running.entry(api).or_default() += 1;
        TurnInProgress {
            metrics: self.clone(),
            api,
            agent: agent.to_owned(),
            names,
            since: Instant::now(),
            outcome: "interrupted".into(),
        }
    }

    /// Writes all metrics.
    pub(crate) fn render(&self) -> String {
        let counts = self.lock();
        let mut text = String::new();
        let family = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(
                text,
                "# HELP toolcell_serve_{name} {help}\n# TYPE toolcell_serve_{name} {kind}"
            );
        };
        let sample =
            |text: &mut String, name: &str, labels: &[(&str, &str)], value: &dyn std::fmt::Display| {
                let labels: Vec<String> = labels
                    .iter()
                    .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                    .collect();
                let _ = writeln!(text, "toolcell_serve_{name}{{{}}} {value}", labels.join(","));
            };
        let times = |text: &mut String, name: &str, label: (&str, &str), times: &Times| {
            let bucket = format!("{name}_bucket");
            for (bound, count) in BOUNDS.iter().zip(times.below) {
                sample(text, &bucket, &[label, ("le", &bound.to_string())], &count);
            }
            sample(text, &bucket, &[label, ("le", "+Inf")], &times.count);
            sample(text, &format!("{name}_sum"), &[label], &times.sum.as_secs_f64());
            sample(text, &format!("{name}_count"), &[label], &times.count);
        };
        let out = &mut text;
        family(
            out,
            "requests_total",
            "counter",
            "Requests by route, method and status.",
        );
        for ((route, method, status), count) in &counts.requests {
            let labels = [
                ("route", *route),
                ("method", method),
                ("status", &status.to_string()),
            ];
            sample(out, "requests_total", &labels, count);
        }
        family(
            out,
            "request_seconds",
            "histogram",
            "Time from a request to the head of its answer.",
        );
        for (route, all) in &counts.request_times {
            times(out, "request_seconds", ("route", route), all);
        }
        family(out, "streams", "gauge", "Open streams by route.");
        for (route, count) in &counts.streams {
            sample(out, "streams", &[("route", route)], count);
        }
        family(out, "turns_in_progress", "gauge", "Turns that run, by API.");
        for (api, count) in &counts.running {
            sample(out, "turns_in_progress", &[("api", api)], count);
        }
        family(
            out,
            "turns_total",
            "counter",
            "Ended turns by API, agent and outcome.",
        );
        for ((api, agent, outcome), count) in &counts.turns {
            let labels = [("api", *api), ("agent", agent), ("outcome", outcome)];
            sample(out, "turns_total", &labels, count);
        }
        family(
            out,
            "turn_seconds",
            "histogram",
            "Time of turns, with their calls and questions.",
        );
        for (api, all) in &counts.turn_times {
            times(out, "turn_seconds", ("api", api), all);
        }
        family(
            out,
            "tokens_total",
            "counter",
            "Tokens of models by agent and type; those of the cache are part of the input.",
        );
        for ((agent, kind), count) in &counts.tokens {
            sample(out, "tokens_total", &[("agent", agent), ("type", kind)], count);
        }
        family(
            out,
            "cost_micros_total",
            "counter",
            "Costs of models by agent, in millionths of the currency unit.",
        );
        for (agent, cost) in &counts.costs {
            sample(out, "cost_micros_total", &[("agent", agent)], cost);
        }
        family(
            out,
            "calls_total",
            "counter",
            "Ended calls of turns by tool and outcome.",
        );
        for ((tool, outcome), count) in &counts.calls {
            sample(out, "calls_total", &[("tool", tool), ("outcome", outcome)], count);
        }
        text
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Stream that is open.
pub(crate) struct OpenStream {
    metrics: Arc<Metrics>,
    route: &'static str,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        *self.metrics.lock().streams.entry(self.route).or_default() -= 1;
    }
}

/// Turn that runs.
pub(crate) struct TurnInProgress {
    metrics: Arc<Metrics>,
    api: &'static str,
    agent: String,
    names: BTreeSet<String>,
    since: Instant,
    outcome: String,
}

impl TurnInProgress {
    /// Returns a sink that counts calls, and passes all events on.
    pub(crate) fn counting(&self, inner: Arc<dyn EventSink>) -> Arc<dyn EventSink> {
        Arc::new(Counting {
            metrics: self.metrics.clone(),
            agent: self.agent.clone(),
            names: Mutex::new(self.names.clone()),
            inner,
        })
    }

    /// Counts the end of the turn.
    pub(crate) fn ended(mut self, end: &TurnEnd) {
        self.outcome = match &end.outcome {
            None => "host_failed".into(),
            Some(outcome) => {
                let outcome = serde_json::to_value(outcome).unwrap_or_default();
                outcome["outcome"].as_str().unwrap_or(OTHER).to_owned()
            }
        };
        let Usage {
            input,
            cache_read,
            cache_write,
            output,
            reasoning,
            ..
        } = end.usage;
        let mut counts = self.metrics.lock();
        for (kind, count) in [
            ("input", input),
            ("cache_read", cache_read),
            ("cache_write", cache_write),
            ("output", output),
            ("reasoning", reasoning),
        ] {
            let total = counts.tokens.entry((self.agent.clone(), kind)).or_default();
            *total = total.saturating_add(count);
        }
    }
}

impl Drop for TurnInProgress {
    fn drop(&mut self) {
        let mut counts = self.metrics.lock();
        *counts.running.entry(self.api).or_default() -= 1;
        let ended = (self.api, self.agent.clone(), std::mem::take(&mut self.outcome));
        *counts.turns.entry(ended).or_default() += 1;
        counts
            .turn_times
            .entry(self.api)
            .or_default()
            .add(self.since.elapsed());
    }
}

struct Counting {
    metrics: Arc<Metrics>,
    agent: String,
    /// Names of tools of the client.
    names: Mutex<BTreeSet<String>>,
    inner: Arc<dyn EventSink>,
}

impl EventSink for Counting {
    fn event(&self, event: &Event) {
        match event {
            // A turn that goes on does not repeat the tools of its client.
            Event::ApprovalRequested {
                tool,
                cause: ApprovalCause::Client,
                ..
            } => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                names.insert(tool.clone());
            }
            Event::CallFinished { tool, result, .. } => {
                let outcome = result.error.as_ref().map_or("ok", |error| error.kind());
                let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                let is_of_client = names.contains(tool);
                drop(names);
                let mut counts = self.metrics.lock();
                let tool = match (is_of_client, outcome) {
                    (true, _) => OF_CLIENT,
                    (false, "unknown_tool") => OTHER,
                    _ if counts.tools.contains(tool) => tool,
                    _ if counts.tools.len() < MAX_TOOLS => {
                        counts.tools.insert(tool.clone());
                        tool
                    }
                    _ => OTHER,
                };
                *counts.calls.entry((tool.to_owned(), outcome)).or_default() += 1;
            }
            Event::TurnFinished {
                cost_micros: Some(cost),
                ..
            } => {
                let mut counts = self.metrics.lock();
                let total = counts.costs.entry(self.agent.clone()).or_default();
                *total = total.saturating_add(*cost);
            }
            _ => {}
        }
        self.inner.event(event);
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::event::TurnOutcome;
    use toolcell_core::{CallResult, ToolError};

    use super::*;

    fn finished(tool: &str, error: Option<ToolError>) -> Event {
        let result = error.map_or_else(|| CallResult::text("x"), CallResult::failed);
        Event::CallFinished {
            id: "1".into(),
            tool: tool.into(),
            result,
        }
    }

    #[test]
    fn turns_and_calls_are_counted_by_known_names() {
        let metrics = Arc::new(Metrics::default());
        let turn = metrics.turn("api", "a\"b", BTreeSet::from(["weather".to_owned()]));
        let sink = turn.counting(Arc::new(|_: &Event| {}));
        assert!(
            metrics
                .render()
                .contains("toolcell_serve_turns_in_progress{api=\"api\"} 1\n")
        );
        sink.event(&finished("text_count", None));
        sink.event(&finished("weather", None));
        let denied = || Some(ToolError::denied("no", None));
        for number in 0..2 * MAX_TOOLS {
            sink.event(&finished(&format!("t{number}"), denied()));
        }
        turn.ended(&TurnEnd {
            outcome: Some(TurnOutcome::Completed),
            usage: Usage {
                input: 7,
                ..Usage::default()
            },
            ..TurnEnd::default()
        });
        drop(metrics.turn("v1", "default", BTreeSet::new()));
        let text = metrics.render();
        for line in [
            "toolcell_serve_turns_in_progress{api=\"api\"} 0",
            "toolcell_serve_turns_total{api=\"api\",agent=\"a\\\"b\",outcome=\"completed\"} 1",
            "toolcell_serve_turns_total{api=\"v1\",agent=\"default\",outcome=\"interrupted\"} 1",
            "toolcell_serve_turn_seconds_count{api=\"v1\"} 1",
            "toolcell_serve_tokens_total{agent=\"a\\\"b\",type=\"input\"} 7",
            "toolcell_serve_calls_total{tool=\"text_count\",outcome=\"ok\"} 1",
            "toolcell_serve_calls_total{tool=\"client\",outcome=\"ok\"} 1",
            &format!(
                "toolcell_serve_calls_total{{tool=\"other\",outcome=\"denied\"}} {}",
                MAX_TOOLS + 1
            ),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let tools = text.lines().filter(|line| line.contains("calls_total{"));
        assert_eq!(tools.count(), MAX_TOOLS + 2);
    }

    #[test]
    fn requests_and_streams_are_counted_by_route() {
        let metrics = Arc::new(Metrics::default());
        let time = Duration::from_millis(2);
        metrics.responded("/api/info", "GET", StatusCode::OK, time);
        metrics.responded("/api/info", "BREW", StatusCode::METHOD_NOT_ALLOWED, time);
        let stream = metrics.stream("/v1/responses");
        let open = "toolcell_serve_streams{route=\"/v1/responses\"}";
        assert!(metrics.render().contains(&format!("{open} 1\n")));
        drop(stream);
        let text = metrics.render();
        for line in [
            "toolcell_serve_requests_total{route=\"/api/info\",method=\"GET\",status=\"200\"} 1",
            "toolcell_serve_requests_total{route=\"/api/info\",method=\"other\",status=\"405\"} 1",
            "toolcell_serve_request_seconds_bucket{route=\"/api/info\",le=\"0.001\"} 0",
            "toolcell_serve_request_seconds_bucket{route=\"/api/info\",le=\"0.003\"} 2",
            "toolcell_serve_request_seconds_bucket{route=\"/api/info\",le=\"+Inf\"} 2",
            &format!("{open} 0"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
