//! Any text as a duration: it is a number of milliseconds that is written and read back as itself, or a mistake.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../mongolock-macros/src/duration.rs"]
#[allow(dead_code)]
mod duration;

fuzz_target!(|text: &str| {
    if let Ok(millis) = duration::parse(text) {
        assert_eq!(duration::parse(&duration::write(millis)), Ok(millis));
    }
});
