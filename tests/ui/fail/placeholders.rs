//! Placeholders that the macro refuses.

#![allow(unused)]

use async_trait::async_trait;
use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<>")]
async fn empty(id: u64) -> Result<(), LockError> { Ok(()) }

// Expressions that are neither an argument, nor a field or an argument-less method of one.
#[distributed_lock(name = "job:<id + 1>")]
async fn sum(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<id:03>")]
async fn padded(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:< id >")]
async fn spaced(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<ids[0]>")]
async fn indexed(ids: Vec<u64>) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<id.pow(2)>")]
async fn called(id: u64) -> Result<(), LockError> { Ok(()) }

// Arguments that the function does not have.
#[distributed_lock(name = "job:<idd>")]
async fn misspelt(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "order:<ID>")]
async fn upper_case(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<tenant>")]
async fn unknown(id: u64, region: &str) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<id>")]
async fn nothing() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<self.id>")]
async fn no_self(id: u64) -> Result<(), LockError> { Ok(()) }

struct Service {
    tenant: String,
}

impl Service {
    #[distributed_lock(name = "job:<tenant>")]
    async fn field_without_self(&self) -> Result<(), LockError> { Ok(()) }
}

// `#[async_trait]` has taken the argument apart in the body.
#[async_trait]
pub trait Runner {
    async fn destructured(&self, pair: (u64, u64)) -> Result<(), LockError>;
}

#[async_trait]
impl Runner for Service {
    #[distributed_lock(name = "job:<left>")]
    async fn destructured(&self, (left, right): (u64, u64)) -> Result<(), LockError> { Ok(()) }
}

// A variable of the body, which has no value before the lock is acquired.
#[distributed_lock(name = "job:<tenant>")]
async fn local_variable(id: u64) -> Result<String, LockError> {
    if id == 0 {
        return Ok(String::new());
    }
    let mut tenant = id.to_string();
    tenant.push('!');
    Ok(tenant)
}

// What attributes of tests with cases make of a function with the argument `id`.
#[distributed_lock(name = "job:<id>")]
async fn case_with_a_variable() -> Result<(), LockError> {
    let id = 1;
    misspelt(id).await
}

#[distributed_lock(name = "job:<id>")]
async fn case_with_a_value() -> Result<(), LockError> {
    misspelt(1).await
}

// Types instead of their associated constants.
trait Kind {
    const KIND: &'static str;
}

#[distributed_lock(name = "report:<T>")]
async fn type_parameter<T: Kind>(kind: T) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "report:<Report.id>")]
async fn field_of_a_type<Report: Kind>(report: Report) -> Result<(), LockError> { Ok(()) }

// Methods that take the value away from the function.
struct Job {
    id: u64,
}

impl Job {
    fn into_id(self) -> u64 {
        self.id
    }
}

#[distributed_lock(name = "job:<job.into_id()>")]
async fn consumes(job: Job) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<jobs.0.into_id()>")]
async fn consumes_a_field(jobs: (Job, Job)) -> Result<(), LockError> { Ok(()) }

fn main() {}
