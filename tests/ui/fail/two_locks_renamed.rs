use mongolock::LockError;
use mongolock::distributed_lock as exclusive;

#[exclusive(name = "first")]
#[exclusive(name = "second")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

struct Service;

impl Service {
    #[exclusive(name = "first")]
    #[tracing::instrument(skip(self))]
    #[cfg_attr(all(), exclusive(name = "second"))]
    async fn job(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
