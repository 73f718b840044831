//! Any text as the handle of a detached lease: it is read as itself, or refused with an error that does not repeat it.
#![no_main]

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use mongolock::LeaseHandle;

fuzz_target!(|text: &str| {
    read_handle(text);
    // Few texts are base64, so the fuzzer also writes the document itself.
    read_handle(&format!("mlh1.{}", BASE64_URL_SAFE_NO_PAD.encode(text)));
});

fn read_handle(text: &str) {
    match text.parse::<LeaseHandle>() {
        Ok(handle) => {
            assert_eq!(handle.text(), text.trim());
            let again: LeaseHandle = handle.text().parse().expect("it was read before");
            assert!(again == handle);
            assert!(!format!("{handle:?}").contains(text));
        }
        // Only a text that looks like a handle is secret: any other text can be a part of the message itself.
        Err(error) if text.starts_with("mlh1.") && text.len() > 24 => {
            assert!(!error.to_string().contains(text))
        }
        Err(_) => {}
    }
}
