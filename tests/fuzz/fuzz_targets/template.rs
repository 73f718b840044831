//! Any text as the template of a lock name: a mistake is reported at a place in the text, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../mongolock-macros/src/template.rs"]
#[allow(dead_code)]
mod template;

fuzz_target!(|text: &str| {
    let (pieces, mistakes) = template::parse(text);
    for (range, mistake) in &mistakes {
        assert!(text.get(range.clone()).is_some(), "{mistake:?} is reported outside of the text");
    }
    for piece in &pieces {
        if let template::Piece::Placeholder(placeholder) = piece {
            let written = text.get(placeholder.range.clone()).expect("a placeholder is a part of the text");
            assert!(written.starts_with('<') && written.ends_with('>'));
        }
    }
    if mistakes.is_empty() {
        for (range, _) in template::ambiguous_separators(text, &pieces) {
            assert!(text.get(range).is_some());
        }
    }
});
