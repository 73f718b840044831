use super::*;
use crate::samples::{corpus, each_seed, text, word};

#[test]
fn reads_every_unit() {
    for (text, millis) in [
        ("500ms", 500),
        ("30s", 30_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 7 * DAY),
        ("0s", 0),
        ("007s", 7_000),
    ] {
        assert_eq!(parse(text), Ok(millis), "{text}");
    }
}

/// The suite `ui` has the usual ones.
#[test]
fn suggests_the_probable_duration() {
    for (text, write) in [("2 Minutes", "2m"), ("30S", "30s"), ("1_000ms", "1s")] {
        let write = Some(write.to_owned());
        assert_eq!(parse(text), Err(DurationMistake::Malformed { write }), "{text}");
    }
}

#[test]
fn refuses_texts_that_are_no_durations() {
    let without_suggestion = Err(DurationMistake::Malformed { write: None });
    for text in ["s", "30x", "30us", "+30s", "0x10s", "٣s", "1.s.", "30s?"] {
        assert_eq!(parse(text), without_suggestion, "{text}");
    }
    assert_eq!(parse(" \t"), Err(DurationMistake::Empty));
    assert_eq!(parse("18446744073709551615h"), Err(DurationMistake::TooLong));
}

#[test]
fn writes_the_shortest_form() {
    for (millis, text) in [(0, "0s"), (100, "100ms"), (90_000, "90s"), (7 * DAY, "7d")] {
        assert_eq!(write(millis), text);
    }
}

#[test]
fn random_texts_are_refused_and_durations_and_suggestions_read_back() {
    each_seed(|random| {
        let any: String = (0..24).map(|_| random.char(..)).collect();
        let _ = parse(&any);
        let similar = [
            word(random, "|||-"),
            text(random, "0123456789", 1..=22),
            word(random, ".| |_|"),
            text(random, "0123456789", 0..=2),
            word(random, " |"),
            word(random, "ms|s|sec|min|m|h|hours|d|xyz"),
            word(random, "5ms|30s|2m|"),
        ];
        if let Err(DurationMistake::Malformed { write: Some(write) }) = parse(&similar.concat()) {
            assert!(parse(&write).is_ok(), "{similar:?} -> {write}");
        }
        let millis = random.u64(..);
        assert_eq!(parse(&write(millis)), Ok(millis));
    });
}

#[test]
fn the_corpus_is_read_back_or_refused() {
    let corpus = corpus("duration");
    let mut sound = 0;
    for (name, text) in &corpus {
        if let Ok(millis) = parse(text) {
            assert_eq!(parse(&write(millis)), Ok(millis), "{name}");
            sound += 1;
        }
    }
    let all = corpus.len();
    assert!(all == 0 || sound >= 6 && all - sound >= 20, "{sound} of {all}");
}
