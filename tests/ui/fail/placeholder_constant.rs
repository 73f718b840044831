use mongolock::{LockError, distributed_lock};

struct Repository<T, const N: u8>(T);

impl<T, const N: u8> Repository<T, N> {
    // No trait with an associated constant.
    #[distributed_lock(name = "<T::KIND>:<id>")]
    async fn save(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }

    // No constant of this name.
    #[distributed_lock(name = "<Self::KIND>:<id>")]
    async fn load(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }

    // The const generic is `N`.
    #[distributed_lock(name = "<M>:<id>")]
    async fn remove(&self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

// No `Self` here, and a constant that cannot be displayed.
#[distributed_lock(name = "<Self::KIND>:<id>")]
async fn free(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

const PAIR: (u8, u8) = (1, 2);

#[distributed_lock(name = "<PAIR>:<id>")]
async fn pair(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

// The argument is `id`.
#[distributed_lock(name = "order:<ID>")]
async fn order(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
