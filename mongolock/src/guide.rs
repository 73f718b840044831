//! The guide: what to know before a program depends on a lock. Each page begins with the steps that you must take, and
//! ends with how it works.
//!
//! | page | question |
//! |---|---|
//! | [choosing an API](choosing_an_api) | Which call fits my task: a lock, several locks, a leader, at most N calls? |
//! | [leases] | Which protection and which times does my work need, and what does a lock guarantee? |
//! | [fencing] | How does data refuse the write of a stale holder? |
//! | [jobs] | How does a scheduled job run once, on several instances? |
//! | [web services](web_service) | How does a service respond when a lock is busy? How is a document locked over many requests? |
//! | [testing] | How are programs with locks tested? |
//! | [production] | What do I set up before production, with which rights, and how does a process end? |
//! | [observing] | Which metrics, spans and events are there, and how do I get them? |
//! | [troubleshooting] | When something is wrong: what does this alert, error or symptom mean, and what helps? |
//! | [migration] | What are the names in other libraries? How do .NET programs share the locks? |
//!
//! The [example programs] show the same in working programs. Each begins with a text that says what it shows.
//!
//! [example programs]: https://github.com/mongolock/mongolock/tree/main/examples

// The pages link to items and to each other by their names in this module. So the links lead to the same version, and
// rustdoc rejects broken ones.
#[cfg(doc)]
use crate::*;

#[doc = include_str!("guide/choosing_an_api.md")]
pub mod choosing_an_api {}

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/jobs.md")]
pub mod jobs {}

#[doc = include_str!("guide/web_service.md")]
pub mod web_service {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/observing.md")]
pub mod observing {}

#[doc = include_str!("guide/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}
