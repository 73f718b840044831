//! Names, providers and tokens that the macro accepts, and the compiler refuses.

#![allow(unused)]

use std::path::PathBuf;
use std::sync::LazyLock;

use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, LockError, LockProvider, Permit, distributed_lock};

// Names that are not declared.
const NAME: &str = "job";

struct Plain {
    id: u64,
}

#[distributed_lock(name = NAME)]
async fn constant() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = Plain { id })]
async fn not_derived(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = id)]
async fn text(id: &str) -> Result<(), LockError> { Ok(()) }

async fn not_derived_by_hand(provider: &LockProvider) -> Result<(), LockError> {
    provider.lock(Some(1)).acquire().await?.release().await
}

// Placeholders that name nothing.
struct Order {
    number: u64,
}

#[distributed_lock(name = "job:<order.numbr>")]
async fn no_such_field(order: Order) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<order.ident()>")]
async fn no_such_method(order: Order) -> Result<(), LockError> { Ok(()) }

// Placeholders that cannot be displayed.
#[distributed_lock(name = "job:<id>:<path>")]
async fn not_display(id: Option<u64>, path: PathBuf) -> Result<(), LockError> { Ok(()) }

const PAIR: (u8, u8) = (1, 2);

#[distributed_lock(name = "<PAIR>:<id>")]
async fn constant_not_display(id: u64) -> Result<(), LockError> { Ok(()) }

// Constants that do not exist.
struct Repository<T, const N: u8>(T);

impl<T, const N: u8> Repository<T, N> {
    // No trait with an associated constant.
    #[distributed_lock(name = "<T::ENTITY_KIND>:<id>")]
    async fn constant_of_no_trait(&self, id: u64) -> Result<(), LockError> { Ok(()) }

    // No constant of this name.
    #[distributed_lock(name = "<Self::ENTITY_KIND>:<id>")]
    async fn no_such_constant(&self, id: u64) -> Result<(), LockError> { Ok(()) }

    // The const generic is `N`.
    #[distributed_lock(name = "<M>:<id>")]
    async fn no_such_const_generic(&self, id: u64) -> Result<(), LockError> { Ok(()) }
}

#[distributed_lock(name = "<Self::ENTITY_KIND>:<id>")]
async fn no_self_type(id: u64) -> Result<(), LockError> { Ok(()) }

// Methods that consume or change what they are called on.
struct Job {
    id: u64,
}

impl Job {
    fn finish(self) -> u64 {
        self.id
    }

    fn next(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    #[distributed_lock(name = "job:<self.next()>")]
    async fn changes_itself(&mut self) -> Result<(), LockError> { Ok(()) }
}

#[distributed_lock(name = "job:<job.finish()>")]
async fn destroys(job: Job) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<jobs.0.finish()>")]
async fn destroys_a_field(jobs: (Job, Job)) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<job.next()>")]
async fn changes(mut job: Job) -> Result<(), LockError> { Ok(()) }

// Providers of another type.
static LOCKS: LazyLock<LockProvider> = LazyLock::new(LockProvider::in_memory);

#[distributed_lock(name = "job", provider = LOCKS)]
async fn lazy_lock() -> Result<(), LockError> { Ok(()) }

// This is no mistake.
#[distributed_lock(name = "job", provider = *LOCKS)]
async fn lazy_lock_dereferenced() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", provider = 3 + 4)]
async fn provider_is_a_number() -> Result<(), LockError> { Ok(()) }

// Paths that lead nowhere.
#[distributed_lock(name = "job", crate = nowhere)]
async fn crate_not_found() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<id>", on_busy = no_such_function)]
async fn busy_function_not_found(id: u64) -> Result<u64, LockError> { Ok(id) }

// A permit has no fencing token.
async fn permit_token(permit: Permit, exports: mongodb::Collection<Document>) -> Result<(), LockError> {
    exports.fenced(permit.fencing_token()).insert_one(doc! { "_id": 1 }).await?;
    Ok(())
}

fn main() {}
