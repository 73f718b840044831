//! The machine that the faces stand on. While both exist, a private feature chooses one.

#[cfg(not(feature = "next"))]
pub(crate) use crate::{
    acquire::{Acquire, AcquirePermit, AcquireSeveral, Resume, Search},
    engine::Engine,
    lease::{CancelShield, Hold, Lease, OpenCommit, repeated},
};

/// The thread of a provider: this machine has none.
#[cfg(not(feature = "next"))]
pub(crate) struct Home;

#[cfg(feature = "next")]
pub(crate) use crate::shell::{
    Call as Acquire, Call as AcquirePermit, Call as AcquireSeveral, Call as Resume, CancelShield, Engine,
    Hold, Home, Lease, OpenCommit, Search, repeated,
};
