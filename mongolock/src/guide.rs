//! The guide: what to know before a program depends on a lock.
//!
//! | page | question |
//! |---|---|
//! | [leases] | What does a lock guarantee, and what not? Is it for efficiency or for correctness? |
//! | [choosing an API](choosing_an_api) | Attribute, `run`, guard or `try_acquire`? Which protection for the data? |
//! | [durations] | Which expiry, which timeouts? |
//! | [fencing] | How does data reject the write of a stale holder? |
//! | [deadlocks] | How are several locks held at once without a deadlock? What is reentrant? |
//! | [permits] | How do at most N callers work at the same time? |
//! | [editing sessions](editing_sessions) | How is a document locked over many requests of a browser, or over several commands? |
//! | [web service](web_service) | How does a web service answer when a lock is busy, and how does it end? |
//! | [jobs] | How does a scheduled job run once, on several instances? |
//! | [order] | In which order do calls get a lock, also between processes? |
//! | [testing] | How are programs with locks tested? |
//! | [deployments] | Replica set, standalone, sharded cluster: what works where? |
//! | [rights] | Which privileges does the database user need? |
//! | [production] | What to set up before going live, with Kubernetes as the example? |
//! | [observing] | Which spans and events are there, and which deserve an alarm? |
//! | [operating] | Which process holds which lock, and how is a stuck one released? |
//! | [troubleshooting] | What does this alert, error or symptom mean, and what helps? |
//! | [migration] | How do mongolock and DistributedLock.MongoDB share their locks? |
//!
//! The example programs show the same things at work. Each begins with a text that says what it shows.

// The pages link to items and to each other by their names in this module. So they lead to the version that is read, and rustdoc
// refuses those that lead nowhere.
#[cfg(doc)]
use crate::*;

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/choosing_an_api.md")]
pub mod choosing_an_api {}

#[doc = include_str!("guide/durations.md")]
pub mod durations {}

#[doc = include_str!("guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/deadlocks.md")]
pub mod deadlocks {}

#[doc = include_str!("guide/permits.md")]
pub mod permits {}

#[doc = include_str!("guide/editing_sessions.md")]
pub mod editing_sessions {}

#[doc = include_str!("guide/web_service.md")]
pub mod web_service {}

#[doc = include_str!("guide/jobs.md")]
pub mod jobs {}

#[doc = include_str!("guide/order.md")]
pub mod order {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deployments.md")]
pub mod deployments {}

#[doc = include_str!("guide/rights.md")]
pub mod rights {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/operating.md")]
pub mod operating {}

#[doc = include_str!("guide/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("guide/observing.md")]
pub mod observing {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}
