#![doc = include_str!("../README.md")]
//!
//! # More
//!
//! The [`guide`] has a page for each topic, from the promises of a lease to production and troubleshooting.
//!
//! # What can be observed
//!
//! Spans and events of [`tracing`], all with the target `mongolock`; names and fields are stable. Nothing is reported at
//! `info` or above while all goes well. [`guide::observing`] lists them, and says which ones to alarm on.

// The documentation says which items need a feature: rustdoc labels each item under a `cfg` by itself. No public item is
// under one so far: the features choose TLS, bson, metrics and spans behind the same interface.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backoff;
pub mod blocking;
mod commit;
mod context;
mod deadlock;
mod driver_span;
mod duration;
mod engine;
mod error;
mod fenced;
mod few;
mod guard;
pub mod guide;
mod handle;
mod index_task;
mod lease;
mod line;
mod lock;
mod lock_id;
mod lock_set;
mod meter;
mod moment;
mod name;
mod notifier;
mod once;
mod one_line;
mod opaque;
mod options;
mod output;
mod permit;
mod permit_id;
mod probe;
mod provider;
mod queue;
mod run;
mod semaphore;
#[cfg(test)]
mod simulation;
mod store;
mod sync;
mod task;
mod timing;
mod token;
mod trace;

#[doc(hidden)]
pub mod attribute;

pub use admin::{
    ForceRelease, LockAdmin, LockEvent, LockEventKind, LockEvents, LockInfoStream, ReleaseOwner,
};
pub use context::LockContext;
pub use error::{Busy, LockError, LossReason};
pub use fenced::{Fenced, FencedCollection, FencedExt, FencedWrite};
pub use guard::{Detach, LockGuard};
pub use handle::LeaseHandle;
pub use lock::DistributedLock;
pub use lock_set::LockSet;
#[doc(inline)]
pub use mongolock_macros::{LockName, distributed_lock};
pub use name::{IntoLockName, LockName, escape};
pub use output::{LockOutput, Skipped};
pub use permit::Permit;
pub use provider::{Health, HeldInfo, LockProvider, LockProviderBuilder, WakeUp};
pub use semaphore::Semaphore;
pub use store::{ClientObservation, IndexState, LockFilter, LockInfo, LockState, WaiterInfo, WaitersState};
pub use token::FencingToken;

/// What the fuzz targets call.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Reads a document as every kind of reply that it can be.
    pub fn read_document(document: &mongodb::bson::Document) {
        crate::store::read_document(document);
    }

    /// The text of a handle with this document.
    #[must_use]
    pub fn handle_of(document: &str) -> String {
        crate::handle::encoded(document)
    }

    /// Reads a text as a handle.
    ///
    /// # Panics
    ///
    /// If what was read is not the handle of that text, or an error repeats the text.
    pub fn read_handle(text: &str) {
        match text.parse::<crate::LeaseHandle>() {
            Ok(handle) => {
                assert_eq!(handle.text(), text.trim());
                let again: crate::LeaseHandle = handle.text().parse().expect("it was read before");
                assert_eq!((again.lock_id(), again.ids()), (handle.lock_id(), handle.ids()));
                assert!(!format!("{handle:?}").contains(text));
                // The times can be added to a date and to a moment.
                let _ = std::time::Instant::now() + handle.ttl() + handle.min_hold();
            }
            // Only what looks like a handle is one's secret: any other text can be a part of the message itself.
            Err(error) if text.starts_with("mlh1.") && text.len() > 24 => {
                assert!(!error.to_string().contains(text))
            }
            Err(_) => {}
        }
    }
}
