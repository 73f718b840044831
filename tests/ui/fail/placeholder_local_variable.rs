use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<tenant>")]
async fn job(id: u64) -> Result<String, LockError> {
    if id == 0 {
        return Ok(String::new());
    }
    let mut tenant = id.to_string();
    tenant.push('!');
    Ok(tenant)
}

fn main() {}
