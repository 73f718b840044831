use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
#[lock("report:<tenant>")]
struct Report {
    tenant: String,
}

#[distributed_lock(name = Report { tenant })]
async fn rebuild(tenant: String) -> Result<usize, LockError> {
    Ok(tenant.len())
}

fn main() {}
