use mongolock::{LockError, distributed_lock};

struct Repository<T, const N: u8>(T);

impl<T, const N: u8> Repository<T, N> {
    // No trait with an associated constant.
    #[distributed_lock(name = "<T::ENTITY_KIND>:<id>")]
    async fn save(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }

    // No constant of this name.
    #[distributed_lock(name = "<Self::ENTITY_KIND>:<id>")]
    async fn load(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

// This constant cannot be displayed.
const PAIR: (u8, u8) = (1, 2);

#[distributed_lock(name = "<PAIR>:<id>")]
async fn pair(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
