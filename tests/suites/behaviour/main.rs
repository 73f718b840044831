//! The behaviour that mongolock promises, tested on a real MongoDB. `tests/BEHAVIOURS.md` names the tests of each
//! promise.

mod admin;
mod admin_commands;
mod attribute;
mod commit;
mod conditional_release;
mod conformance;
mod fenced;
mod fixture;
mod handover;
mod index;
mod info_stream;
mod interop_dotnet;
mod lock_set;
mod many_waiters;
mod mongosh;
mod nested;
mod options;
mod protocol;
mod release_by_hand;
mod rights;
mod several_locks;
mod stream_filter;
mod tokens;
mod unawaited_release;
mod wake_up;
