//! What mongolock promises, shown on a real MongoDB; `tests/BEHAVIOURS.md` names the test for each promise.

mod admin;
mod attribute;
mod commit;
mod conformance;
mod fenced;
mod handover;
mod index;
mod neighbours;
mod nested;
mod operator;
mod options;
mod protocol;
mod rights;
mod tokens;
mod wake_up;
mod world;
