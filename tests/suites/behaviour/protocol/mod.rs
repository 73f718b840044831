//! The commands and the documents, as another program on the same collection sees them.

mod commands;
mod documents;
mod takeover;
