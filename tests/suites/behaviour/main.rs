//! The promises of mongolock, proved on a real MongoDB. `tests/BEHAVIOURS.md` names the tests of each promise.

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
mod nested;
mod options;
mod protocol;
mod rights;
mod tokens;
mod wake_up;
