//! The guide: what to know before a program depends on a lock.
//!
//! | page | question |
//! |---|---|
//! | [leases] | What does a lock promise, and what not? Does mine guard efficiency or correctness? |
//! | [durations] | Which expiry, which timeouts? |
//! | [fencing] | How does data refuse a holder who came too late? |
//! | [jobs] | How does a scheduled job run once, on several instances? |
//! | [testing] | How are programs with locks tested? |
//! | [deployments] | Replica set, standalone, sharded: what works where? |
//! | [rights] | What must the database user be allowed to do? |
//! | [operating] | Who has which lock, and what if one is stuck? |
//! | [observing] | What does it report, and what should raise an alarm? |
//! | [migration] | How does it go together with DistributedLock.MongoDB? |
//!
//! The example programs show the same things at work; each begins with a text that says what it shows.

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/durations.md")]
pub mod durations {}

#[doc = include_str!("guide/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/jobs.md")]
pub mod jobs {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deployments.md")]
pub mod deployments {}

#[doc = include_str!("guide/rights.md")]
pub mod rights {}

#[doc = include_str!("guide/operating.md")]
pub mod operating {}

#[doc = include_str!("guide/observing.md")]
pub mod observing {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}
