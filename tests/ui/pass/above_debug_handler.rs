//! Above `#[axum::debug_handler]`, which accepts only what a request can give, the lock as an argument is no argument of the
//! handler.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

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

#[distributed_lock(name = "report:<id>")]
#[axum::debug_handler]
async fn rebuild(Path(id): Path<u64>, #[lock] lock: LockContext) -> Result<String, AppError> {
    tokio::task::yield_now().await;
    Ok(format!("{id}: {}", lock.name()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    LockProvider::in_memory().set_global().unwrap();
    let _: Router = Router::new().route("/reports/{id}", post(rebuild));
    let Ok(text) = rebuild(Path(7)).await else {
        panic!("the lock is free")
    };
    assert_eq!(text, "7: report:7");
}
