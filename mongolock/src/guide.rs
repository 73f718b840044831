//! The guide: what to know before a program depends on a lock. Begin with the first two pages.
//!
//! | page | question |
//! |---|---|
//! | [leases] | Which protection and which times does my work need, and what does a lock guarantee? |
//! | [choosing an API](choosing_an_api) | Attribute, `run`, guard or `try_acquire`? Which protection for the data? |
//! | [production] | Before production: what to set up, with which rights, and how does a process end? |
//! | [troubleshooting] | When something is wrong: what does this alert, error or symptom mean, and what helps? |
//! | [fencing] | How does data reject the write of a stale holder? |
//! | [deadlocks] | How are several locks held at once without a deadlock? What is reentrant? |
//! | [permits] | How do at most N callers work at the same time? |
//! | [jobs] | How does a scheduled job run once, on several instances? |
//! | [web service](web_service) | How does a web service answer when a lock is busy, and how does it end? |
//! | [editing sessions](editing_sessions) | How is a document locked over many requests of a browser, or over several commands? |
//! | [testing] | How are programs with locks tested? |
//! | [observing] | Which metrics, spans and events are there, and how do I get them? |
//! | [waiting] | In which order do calls get a lock, also between processes, and what does waiting cost? |
//! | [migration] | How do mongolock and DistributedLock.MongoDB share their locks? |
//!
//! The [example programs] show the same things at work. Each begins with a text that says what it shows.
//!
//! [example programs]: https://github.com/mongolock/mongolock/tree/main/examples

// The pages link to items and to each other by their names in this module. So they lead to the version that is read, and rustdoc
// refuses those that lead nowhere.
#[cfg(doc)]
use crate::*;

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/choosing_an_api.md")]
pub mod choosing_an_api {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/deadlocks.md")]
pub mod deadlocks {}

#[doc = include_str!("guide/permits.md")]
pub mod permits {}

#[doc = include_str!("guide/jobs.md")]
pub mod jobs {}

#[doc = include_str!("guide/web_service.md")]
pub mod web_service {}

#[doc = include_str!("guide/editing_sessions.md")]
pub mod editing_sessions {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/observing.md")]
pub mod observing {}

#[doc = include_str!("guide/waiting.md")]
pub mod waiting {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}
