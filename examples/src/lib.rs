//! What the programs share: a MongoDB to work with, further processes of the same program, and plain output.

pub mod duration;
pub mod output;
pub mod paused;
pub mod processes;
pub mod program;
