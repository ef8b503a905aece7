//! Traces of runs, sent by OpenTelemetry's protocol where its environment variables name a server.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as ExportSpans};
use tracing::Level;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use crate::output;

/// The variables that name the server.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables that name the protocol.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The variable that asks for what was said.
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
/// The time that the program waits at its end until the last spans are sent.
const MAX_END_WAIT: Duration = Duration::from_secs(5);

/// The traces of this process.
pub(crate) struct Telemetry {
    /// The server, as it is shown.
    server: String,
    tracers: SdkTracerProvider,
    failure: LastFailure,
}

/// The last reason why spans were not sent.
type LastFailure = Arc<Mutex<Option<String>>>;

impl Telemetry {
    /// Returns `None` if no server is named. A wrong setting is a warning: no run fails because of its traces.
    ///
    /// Called before the runtime starts, since the client that sends the spans has one of its own.
    pub(crate) fn start() -> Option<Self> {
        let endpoint = ENDPOINTS.into_iter().find_map(variable)?;
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if is_off || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none") {
            return None;
        }
        let server = without_credentials(&endpoint);
        match connect() {
            Ok((tracers, failure)) => Some(Telemetry { server, tracers, failure }),
            Err(why) => {
                let why = why.replace(&endpoint, &server);
                output::warning(&format!("no traces are sent to {server}: {why}"));
                None
            }
        }
    }

    /// Blocks until the spans that are left are sent, and reports what could not be sent.
    pub(crate) fn finish(self) {
        let ended = self.tracers.shutdown_with_timeout(MAX_END_WAIT);
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_late = || format!("it did not take them within {} s", MAX_END_WAIT.as_secs());
        if let Some(why) = failure.or_else(|| ended.is_err().then(is_late)) {
            output::warning(&format!("traces were not sent to {}: {why}", self.server));
        }
    }
}

/// Lets all spans of this process be sent.
fn connect() -> Result<(SdkTracerProvider, LastFailure), String> {
    if let Some(protocol) = PROTOCOLS.into_iter().find_map(variable).filter(|protocol| protocol != "http/protobuf") {
        return Err(format!(
            "the protocol {protocol} is not supported; use http/protobuf, at port 4318 of most servers"
        ));
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Headers may hold a key, which a redirect would carry elsewhere.
    let client = reqwest::blocking::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let client = client.map_err(|error| error.to_string())?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .build()
        .map_err(|error| error.to_string())?;
    let failure = LastFailure::default();
    let exporter = NotingFailures { exporter, failure: failure.clone() };
    let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "rath".to_owned());
    let tracers = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name(service).build())
        .with_batch_exporter(exporter)
        .build();
    let layer = OpenTelemetryLayer::new(tracers.tracer("rath"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    let targets = Targets::new().with_target("rath", Level::INFO);
    let wants_content = variable(CONTENT).is_some_and(|value| {
        ["true", "1", "span_only", "span_and_event"].iter().any(|wanted| value.eq_ignore_ascii_case(wanted))
    });
    let targets = if wants_content { targets.with_target("rath::content", Level::DEBUG) } else { targets };
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(targets).with(layer))
        .map_err(|error| error.to_string())?;
    Ok((tracers, failure))
}

/// Passes spans on, and keeps the last failure, which the library tells to nobody.
#[derive(Debug)]
struct NotingFailures<E> {
    exporter: E,
    failure: LastFailure,
}

impl<E: ExportSpans> ExportSpans for NotingFailures<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        if let Err(error) = &result {
            let why = match error {
                OTelSdkError::InternalFailure(why) => why.clone(),
                error => error.to_string(),
            };
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Returns the value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a URL without the user and the password in it.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}
