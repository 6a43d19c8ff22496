//! Parts of the GenAI conventions that `tracing` cannot express: list attributes, the status of failed spans, and
//! metrics.

use std::time::Duration;

use opentelemetry::metrics::{Histogram, MeterProvider as _};
use opentelemetry::trace::Status;
use opentelemetry::{Array, Context, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor};

/// Bucket bounds of `gen_ai.client.token.usage`, in tokens, as in the conventions.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Bucket bounds of `gen_ai.client.operation.duration`, in seconds, as in the conventions.
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// Request attributes that are also metric attributes.
const DIMENSIONS: [&str; 4] = [
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "error.type",
];

/// Span processor that completes each span, measures request spans, and forwards all of them.
#[derive(Debug)]
pub(super) struct Conventions {
    next: Option<BatchSpanProcessor>,
    measures: Option<Measures>,
}

#[derive(Debug)]
struct Measures {
    tokens: Histogram<u64>,
    duration: Histogram<f64>,
}

impl Conventions {
    pub(super) fn new(
        next: Option<BatchSpanProcessor>,
        metrics: Option<&SdkMeterProvider>,
        scope: &'static str,
    ) -> Self {
        let measures = metrics.map(|provider| {
            let meter = provider.meter(scope);
            Measures {
                tokens: meter
                    .u64_histogram("gen_ai.client.token.usage")
                    .with_description("Number of input and output tokens used.")
                    .with_unit("{token}")
                    .with_boundaries(TOKENS.to_vec())
                    .build(),
                duration: meter
                    .f64_histogram("gen_ai.client.operation.duration")
                    .with_description("GenAI operation duration.")
                    .with_unit("s")
                    .with_boundaries(SECONDS.to_vec())
                    .build(),
            }
        });
        Self { next, measures }
    }
}

impl SpanProcessor for Conventions {
    fn on_start(&self, span: &mut Span, cx: &Context) {
        if let Some(next) = &self.next {
            next.on_start(span, cx);
        }
    }

    fn on_end(&self, mut span: SpanData) {
        if let Some(measures) = &self.measures {
            measures.take(&span);
        }
        complete(&mut span);
        if let Some(next) = &self.next {
            next.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.next.as_ref().map_or(Ok(()), BatchSpanProcessor::force_flush)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.next
            .as_ref()
            .map_or(Ok(()), |next| next.shutdown_with_timeout(timeout))
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(next) = &mut self.next {
            next.set_resource(resource);
        }
    }
}

fn complete(span: &mut SpanData) {
    for attribute in &mut span.attributes {
        if attribute.key.as_str() == "gen_ai.response.finish_reasons"
            && let Value::String(reason) = &attribute.value
        {
            attribute.value = Value::Array(Array::String(vec![reason.clone()]));
        }
    }
    if let Some(kind) = attribute(span, "error.type") {
        span.status = Status::error(kind.to_string());
    }
}

impl Measures {
    fn take(&self, span: &SpanData) {
        if attribute(span, "gen_ai.operation.name").is_none_or(|name| name.as_str() != "chat") {
            return;
        }
        let of_request: Vec<KeyValue> = DIMENSIONS
            .iter()
            .filter_map(|key| Some(KeyValue::new(*key, attribute(span, key)?.clone())))
            .collect();
        let took = span.end_time.duration_since(span.start_time).unwrap_or_default();
        self.duration.record(took.as_secs_f64(), &of_request);
        for (key, kind) in [
            ("gen_ai.usage.input_tokens", "input"),
            ("gen_ai.usage.output_tokens", "output"),
        ] {
            let count = attribute(span, key).and_then(|value| match value {
                Value::I64(count) => u64::try_from(*count).ok(),
                _ => None,
            });
            if let Some(count) = count {
                let mut dimensions = of_request.clone();
                dimensions.push(KeyValue::new("gen_ai.token.type", kind));
                self.tokens.record(count, &dimensions);
            }
        }
    }
}

fn attribute<'a>(span: &'a SpanData, key: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|a| a.key.as_str() == key);
    found.map(|attribute| &attribute.value)
}
