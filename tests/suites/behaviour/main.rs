//! The behaviour that mongolock promises, tested on a real MongoDB. `tests/BEHAVIOURS.md` names the test of each
//! promise.
//!
//! What several modules need: `fixture` and `providers` (locks of one test, and other providers for them), `waiting`, `observer`
//! (what another process sees), `planted` (documents), `servers` and `in_flight`.

mod admin;
mod admin_commands;
mod attribute;
mod blocking;
mod commit;
mod competition;
mod conditional_release;
mod conformance;
mod databases;
mod detached;
mod events;
mod fenced;
mod fixture;
mod forced_release;
mod handover;
mod health;
mod in_flight;
mod index;
mod info_stream;
mod interop_dotnet;
mod lock_set;
mod many_waiters;
mod mongosh;
mod nested;
mod observer;
mod options;
mod planted;
mod protocol;
mod providers;
mod release_by_hand;
mod rights;
mod semaphore;
mod servers;
mod set_handover;
mod several_locks;
mod shutdown;
mod stable_api;
mod stream_filter;
mod tokens;
mod unawaited_release;
mod waiting;
mod wake_up;
