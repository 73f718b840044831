//! The driver's spans of OpenTelemetry, on a server: which of them are below the spans of the callers, with `tracing` and without,
//! and which commands have none.

mod background;
mod callers;
mod gathered;

use std::future::Future;
use std::sync::LazyLock;

use mongodb::options::ClientOptions;
use mongodb::otel::OpentelemetryOptions;
use mongodb::{Client, Database};
use mongolock::{IndexState, LockProvider};
use mongolock_tests::{AMPLE, Commands, TestDb, must, stable_options, test_db};
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanId, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, global};
use opentelemetry_sdk_of_driver::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider, SpanData};

/// A tracer provider, and the spans that have ended.
pub(crate) struct Spans {
    provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
}

/// The spans of the global provider, which the library uses for commands of several calls. All tests share them.
pub(crate) static GLOBAL: LazyLock<Spans> = LazyLock::new(|| {
    let spans = Spans::new();
    global::set_tracer_provider(spans.provider.clone());
    spans
});

impl Spans {
    pub(crate) fn new() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        Self { provider, exporter }
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("application")
    }

    /// The spans that have ended.
    pub(crate) fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    /// Those that the driver has made for commands. Above each of them the driver has one for the operation.
    pub(crate) fn of_commands(&self) -> Vec<SpanData> {
        let mut spans = self.ended();
        spans.retain(|span| command(span).is_some());
        spans
    }

    /// Whether a span is below another one, or below one below it.
    pub(crate) fn is_below(&self, span: &SpanData, ancestor: SpanId) -> bool {
        let spans = self.ended();
        let mut parent = span.parent_span_id;
        while parent != ancestor {
            let Some(next) = spans.iter().find(|span| span.span_context.span_id() == parent) else {
                return false;
            };
            parent = next.parent_span_id;
        }
        true
    }

    /// Runs this work of a caller in a span of OpenTelemetry, without `tracing`, and returns the id of the span as well.
    pub(crate) async fn call<T>(&self, work: impl Future<Output = T>) -> (SpanId, T) {
        let context = Context::current_with_span(self.tracer().start("caller"));
        let output = work.with_context(context.clone()).await;
        context.span().end();
        (context.span().span_context().span_id(), output)
    }
}

/// The name of the command that a span of the driver is for.
pub(crate) fn command(span: &SpanData) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let command = attributes.find(|attribute| attribute.key.as_str() == "db.command.name")?;
    Some(command.value.as_str().into_owned())
}

/// A database for one test, and a provider whose driver makes spans.
pub(crate) struct Traced {
    pub(crate) db: TestDb,
    pub(crate) spans: Spans,
    pub(crate) database: Database,
    pub(crate) provider: LockProvider,
    /// The commands that the provider has sent since its TTL index was checked.
    pub(crate) commands: Commands,
}

impl Traced {
    pub(crate) async fn new() -> Self {
        let (db, spans) = (test_db().await, Spans::new());
        let (database, commands) = database(&db, &spans).await;
        let builder = LockProvider::builder(&database).acquire_timeout(AMPLE);
        let provider = builder.build().unwrap();
        assert_eq!(provider.admin().index_state().await, IndexState::Ready);
        commands.clear();
        Self {
            db,
            spans,
            database,
            provider,
            commands,
        }
    }
}

/// The test's database through a client whose driver makes these spans.
pub(crate) async fn database(db: &TestDb, spans: &Spans) -> (Database, Commands) {
    let mut options: ClientOptions = must(stable_options(db.uri()).await);
    options.app_name = Some(db.name().to_owned());
    let tracing = OpentelemetryOptions::builder().enabled(true);
    options.tracing = Some(tracing.tracer_provider(spans.provider.clone()).build());
    let commands = Commands::default();
    commands.record(&mut options);
    let client = must(Client::with_options(options));
    (client.database(db.name()), commands)
}
