//! A call under its lock, from the acquisition to the release: the common path of the attribute and of `run`.
//!
//! Nothing here depends on the type of the body, so that it is compiled once and not for each annotated function.
//! [`locked_body`] has the part that does depend on it.

mod call;
mod locked_body;

pub use call::{Acquired, Acquiring};
pub use locked_body::Body;
