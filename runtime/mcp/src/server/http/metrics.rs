//! Metrics of calls and requests in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::tool::LogLine;
use toolcell_core::{ApprovalRequest, CallResult, Event, ToolCall, ToolName};

use crate::server::state::ServerObserver;

/// Upper bounds of the histogram of latencies, in seconds.
const BOUNDS: [f64; 12] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0,
];

/// Metrics of a server. They hold names of tools, and nothing of their arguments and results.
#[derive(Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    connections: i64,
    /// Responses by status.
    responses: BTreeMap<u16, u64>,
    /// Calls that wait or run.
    in_progress: i64,
    /// Cells or other runs of tools.
    cells: i64,
    /// Ended calls by tool and outcome.
    calls: BTreeMap<(String, &'static str), u64>,
    /// Ended calls with a receipt whose wall time is at most that of the bound.
    latencies: [u64; BOUNDS.len()],
    receipts: u64,
    wall_us: u64,
    fuel: u64,
    peak_memory: u64,
    denials: BTreeMap<String, u64>,
}

/// Observer that counts what it passes on.
struct Counting {
    metrics: Arc<Metrics>,
    inner: Arc<dyn ServerObserver>,
}

impl Metrics {
    /// Returns an observer that counts calls, and passes them on.
    pub fn observing(self: &Arc<Self>, inner: Arc<dyn ServerObserver>) -> Arc<dyn ServerObserver> {
        Arc::new(Counting {
            metrics: self.clone(),
            inner,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connected(&self, change: i64) {
        self.lock().connections += change;
    }

    pub(crate) fn responded(&self, status: u16) {
        *self.lock().responses.entry(status).or_default() += 1;
    }

    /// Writes all metrics. Names of tools have no characters that need an escape.
    pub(crate) fn render(&self, sessions: usize) -> String {
        let counts = self.lock();
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
            let _ = writeln!(
                text,
                "# HELP toolcell_{name} {help}\n# TYPE toolcell_{name} {kind}"
            );
            for (labels, value) in samples {
                let _ = writeln!(text, "toolcell_{name}{labels} {value}");
            }
        };
        let one = |value: &dyn std::fmt::Display| [(String::new(), value.to_string())];
        family(
            "connections",
            "gauge",
            "Open connections.",
            &one(&counts.connections),
        );
        family(
            "sessions",
            "gauge",
            "Sessions of versions before 2026-07-28.",
            &one(&sessions),
        );
        let responses: Vec<_> = (counts.responses.iter())
            .map(|(status, count)| (format!("{{status=\"{status}\"}}"), count.to_string()))
            .collect();
        family(
            "http_responses_total",
            "counter",
            "Responses by status.",
            &responses,
        );
        family(
            "calls_in_progress",
            "gauge",
            "Calls that wait or run.",
            &one(&counts.in_progress),
        );
        family(
            "cells",
            "gauge",
            "Calls that run, each in a cell.",
            &one(&counts.cells),
        );
        let calls: Vec<_> = (counts.calls.iter())
            .map(|((tool, outcome), count)| {
                (
                    format!("{{tool=\"{tool}\",outcome=\"{outcome}\"}}"),
                    count.to_string(),
                )
            })
            .collect();
        family(
            "calls_total",
            "counter",
            "Ended calls by tool and outcome.",
            &calls,
        );
        let mut latencies: Vec<_> = (BOUNDS.iter().zip(counts.latencies))
            .map(|(bound, count)| (format!("_bucket{{le=\"{bound}\"}}"), count.to_string()))
            .collect();
        latencies.push(("_bucket{le=\"+Inf\"}".into(), counts.receipts.to_string()));
        let seconds = |us: u64| std::time::Duration::from_micros(us).as_secs_f64().to_string();
        latencies.push(("_sum".into(), seconds(counts.wall_us)));
        latencies.push(("_count".into(), counts.receipts.to_string()));
        family("call_seconds", "histogram", "Wall time of calls.", &latencies);
        family("fuel_total", "counter", "Fuel used by calls.", &one(&counts.fuel));
        let memory = "Largest peak of the memory of a call.";
        family(
            "call_memory_peak_bytes",
            "gauge",
            memory,
            &one(&counts.peak_memory),
        );
        let denials: Vec<_> = (counts.denials.iter())
            .map(|(tool, count)| (format!("{{tool=\"{tool}\"}}"), count.to_string()))
            .collect();
        family(
            "denials_total",
            "counter",
            "Denied accesses and calls by tool.",
            &denials,
        );
        text
    }
}

impl ServerObserver for Counting {
    fn question(&self, request: &ApprovalRequest, generation: u64) -> Result<String, &'static str> {
        self.inner.question(request, generation)
    }

    fn started(&self, call: &ToolCall) {
        self.metrics.lock().in_progress += 1;
        self.inner.started(call);
    }

    fn running(&self, change: i64) {
        self.metrics.lock().cells += change;
        self.inner.running(change);
    }

    fn log(&self, call: &str, line: &LogLine) {
        self.inner.log(call, line);
    }

    fn nested(&self, call: &str, event: &Event) {
        self.inner.nested(call, event);
    }

    fn unasked(&self, request: &ApprovalRequest) {
        self.inner.unasked(request);
    }

    fn finished(&self, call: &str, tool: &ToolName, result: &CallResult) {
        let outcome = result.error.as_ref().map_or("ok", |error| error.kind());
        let mut counts = self.metrics.lock();
        counts.in_progress -= 1;
        *counts.calls.entry((tool.to_string(), outcome)).or_default() += 1;
        let mut denials = u64::from(outcome == "denied");
        if let Some(receipt) = &result.receipt {
            let seconds = std::time::Duration::from_micros(receipt.wall_us).as_secs_f64();
            for (bound, count) in BOUNDS.iter().zip(&mut counts.latencies) {
                *count += u64::from(seconds <= *bound);
            }
            counts.receipts += 1;
            counts.wall_us = counts.wall_us.saturating_add(receipt.wall_us);
            counts.fuel = counts.fuel.saturating_add(receipt.fuel);
            counts.peak_memory = counts.peak_memory.max(receipt.peak_memory);
            denials += receipt.denials.len() as u64;
        }
        if denials > 0 {
            *counts.denials.entry(tool.to_string()).or_default() += denials;
        }
        drop(counts);
        self.inner.finished(call, tool, result);
    }
}
