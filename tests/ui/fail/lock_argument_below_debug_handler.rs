use axum::extract::Path;
use mongolock::{LockContext, LockError, distributed_lock};

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
async fn rebuild(Path(id): Path<u64>, #[lock] lock: LockContext) -> Result<String, AppError> {
    Ok(format!("{id}: {}", lock.name()))
}

fn main() {}
