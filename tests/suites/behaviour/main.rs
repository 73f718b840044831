//! What mongolock promises, shown on a real MongoDB; `tests/BEHAVIOURS.md` names the test for each promise.

mod attribute;
mod conformance;
mod index;
mod protocol;
mod tokens;
mod world;
