//! Detached leases, which last without a process: a hold is detached, and any process that has the handle resumes, extends or releases
//! the lease.

mod detaching;
mod leases;

pub use self::detaching::Detach;
