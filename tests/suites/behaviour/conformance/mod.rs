//! Tests that run on both stores, and those that run for each kind of hold: a lock behaves in the same way in memory and on
//! MongoDB, and so do a set of locks, a permit and a lease that was resumed, also in programs without async code.

mod costs;
pub(crate) mod detached;
mod exclusion;
mod holder;
mod holding;
pub(crate) mod kind;
mod leader;
mod names_and_options;
mod once;
pub(crate) mod order;
pub(crate) mod subject;
mod takeover;
pub(crate) mod target;
mod waiting;

use std::time::Duration;

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

/// Makes two tests of each function that run it with these kinds, and two more `with threads` of a program without async
/// code.
macro_rules! conformance_of_kinds {
    ($($name:ident: $kinds:ident $(with $threads:ident)?),* $(,)?) => {
        mod kinds_in_memory {
            use $crate::{conformance::{kind, subject::of_each}, fixture::Fixture};
            $(#[tokio::test] async fn $name() {
                of_each(Fixture::memory(), kind::$kinds, super::$name).await;
            })*
        }
        mod kinds_on_mongodb {
            use $crate::{conformance::{kind, subject::of_each}, fixture::Fixture};
            $(#[tokio::test] async fn $name() {
                of_each(Fixture::mongodb().await, kind::$kinds, super::$name).await;
            })*
        }
        $($crate::conformance::with_threads!($name, $kinds, $($threads)?);)*
    };
}

macro_rules! with_threads {
    ($name:ident, $kinds:ident,) => {};
    ($name:ident, $kinds:ident, threads) => {
        mod $name {
            use $crate::conformance::{kind, subject};
            use $crate::fixture::Fixture;

            #[tokio::test(flavor = "multi_thread")]
            async fn threads_in_memory() {
                subject::of_each_with_threads(Fixture::memory(), kind::$kinds, super::$name).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn threads_on_mongodb() {
                subject::of_each_with_threads(Fixture::mongodb().await, kind::$kinds, super::$name).await;
            }
        }
    };
}

pub(crate) use {conformance, conformance_of_kinds, with_threads};

/// The lease of a holder that does not renew it: a test waits for its end.
pub(crate) const UNRENEWED: Duration = Duration::from_secs(2);
