#![doc = include_str!("../README.md")]

mod acquire;
mod admin;
mod backoff;
mod builder;
mod claim;
mod context;
mod engine;
mod error;
mod fault;
mod guard;
mod held;
mod index;
mod keeper;
mod lease;
mod lock;
mod name;
mod options;
mod output;
mod provider;
mod queue;
mod release;
mod renewal;
mod schedule;
mod store;
mod sync;
mod token;
mod trace;
mod withdrawal;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use admin::LockAdmin;
pub use builder::LockProviderBuilder;
pub use context::LockContext;
pub use error::LockError;
pub use guard::LockGuard;
pub use index::IndexState;
pub use lock::DistributedLock;
#[doc(inline)]
pub use mongolock_macros::distributed_lock;
pub use output::{LockOutput, Skipped};
pub use provider::LockProvider;
pub use token::FencingToken;
