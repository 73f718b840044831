//! The behaviour that mongolock promises, tested on a real MongoDB. `tests/BEHAVIOURS.md` names the test of each
//! promise.
//!
//! What several modules need: `fixture` (locks of one test, and what others see of them) and `servers`.

mod admin;
mod attribute;
mod blocking;
mod commit;
mod conformance;
mod databases;
mod events;
mod fenced;
mod fixture;
mod handover;
mod health;
mod index;
mod info_stream;
mod interop_dotnet;
mod lock_set;
mod many_waiters;
mod mongosh;
mod nested;
mod own_thread;
mod protocol;
mod release_by_hand;
mod rights;
mod semaphore;
mod servers;
mod shutdown;
mod stable_api;
mod unawaited_release;
mod wake_up;
