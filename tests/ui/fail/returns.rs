//! Return types that cannot carry the error of the lock, or a skipped call.

#![allow(unused)]

use std::collections::BTreeMap;

use async_trait::async_trait;
use mongolock::{LockError, distributed_lock};

// No value, or none that is ever returned.
#[distributed_lock(name = "job")]
async fn nothing() {}

#[distributed_lock(name = "job")]
async fn unit() -> () {}

#[distributed_lock(name = "job")]
async fn never() -> ! {
    loop {}
}

// The place is where the caller of the macro has written the type.
macro_rules! job {
    ($name:ident, $returned:ty) => {
        #[distributed_lock(name = "job")]
        async fn $name() -> $returned {
            todo!()
        }
    };
}

job!(unit_of_a_macro, ());
job!(option_of_a_macro, Option<u64>);

// Values without an error, and errors that cannot be made of a `LockError`.
struct JobError;

#[distributed_lock(name = "job:<id>")]
async fn option(id: u64) -> Option<u64> {
    Some(id)
}

#[distributed_lock(name = "job:<id>")]
async fn io_error(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

#[distributed_lock(name = "job:<id>")]
async fn other_error(id: u64) -> Result<u64, JobError> {
    if id == 0 { Err(JobError) } else { Ok(id) }
}

// The same in a method of `#[async_trait]`.
struct Local;

#[async_trait]
pub trait Service {
    async fn nothing_boxed(&self);
    async fn option_boxed(&self) -> Option<u64>;
}

#[async_trait]
impl Service for Local {
    #[distributed_lock(name = "job")]
    async fn nothing_boxed(&self) {
        println!("done");
    }

    #[distributed_lock(name = "job")]
    async fn option_boxed(&self) -> Option<u64> {
        None
    }
}

// Types without the value of a skipped call.
#[distributed_lock(name = "job:<id>", on_busy = "skip")]
async fn nothing_to_skip(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job:<id>", on_busy = "skip")]
async fn skipped_without_an_error(id: u64) -> Vec<u64> {
    vec![id]
}

// Work that may succeed only once: one error for each type, although the type needs both values.
#[distributed_lock(name = "job", once = true)]
async fn once_without_an_error() -> Option<u64> {
    Some(1)
}

#[distributed_lock(name = "job", once_per = "1d")]
async fn once_per_without_an_error() -> u64 {
    1
}

#[distributed_lock(name = "job", once_per = "1d", on_busy = "fail")]
async fn once_per_with_another_error() -> Result<BTreeMap<u64, String>, std::io::Error> {
    Ok(BTreeMap::new())
}

#[distributed_lock(name = "job", once_at = tick)]
async fn a_number_is_no_tick(tick: u64) -> Result<(), LockError> { Ok(()) }

fn main() {}
