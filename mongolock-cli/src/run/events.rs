//! The events of the library that say why its requests fail.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A renewal has failed; it is repeated.
pub(super) const RENEWAL_FAILED: &str = "mongolock.renewal_failed";
/// A request for a mark, or for a detachment, has failed; it is repeated.
pub(super) const MARK_FAILED: &str = "mark";
pub(super) const DETACH_FAILED: &str = "detachment";
/// A release was refused for good, or given up.
pub(super) const RELEASE_FAILED: &str = "mongolock.release_failed";

/// An event that says in its field `request` which request is repeated.
const RETRYING: &str = "mongolock.retrying";

/// The events whose errors are noted.
const NOTED: [&str; 3] = [RENEWAL_FAILED, RETRYING, RELEASE_FAILED];

/// The newest error of each event of this process.
#[derive(Clone, Default)]
pub(super) struct Failures(Arc<Mutex<HashMap<&'static str, String>>>);

impl Failures {
    /// Listens to the events of this process from now on.
    pub(super) fn listen() -> Self {
        let failures = Self::default();
        // It fails if this process has a subscriber already; it sets one only once.
        let _ = tracing::subscriber::set_global_default(failures.clone());
        failures
    }

    /// The error of the newest event of this name, if there was one since the last call.
    pub(super) fn take(&self, event: &str) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(event)
    }

    pub(super) fn note(&self, event: &'static str, error: String) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(event, error);
    }
}

impl Subscriber for Failures {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && NOTED.contains(&metadata.name())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let name = match (event.metadata().name(), said.request.as_str()) {
            (RETRYING, MARK_FAILED) => MARK_FAILED,
            (RETRYING, DETACH_FAILED) => DETACH_FAILED,
            (name, _) => name,
        };
        if let Some(error) = said.error {
            self.note(name, error);
        }
    }

    // No span is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Said {
    error: Option<String>,
    request: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "error" => self.error = Some(format!("{value:?}")),
            "request" => self.request = format!("{value:?}"),
            _ => {}
        }
    }
}
