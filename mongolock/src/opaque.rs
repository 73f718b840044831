//! Boundaries for the compiler: values whose types it does not look into when it proves that something that
//! contains them is `Send` or `Sync`.
//!
//! A future that acquires a lock contains the provider, its core and the driver, whose types are nested very deeply.
//! Without the boundaries that proof, repeated for every task that acquires a lock, exceeds the compiler's recursion
//! limit (128) if the caller is nested as well.

use std::ops::Deref;
use std::sync::Arc;

/// A shared value behind a boundary.
pub(crate) struct Opaque<T>(Arc<dyn Get<T> + Send + Sync>);

/// A value that returns a reference to itself.
trait Get<T> {
    fn get(&self) -> &T;
}

impl<T> Get<T> for T {
    fn get(&self) -> &T {
        self
    }
}

impl<T: Send + Sync + 'static> Opaque<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).get()
    }
}
