//! The programs, the single-file examples and the recipes, in one program: they wait more than they compute, and so they wait
//! at the same time.

mod executables;
mod programs;
mod recipes;
mod single_files;
