//! What mongolock promises, shown on a real MongoDB; `tests/BEHAVIOURS.md` names the test for each promise.

mod admin;
mod attribute;
mod conformance;
mod handover;
mod index;
mod nested;
mod operator;
mod options;
mod protocol;
mod tokens;
mod wake_up;
mod world;
