//! The promises of mongolock, proved on a real MongoDB. `tests/BEHAVIOURS.md` names the tests of each promise.

mod admin;
mod admin_commands;
mod attribute;
mod commit;
mod conformance;
mod fenced;
mod fixture;
mod handover;
mod index;
mod interop_dotnet;
mod many_waiters;
mod nested;
mod options;
mod protocol;
mod rights;
mod stream_filter;
mod tokens;
mod wake_up;
