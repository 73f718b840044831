//! Any document as what a server sends for a lock: it is read or refused with an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mongodb::bson::Document;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::from_reader(bytes) {
        mongolock::fuzzing::read_document(&document);
    }
});
