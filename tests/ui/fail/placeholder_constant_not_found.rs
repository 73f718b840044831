use mongolock::{LockError, distributed_lock};

struct Repository<T, const N: u8>(T);

impl<T, const N: u8> Repository<T, N> {
    // The const generic is `N`.
    #[distributed_lock(name = "<M>:<id>")]
    async fn remove(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

// There is no `Self` here.
#[distributed_lock(name = "<Self::ENTITY_KIND>:<id>")]
async fn free(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
