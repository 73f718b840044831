//! Twenty-four functions, each locked and calling the next, compile on a task with a recursion limit of 256.

#![recursion_limit = "256"]

#[macro_use]
mod nested;

chain!(locked f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12
    f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 innermost);
spawn!(f1);
