//! The form of the function, and other attributes on it.

#![allow(unused)]

use std::future::Future;
use std::pin::Pin;

use axum::extract::Path;
use mongolock::distributed_lock as exclusive;
use mongolock::{LockContext, LockError, distributed_lock};

// Functions that are not `async`.
#[distributed_lock(name = "job")]
fn not_async() -> Result<(), LockError> { Ok(()) }

#[tokio::main(flavor = "current_thread")]
#[distributed_lock(name = "job")]
async fn below_tokio_main() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
fn returns_a_future() -> impl Future<Output = Result<(), LockError>> {
    async { Ok(()) }
}

// The early return would run without the lock, and the name would be made of the other `id`.
#[distributed_lock(name = "job:<id>")]
fn boxed_after_an_early_return(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
    if id == 0 {
        return Box::pin(async move { Ok(0) });
    }
    let id = id + 1;
    Box::pin(async move { Ok(id) })
}

type Boxed = Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

// The place is where the caller of the macro has written the type.
macro_rules! job {
    ($name:ident, $returned:ty) => {
        #[distributed_lock(name = "job")]
        fn $name() -> $returned {
            Box::pin(async move { Ok(1) })
        }
    };
}

job!(made_by_a_macro, Boxed);

// Items that are no functions.
struct Service;

#[distributed_lock(name = "job")]
impl Service {
    async fn job(&self) -> Result<(), LockError> { Ok(()) }
}

#[distributed_lock(name = "job")]
#[derive(Debug)]
pub struct Locked;

// A function without a body.
pub trait Declared {
    #[distributed_lock(name = "job")]
    async fn without_a_body(&self) -> Result<(), LockError>;
}

// Two locks, also under another name of the attribute.
#[distributed_lock(name = "first")]
#[distributed_lock(name = "second")]
async fn two_locks() -> Result<(), LockError> { Ok(()) }

impl Service {
    #[exclusive(name = "first")]
    #[tracing::instrument(skip(self))]
    #[cfg_attr(all(), exclusive(name = "second"))]
    async fn two_locks_around_a_span(&self) -> Result<(), LockError> { Ok(()) }
}

// Below an attribute that checks all arguments of the function, which the lock is none of.
struct AppError;

impl From<LockError> for AppError {
    fn from(_: LockError) -> Self {
        Self
    }
}

impl axum::response::IntoResponse for AppError {
    fn into_response(self) -> axum::response::Response {
        axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

#[axum::debug_handler]
#[distributed_lock(name = "report:<id>")]
async fn below_debug_handler(Path(id): Path<u64>, #[lock] lock: LockContext) -> Result<String, AppError> {
    Ok(format!("{id}: {}", lock.name()))
}

fn main() {}
