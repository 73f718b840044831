#![deny(unused_must_use)]

use mongolock::{LockError, LockProvider, distributed_lock};

#[distributed_lock(name = "job")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

async fn forgotten(provider: &LockProvider) -> Result<(), LockError> {
    job();
    provider.lock("job");
    provider.lock("job").acquire();
    provider.lock("job").acquire().await?;
    provider.lock("job").try_acquire();
    provider.lock("job").try_acquire().await;
    provider.lock("job").run(async |_| Ok::<_, LockError>(()));
    provider.to_builder();
    Ok(())
}

fn main() {}
