//! What mongolock promises, shown on a real MongoDB; `tests/BEHAVIOURS.md` names the test for each promise.

mod attribute;
mod conformance;
mod handover;
mod index;
mod nested;
mod options;
mod protocol;
mod tokens;
mod tracing_events;
mod wake_up;
mod world;
