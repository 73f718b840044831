//! Tests that run on both stores: a lock behaves in the same way in memory and on MongoDB.

pub(crate) mod detached;
mod exclusion;
mod holder;
mod holding;
mod names_and_options;
mod notes;
mod once;
mod order;
mod takeover;
mod waiting;

use std::time::Duration;

use mongolock::{DistributedLock, LockProvider};

/// Makes two tests of each function: one with a provider in memory, one with a provider on MongoDB.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $name() { super::$name($crate::fixture::Fixture::memory()).await; })*
        }
        mod on_mongodb {
            $(#[tokio::test] async fn $name() { super::$name($crate::fixture::Fixture::mongodb().await).await; })*
        }
    };
}

pub(crate) use conformance;

/// A lock whose lease of 200 ms is not renewed, as that of a crashed or paused process.
fn unrenewed(provider: &LockProvider, name: &str) -> DistributedLock {
    provider
        .lock(name)
        .expiry(Duration::from_millis(200))
        .max_hold(Duration::ZERO)
}
