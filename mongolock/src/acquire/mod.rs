//! Getting a lease: how one call waits for a lock, for a permit or for a set, and how it fails.
//!
//! | file | what it has |
//! |---|---|
//! | `call.rs` | what all calls have in common: limits, errors, measurement |
//! | `one.rs`, `permit.rs`, `several.rs` | the search of each kind: what it claims next, and how it waits |
//! | `claim.rs`, `request.rs`, `grant.rs` | one claim, its requests in flight, and what their replies say |
//! | `resume.rs` | resuming a detached lease |
//! | `target.rs` | what a claim is for: a lock, a permit, a set, a detached lease |
//! | `asking.rs` | what is sent for a claim and when, and what follows when a request has ended |
//! | `several/turns.rs` | the turns of a set's call in this process |
//! | `query.rs` | a query about locks beside the requests |
//! | `pacing.rs` | the pauses between two requests |
//! | `period.rs` | the period of a call whose work may succeed once in each |

mod asking;
mod call;
mod claim;
mod grant;
mod one;
mod pacing;
mod period;
mod permit;
mod query;
mod request;
mod resume;
mod several;
mod target;

use crate::lease::Hold;
pub(crate) use call::{BusyLock, Search};
pub(crate) use one::Acquire;
pub(crate) use permit::AcquirePermit;
pub(crate) use resume::Resume;
pub(crate) use several::AcquireSeveral;

/// How a request has ended.
type Outcome = asking::Outcome<Hold>;

/// What a call does when a request has ended.
type Next = asking::Next<Hold>;

/// The outcome of a single try: the hold, or a lock that another holder has.
pub(crate) type Tried = Result<Hold, BusyLock>;
