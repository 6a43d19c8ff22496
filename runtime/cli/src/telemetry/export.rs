//! Starts the exporter, and shuts it down within a timeout.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::{Registry, filter};

use super::conventions::Conventions;
use super::sender::Sender;
use super::{PATIENCE, Signals};
use crate::environment::Environment;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Name of the instrumentation scope.
const SCOPE: &str = "toolcell";

/// Default service name; a variable can override it.
const SERVICE: &str = "toolcell";

/// Only spans of this crate are exported; events of other crates may contain what the user said.
const TARGET: &str = "toolcell_agent";

/// Exporter of traces and metrics.
#[derive(Debug)]
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    sender: Sender,
    /// Reason the exporter did not start.
    failure: Option<String>,
}

impl Telemetry {
    /// Starts the requested exporters. Endpoint, headers, protocol and resource come from the standard variables.
    /// Requires a tokio runtime.
    pub(crate) fn start(
        environment: &Environment,
    ) -> (Self, Option<Box<dyn Layer<Registry> + Send + Sync + 'static>>) {
        let mut telemetry = Self {
            traces: None,
            metrics: None,
            sender: Sender::new(),
            failure: None,
        };
        let signals = Signals::wanted(environment);
        if signals.is_empty() {
            return (telemetry, None);
        }
        if let Err(error) = telemetry.build(signals, environment) {
            telemetry.failure = Some(format!("{error:#}"));
        }
        let layer = telemetry.traces.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer(SCOPE))
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
                .with_target(false)
                .with_level(false)
                .with_filter(filter::filter_fn(|metadata| {
                    metadata.is_span() && metadata.target().starts_with(TARGET)
                }))
                .boxed()
        });
        (telemetry, layer)
    }

    fn build(&mut self, signals: Signals, environment: &Environment) -> anyhow::Result<()> {
        let resource = resource(environment);
        if signals.metrics {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_protocol(protocol(environment, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL")?)
                .with_http_client(self.sender.clone())
                .build()?;
            let provider = SdkMeterProvider::builder()
                .with_resource(resource.clone())
                .with_periodic_exporter(exporter)
                .build();
            self.metrics = Some(provider);
        }
        // Metrics are derived from request spans, so that either can be exported alone.
        let mut spans = None;
        if signals.traces {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_protocol(protocol(environment, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")?)
                .with_http_client(self.sender.clone())
                .build()?;
            spans = Some(BatchSpanProcessor::builder(exporter).build());
        }
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_span_processor(Conventions::new(spans, self.metrics.as_ref(), SCOPE))
            .build();
        self.traces = Some(provider);
        Ok(())
    }

    /// Flushes pending data, and reports the first failure once.
    pub(crate) async fn end(self, console: &Console) {
        let Self {
            traces,
            metrics,
            sender,
            failure,
        } = self;
        if let Some(failure) = failure {
            console.note(text!("telemetry is disabled: {}", failure));
        }
        let traces = tokio::task::spawn_blocking(move || traces.map(|p| p.shutdown_with_timeout(PATIENCE)));
        let metrics = tokio::task::spawn_blocking(move || metrics.map(|p| p.shutdown_with_timeout(PATIENCE)));
        let both = async {
            let _ = traces.await;
            let _ = metrics.await;
        };
        let in_time = tokio::time::timeout(PATIENCE, both).await.is_ok();
        match sender.failure() {
            Some(failure) => console.note(text!("telemetry could not be sent: {}", failure)),
            None if in_time => {}
            None => console.note(text!(
                "telemetry could not be sent: the collector did not respond within {} s",
                PATIENCE.as_secs()
            )),
        }
    }
}

/// Returns the OTLP encoding: protobuf, unless a variable overrides it (OTLP exporter specification).
///
/// # Errors
/// Returns an error if the encoding is not supported by this build.
fn protocol(environment: &Environment, of_signal: &'static str) -> anyhow::Result<Protocol> {
    let of_all = "OTEL_EXPORTER_OTLP_PROTOCOL";
    let value = [of_signal, of_all]
        .into_iter()
        .find_map(|name| Some((name, environment.var(name)?)));
    match value {
        None | Some((_, "http/protobuf")) => Ok(Protocol::HttpBinary),
        Some((_, "http/json")) => Ok(Protocol::HttpJson),
        Some((name, other)) => Err(anyhow::anyhow!(
            "`{name}={other}` is not supported by this build; use `http/protobuf` or `http/json`"
        )),
    }
}

/// Returns the resource attributes. The standard variables have priority.
fn resource(environment: &Environment) -> Resource {
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let attributes = environment.var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let named = environment.var("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=");
    let builder = Resource::builder().with_attribute(version);
    if named {
        builder.build()
    } else {
        builder.with_service_name(SERVICE).build()
    }
}
