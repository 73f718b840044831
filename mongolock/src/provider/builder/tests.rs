use super::*;
use crate::LockProvider;

#[test]
fn the_defaults_are_valid_and_renew_at_a_third() {
    let builder = LockProviderBuilder::in_memory();
    assert_eq!(builder.config.options.renew_interval(), Duration::from_secs(10));
    builder.build().unwrap();
}

/// Of each row the error names the option, and has these words.
#[test]
fn values_out_of_bounds_are_refused() {
    let new = LockProviderBuilder::in_memory;
    let second = Duration::from_secs(1);
    let (milli, micro) = (second / 1000, second / 1_000_000);
    let (zero, whole) = (Duration::ZERO, "whole milliseconds");
    let short_pause = new().retry_interval(micro * 999..=second);
    let pauses_in_disorder = new().retry_interval(second..=second / 2);
    let contradiction = new().min_hold(second * 61).max_hold(second * 60);
    let longer_than_kept = new().retention(second).takeover_margin(second * 2);
    for (option, words, wrong) in [
        ("expiry", "99ms", new().expiry(milli * 99)),
        ("expiry", "7 days", new().expiry(WEEK + milli)),
        ("expiry", whole, new().expiry(micro * 100_500)),
        ("renew_interval", "0ns", new().renew_interval(zero)),
        ("renew_interval", "30s", new().renew_interval(second * 30)),
        ("acquire_timeout", "7 days", new().acquire_timeout(WEEK + milli)),
        ("min_hold", "604801s", new().min_hold(WEEK + second)),
        ("min_hold", whole, new().min_hold(micro * 1500)),
        ("max_hold", "7 days", new().max_hold(WEEK + milli)),
        ("max_hold", "`min_hold` (61s)", contradiction),
        ("retry_interval", "1 ms to 1 h", short_pause),
        ("retry_interval", "the shorter", pauses_in_disorder),
        ("retention", "whole seconds", new().retention(milli * 1500)),
        ("retention", "1 s", new().retention(zero)),
        ("takeover_margin", "7 days", new().takeover_margin(WEEK + second)),
        ("takeover_margin", whole, new().takeover_margin(micro * 1500)),
        ("takeover_margin", "(1s)", longer_than_kept),
        ("owner", "1 to 256", new().owner("")),
        ("owner", "`done:`", new().owner("done:a")),
        ("owner", "`kept:`", new().owner("kept:a")),
        ("owner", "control", new().owner("a\nb")),
        ("collection", "1 to 200", new().collection("")),
        ("collection", "no `$`", new().collection("a$b")),
    ] {
        let said = wrong.build().unwrap_err().to_string();
        let begin = format!("option `{option}` is ");
        assert!(said.starts_with(&begin), "{option}: {said}");
        assert!(said.contains(words), "{option}, {words}: {said}");
    }
    // A shorter pause would poll in a busy loop.
    new().retry_interval(milli..=milli).build().unwrap();
}

#[tokio::test]
async fn a_database_that_cannot_exist_is_refused() {
    let connected = LockProvider::connect("mongodb://127.0.0.1:1/app").await.unwrap();
    for wrong in ["", "a.b", "a b", "a$b", &"a".repeat(64)] {
        match connected.to_builder().database(wrong).build() {
            Err(LockError::InvalidOption { option, .. }) => assert_eq!(option, "database"),
            other => panic!("not refused: {other:?}"),
        }
    }
    assert!(connected.to_builder().database("jobs").build().is_ok());
    assert!(LockProviderBuilder::in_memory().database("a.b").build().is_ok());
}
