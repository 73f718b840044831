//! The suites on real servers, in one program: they wait more than they compute, and so they wait at the same time.

mod attribute_messages;
mod behaviour;
mod faults;
#[cfg(feature = "metrics")]
mod metrics;
mod support_selftest;
