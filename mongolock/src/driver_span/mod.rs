//! The parents of the spans of OpenTelemetry that the driver makes for its commands. Without the feature `opentelemetry` all of
//! this is empty and costs nothing.
//!
//! The driver's span is a child of the one in the current context of OpenTelemetry, which belongs to the thread, as the current
//! span of `tracing` does. So a task of a caller takes that context along ([`of_caller`]), background work runs in a context in
//! which no span is recorded ([`suppressed`], [`of_kind`]), and a command for several calls has a span of its own, with links to
//! those of the callers ([`linked`]).

#[cfg(feature = "opentelemetry")]
mod recorded;
#[cfg(not(feature = "opentelemetry"))]
mod silent;

#[cfg(feature = "opentelemetry")]
pub(crate) use recorded::{Caller, linked, of_caller, of_kind, suppressed};
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use silent::{Caller, linked, of_caller, of_kind, suppressed};
