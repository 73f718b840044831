//! The argument `#[lock] lock: LockContext`, which the attribute fills in and which callers do not pass.

#![deny(warnings)]

use async_trait::async_trait;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use mongolock::{LockContext, LockError, LockName, LockProvider, distributed_lock};

use super::send;

#[distributed_lock(name = "b:<id>")]
async fn first(#[lock] context: LockContext, id: u64) -> Result<String, LockError> {
    let id = id + 1;
    Ok(format!("{} {id}", context.name()))
}

#[distributed_lock(name = "c")]
async fn in_another_task(#[lock] lock: mongolock::LockContext) -> Result<bool, LockError> {
    let task = tokio::spawn(lock.clone().scope(async { LockContext::current().is_some() }));
    lock.ensure_held()?;
    task.await.map_err(|_| LockError::NoProvider)
}

#[distributed_lock(name = "d:<id>")]
async fn between<T: Fn(u64) -> u64>(id: u64, #[lock] _: LockContext, map: T) -> Result<u64, LockError>
where
    T: Send,
{
    #![allow(clippy::unused_async)]
    Ok(map(id))
}

#[distributed_lock(name = "attributes")]
async fn with_attributes(
    #[allow(unused_variables)]
    #[lock]
    lock: LockContext,
) -> Result<(), LockError> {
    Ok(())
}

/// A function with the name of an argument.
fn lock(provider: &LockProvider) -> LockProvider {
    provider.clone()
}

#[distributed_lock(name = "function", provider = lock(&provider))]
async fn beside_a_function(provider: LockProvider, #[lock] lock: LockContext) -> Result<String, LockError> {
    Ok(lock.name().to_owned())
}

/// The provider and the name have variables of their own with the name of the argument.
#[distributed_lock(name = Fixed { text: { let lock = "own"; lock } }, provider = { let lock = LockProvider::in_memory(); lock })]
async fn beside_variables(#[lock] lock: LockContext) -> Result<String, LockError> {
    Ok(lock.name().to_owned())
}

#[derive(LockName)]
#[lock("fixed:<text>")]
struct Fixed<'a> {
    text: &'a str,
}

struct AppError(LockError);

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0.to_string()).into_response()
    }
}

/// That attribute accepts only what a request can give; the lock is no argument of the handler that it sees.
#[distributed_lock(name = "handler:<id>")]
#[axum::debug_handler]
async fn above_debug_handler(Path(id): Path<u64>, #[lock] lock: LockContext) -> Result<String, AppError> {
    tokio::task::yield_now().await;
    Ok(format!("{} {id}", lock.name()))
}

struct Service {
    region: String,
}

impl Service {
    #[distributed_lock(name = "f:<self.region>")]
    async fn borrowed<'a>(
        &'a self,
        text: &'a str,
        #[lock] lock: LockContext,
    ) -> Result<(&'a str, String), LockError> {
        Ok((text, lock.name().to_owned()))
    }

    #[tracing::instrument(skip(self, lock))]
    #[distributed_lock(name = "g:<self.region>")]
    async fn below_a_span(&mut self, id: u64, #[lock] lock: LockContext) -> Result<String, LockError> {
        self.region.push('!');
        Ok(lock.name().to_owned())
    }

    #[distributed_lock(name = "h:<self.region>")]
    #[tracing::instrument(skip(self))]
    async fn above_a_span(self, id: u64, #[lock] lock: LockContext) -> Result<String, LockError> {
        Ok(lock.name().to_owned())
    }
}

#[async_trait]
trait Boxed {
    async fn run(&self, id: u64) -> Result<String, LockError>;

    #[distributed_lock(name = "default")]
    async fn with_default(&self, #[lock] lock: LockContext) -> Result<String, LockError> {
        Ok(lock.name().to_owned())
    }
}

#[async_trait]
impl Boxed for Service {
    #[distributed_lock(name = "j:<self.region>:<id>")]
    async fn run(&self, id: u64, #[lock] lock: LockContext) -> Result<String, LockError> {
        if id == 0 {
            return Ok("nothing".to_owned());
        }
        Ok(format!("{} {}", lock.name(), self.region))
    }
}

macro_rules! typed {
    ($name:ident, $lock:ident, $ty:ty, $returned:ty, #[$attribute:meta]) => {
        #[distributed_lock(name = "typed")]
        async fn $name(#[$attribute] $lock: ($ty), id: u64) -> $returned {
            Ok(format!("{} {id}", $lock.name()))
        }
    };
}

typed!(of_a_macro, held, (mongolock::LockContext), Result<String, LockError>, #[lock]);

#[tokio::test]
async fn the_lock_is_an_argument() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            assert_eq!(first(1).await?, "b:1 2");
            assert!(in_another_task().await?);
            with_attributes().await?;
            let provider = LockProvider::in_memory();
            assert_eq!(beside_a_function(provider).await?, "function");
            assert_eq!(between(1, |id| id + 1).await?, 2);
            let mut service = Service {
                region: "eu".to_owned(),
            };
            assert_eq!(service.borrowed("x").await?, ("x", "f:eu".to_owned()));
            assert_eq!(service.below_a_span(1).await?, "g:eu");
            assert_eq!(send(Boxed::run(&service, 1)).await?, "j:eu!:1 eu!");
            assert_eq!(Boxed::run(&service, 0).await?, "nothing");
            assert_eq!(service.with_default().await?, "default");
            assert_eq!(service.above_a_span(1).await?, "h:eu!");
            assert_eq!(beside_variables().await?, "fixed:own");
            assert_eq!(of_a_macro(1).await?, "typed 1");
            let _: axum::Router = axum::Router::new().route("/{id}", post(above_debug_handler));
            let answer = above_debug_handler(Path(7)).await.map_err(|error| error.0)?;
            assert_eq!(answer, "handler:7 7");
            Ok(())
        })
        .await
}
