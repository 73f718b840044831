//! Time that can be compared between processes.

pub(crate) use mongolock_tests::monotonic_now as now;
