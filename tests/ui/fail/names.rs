//! Lock names: literals, lists, and what is neither. Placeholders have a file of their own.

#![allow(unused)]

use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
enum Lock {
    #[lock("total")]
    Total,
}

// Nothing is named.
#[distributed_lock(name = "")]
async fn empty() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "  ")]
async fn blank() -> Result<(), LockError> { Ok(()) }

// Characters that a name cannot have, there or at all.
#[distributed_lock(name = "job:{id}")]
async fn braces(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:{}")]
async fn empty_braces(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job}")]
async fn one_brace() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job\n")]
async fn control_character() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = " job")]
async fn white_space_before() -> Result<(), LockError> { Ok(()) }

// Brackets without a partner.
#[distributed_lock(name = "job:<id")]
async fn not_closed(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:id>")]
async fn not_opened(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job:<<id>")]
async fn opened_twice(id: u64) -> Result<(), LockError> { Ok(()) }

// Separators that do not tell values apart.
#[distributed_lock(name = "<a><b>")]
async fn adjacent(a: u64, b: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "discount:<percent>% for <customer>")]
async fn percent_sign(percent: u8, customer: &str) -> Result<(), LockError> { Ok(()) }

// The text alone is longer than a name may be.
#[distributed_lock(name = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!")]
async fn too_long() -> Result<(), LockError> { Ok(()) }

// `format!` instead of placeholders.
#[distributed_lock(name = format!("report:{}", id))]
async fn format_with_a_position(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = &format!("report:{tenant}:{}", self.id()))]
async fn format_with_names(tenant: &str) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = format!("report:{:03}", id))]
async fn format_with_a_width(id: u64) -> Result<(), LockError> { Ok(()) }

// Other expressions.
#[distributed_lock(name = name_of(id))]
async fn call(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = b"job")]
async fn bytes() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = nightly)]
async fn without_quotes() -> Result<(), LockError> { Ok(()) }

struct Jobs {
    lock: Lock,
}

impl Jobs {
    #[distributed_lock(name = self.lock)]
    async fn field(&self) -> Result<(), LockError> { Ok(()) }

    #[distributed_lock(name = &self.lock)]
    async fn reference(&self) -> Result<(), LockError> { Ok(()) }
}

// Lists.
#[distributed_lock(name = [])]
async fn no_name() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = ["account:<from>", "account:<from>", Lock::Total, Lock::Total])]
async fn twice(from: u64, to: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = ["account:<form>", "", other()])]
async fn wrong_parts(from: u64) -> Result<(), LockError> { Ok(()) }

fn main() {}
