//! The parents of the driver's spans with the feature `opentelemetry`.

use opentelemetry::context::FutureExt;
use opentelemetry::trace::{Link, Span, SpanContext, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, InstrumentationScope, KeyValue, global};

use crate::LockError;
use crate::meter::CommandKind;

/// The largest number of links of a span: a command may have the requests of a thousand callers, and a backend keeps few.
const MOST_LINKS: usize = 32;

/// The span that a caller is in. It does not keep the caller's context, because a span may end when its last context is dropped.
#[derive(Clone)]
pub(crate) struct Caller(SpanContext);

impl Caller {
    /// The caller whose task this is.
    pub(crate) fn present() -> Self {
        Context::map_current(|context| Self(context.span().span_context().clone()))
    }
}

/// Takes the current context to the task of this work. Where `tracing-opentelemetry` activates the span of `tracing`, it is the
/// context of that span, or of one of OpenTelemetry that the application has begun inside it.
pub(crate) fn of_caller<F: Future>(work: F) -> impl Future<Output = F::Output> {
    work.with_context(Context::current())
}

/// Records no span for a command that no caller waits for.
pub(crate) async fn of_kind<F: Future>(kind: CommandKind, command: F) -> F::Output {
    match kind {
        CommandKind::Renew
        | CommandKind::Line
        | CommandKind::Stream
        | CommandKind::Index
        | CommandKind::Hello => suppressed(command).await,
        CommandKind::Acquire
        | CommandKind::Release
        | CommandKind::Commit
        | CommandKind::Look
        | CommandKind::Admin => command.await,
    }
}

/// Records no span for what this work sends.
pub(crate) fn suppressed<F: Future>(work: F) -> impl Future<Output = F::Output> {
    work.with_context(Context::new().with_telemetry_suppressed())
}

/// Sends a command for several calls in a span with this name and these attributes. It is a root with links to the spans of the
/// callers, because none of them is its only parent, and it ends with the command.
///
/// A command for one call is below the span of its caller, without a span between the two. So is every command if the
/// application has no global tracer provider, which makes the span.
pub(crate) fn linked<T>(
    name: &'static str,
    command: (&'static str, &'static str),
    requests: (&'static str, usize),
    callers: Vec<Caller>,
    sending: impl Future<Output = Result<T, LockError>>,
) -> impl Future<Output = Result<T, LockError>> {
    let callers = callers.into_iter().map(|Caller(span)| span);
    let callers: Vec<SpanContext> = callers.filter(SpanContext::is_valid).take(MOST_LINKS).collect();
    let own = if requests.1 == 1 {
        None
    } else {
        let attributes = [
            KeyValue::new(command.0, command.1),
            KeyValue::new(requests.0, i64::try_from(requests.1).unwrap_or(i64::MAX)),
        ];
        root(name, attributes, &callers)
    };
    let first = || Some(Context::new().with_remote_span_context(callers.first()?.clone()));
    let context = own.or_else(first).unwrap_or_default();
    async move {
        let reply = sending.with_context(context.clone()).await;
        // The span of a caller, which is known by its ids only, takes no part in this.
        let span = context.span();
        if let Err(error) = &reply {
            span.set_attribute(KeyValue::new("error.type", error.error_type()));
            span.set_status(Status::error(error.to_string()));
        }
        span.end();
        reply
    }
}

/// A span without a parent and with links to these; `None` without a tracer provider.
fn root(name: &'static str, attributes: [KeyValue; 2], links: &[SpanContext]) -> Option<Context> {
    let scope = InstrumentationScope::builder("mongolock").with_version(env!("CARGO_PKG_VERSION"));
    let tracer = global::tracer_with_scope(scope.build());
    let link = |span: &SpanContext| Link::new(span.clone(), Vec::new(), 0);
    let builder = tracer
        .span_builder(name)
        .with_attributes(attributes)
        .with_links(links.iter().map(link).collect());
    let span = builder.start_with_context(&tracer, &Context::new());
    span.span_context()
        .is_valid()
        .then(|| Context::new().with_span(span))
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceFlags, TraceId, TraceState};

    use super::*;

    fn span(number: u8) -> SpanContext {
        let (trace, id) = (TraceId::from(u128::from(number)), SpanId::from(u64::from(number)));
        SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE)
    }

    /// The span in which this number of requests is sent, for these callers.
    async fn sent_in(requests: usize, callers: &[SpanContext]) -> SpanContext {
        let callers = callers.iter().cloned().map(Caller).collect();
        let sending = async { Ok(Caller::present().0) };
        let sent = linked("n", ("command", "look"), ("requests", requests), callers, sending);
        sent.await.unwrap()
    }

    /// No test of the library sets a global tracer provider.
    #[tokio::test]
    async fn a_command_is_below_its_first_caller_if_it_has_no_span_of_its_own() {
        let (none, one, two) = (SpanContext::empty_context(), span(1), span(2));
        assert_eq!(sent_in(1, std::slice::from_ref(&one)).await, one);
        assert_eq!(sent_in(3, &[none.clone(), two.clone(), one]).await, two);
        assert_eq!(sent_in(2, &[none.clone(), none.clone()]).await, none);
    }

    #[tokio::test]
    async fn only_commands_that_callers_wait_for_have_spans() {
        let is_recorded = |kind| of_kind(kind, async { !Context::is_current_telemetry_suppressed() });
        assert!(is_recorded(CommandKind::Acquire).await && is_recorded(CommandKind::Look).await);
        assert!(!is_recorded(CommandKind::Renew).await && !is_recorded(CommandKind::Hello).await);
        // The suppression of an outer task stays.
        assert!(!suppressed(is_recorded(CommandKind::Acquire)).await);
    }
}
