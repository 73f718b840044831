//! Twelve functions, each locked and calling the next, compile on a task with the default recursion limit.

#[macro_use]
mod nested;

chain!(locked f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 innermost);
spawn!(f1);
