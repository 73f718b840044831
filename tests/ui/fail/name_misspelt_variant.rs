use mongolock::{LockError, LockName, LockProvider, distributed_lock};

#[derive(LockName)]
enum Lock<'a> {
    #[lock("report:<tenant>:<id>")]
    Report { tenant: &'a str, id: u64 },
}

#[distributed_lock(name = Lock::Reprot { tenant, id })]
async fn rebuild(tenant: &str, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = Lock::Report { tenant })]
async fn no_id(tenant: &str) -> Result<(), LockError> {
    Ok(())
}

async fn by_hand(provider: &LockProvider) -> Result<(), LockError> {
    provider.lock(Lock::Repotr { tenant: "a", id: 1 }).acquire().await?.release().await
}

fn main() {}
