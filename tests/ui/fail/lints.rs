//! Lints: of a body, and of locks that are not used.

#![deny(unused)]

use mongolock::{LockError, LockProvider, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn unused(id: u64, unused: u64, mut fixed: u64) -> Result<u64, LockError> {
    let mut same = fixed;
    Ok(same)
}

#[distributed_lock(name = "job")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

pub async fn forgotten(provider: &LockProvider) -> Result<(), LockError> {
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
