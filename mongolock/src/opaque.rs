//! Boundaries for the compiler: values whose types it does not look into when it proves that something that
//! contains them is `Send` or `Sync`.
//!
//! A future that acquires a lock contains the provider, its core and the driver, whose types are nested very deeply.
//! Without the boundaries that proof, repeated for every task that acquires a lock, exceeds the compiler's recursion
//! limit (128) if the caller is nested as well.

use std::ops::Deref;
use std::sync::Arc;

/// A shared value behind a boundary. It is made of the value in a `Box`.
pub(crate) type Opaque<T> = Arc<dyn Deref<Target = T> + Send + Sync>;
