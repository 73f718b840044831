//! Any text as the handle of a detached lease: it is read as itself, or refused with an error that does not repeat it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mongolock::fuzzing::{handle_of, read_handle};

fuzz_target!(|text: &str| {
    read_handle(text);
    // Few texts are base64, so the fuzzer also writes the document itself.
    read_handle(&handle_of(text));
});
