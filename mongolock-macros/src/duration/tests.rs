use proptest::prelude::*;

use super::*;

fn malformed(write: &str) -> Result<u64, DurationMistake> {
    Err(DurationMistake::Malformed {
        write: Some(write.to_owned()),
    })
}

#[test]
fn reads_every_unit() {
    assert_eq!(parse("500ms"), Ok(500));
    assert_eq!(parse("30s"), Ok(30_000));
    assert_eq!(parse("2m"), Ok(120_000));
    assert_eq!(parse("1h"), Ok(3_600_000));
    assert_eq!(parse("7d"), Ok(7 * DAY));
    assert_eq!(parse("0s"), Ok(0));
    assert_eq!(parse("007s"), Ok(7_000));
}

#[test]
fn a_number_alone_has_no_unit() {
    assert_eq!(
        parse("30"),
        Err(DurationMistake::NoUnit {
            write: "30s".to_owned()
        })
    );
}

#[test]
fn suggests_the_probable_duration() {
    assert_eq!(parse("30 s"), malformed("30s"));
    assert_eq!(parse("1h30m"), malformed("90m"));
    assert_eq!(parse("1.5s"), malformed("1500ms"));
    assert_eq!(parse("2min"), malformed("2m"));
    assert_eq!(parse("2 Minutes"), malformed("2m"));
    assert_eq!(parse("30S"), malformed("30s"));
    assert_eq!(parse("1_000ms"), malformed("1s"));
}

#[test]
fn refuses_texts_that_are_no_durations() {
    let without_suggestion = Err(DurationMistake::Malformed { write: None });
    for text in ["s", "soon", "30x", "30us", "+30s", "0x10s", "٣s", "1.s.", "30s?"] {
        assert_eq!(parse(text), without_suggestion, "{text}");
    }
    assert_eq!(parse(""), Err(DurationMistake::Empty));
    assert_eq!(parse(" \t"), Err(DurationMistake::Empty));
    assert_eq!(parse("-1s"), Err(DurationMistake::Negative));
    assert_eq!(parse("99999999999999999999s"), Err(DurationMistake::TooLong));
    assert_eq!(parse("18446744073709551615h"), Err(DurationMistake::TooLong));
}

#[test]
fn writes_the_shortest_form() {
    assert_eq!(write(0), "0s");
    assert_eq!(write(100), "100ms");
    assert_eq!(write(90_000), "90s");
    assert_eq!(write(7 * DAY), "7d");
}

proptest! {
    #[test]
    fn never_panics(text in ".{0,24}") {
        let _ = parse(&text);
    }

    #[test]
    fn never_panics_on_texts_similar_to_durations(text in "-?[0-9]{0,22}[ ._]?[a-z]{0,4}[0-9]{0,3}(ms|s|m|h|d)?") {
        let _ = parse(&text);
    }

    #[test]
    fn written_durations_are_read_back(millis in 0..=u64::MAX) {
        prop_assert_eq!(parse(&write(millis)), Ok(millis));
    }

    #[test]
    fn suggestions_are_accepted(text in "[0-9]{1,4}[. ]?[0-9]{0,2} ?(ms|s|sec|min|m|h|hours|d)([0-9]{1,2}(ms|s|m))?") {
        if let Err(DurationMistake::Malformed { write: Some(write) }) = parse(&text) {
            prop_assert!(parse(&write).is_ok(), "{} -> {}", text, write);
        }
    }
}

/// The texts with which fuzzing begins.
#[test]
fn the_corpus_is_read_back_or_refused() {
    let Some(corpus) = crate::corpus::texts("duration") else {
        return;
    };
    let mut sound = 0;
    for (name, text) in &corpus {
        if let Ok(millis) = parse(text) {
            sound += 1;
            assert_eq!(parse(&write(millis)), Ok(millis), "{name}");
        }
    }
    assert!(
        sound >= 6 && corpus.len() - sound >= 20,
        "{sound} of {}",
        corpus.len()
    );
}
