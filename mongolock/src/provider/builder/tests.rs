use super::*;
use crate::LockProvider;

fn refuses(change: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder) -> &'static str {
    match change(LockProviderBuilder::in_memory()).build() {
        Err(LockError::InvalidOption { option, .. }) => option,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_wrong_hold_is_refused_with_its_value_and_its_bound() {
    let (second, builder) = (Duration::from_secs(1), LockProviderBuilder::in_memory());
    let too_long = builder.clone().min_hold(second * 604_801);
    let contradiction = builder.min_hold(second * 61).max_hold(second * 60);
    for (wrong, parts) in [
        (too_long, ["min_hold", "604801s", "7 days"]),
        (contradiction, ["max_hold", "60s", "`min_hold` (61s)"]),
    ] {
        let message = wrong.build().unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    let second = Duration::from_secs(1);
    assert_eq!(refuses(|b| b.expiry(Duration::ZERO)), "expiry");
    assert_eq!(refuses(|b| b.renew_interval(Duration::ZERO)), "renew_interval");
    assert_eq!(
        refuses(|b| b.retry_interval(Duration::ZERO..=second)),
        "retry_interval"
    );
    assert_eq!(
        refuses(|b| b.retry_interval(second..=second / 2)),
        "retry_interval"
    );
    let week = second * 7 * 24 * 60 * 60;
    assert_eq!(refuses(|b| b.min_hold(week + second)), "min_hold");
    assert_eq!(refuses(|b| b.min_hold(Duration::from_micros(1500))), "min_hold");
    let shorter = Duration::from_micros(999);
    assert_eq!(refuses(|b| b.retry_interval(shorter..=second)), "retry_interval");
    assert_eq!(refuses(|b| b.retention(Duration::from_millis(1500))), "retention");
    assert_eq!(refuses(|b| b.retention(Duration::ZERO)), "retention");
    assert_eq!(refuses(|b| b.takeover_margin(week + second)), "takeover_margin");
    assert_eq!(
        refuses(|b| b.takeover_margin(Duration::from_micros(1500))),
        "takeover_margin"
    );
    assert_eq!(
        refuses(|b| b.retention(second).takeover_margin(second * 2)),
        "takeover_margin"
    );
    assert_eq!(refuses(|b| b.owner("")), "owner");
    assert_eq!(refuses(|b| b.owner("done:a")), "owner");
    assert_eq!(refuses(|b| b.owner("kept:a")), "owner");
    assert_eq!(refuses(|b| b.owner("a\nb")), "owner");
    assert_eq!(refuses(|b| b.collection("")), "collection");
    assert_eq!(refuses(|b| b.collection("a$b")), "collection");
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

/// A shorter pause would poll in a busy loop.
#[tokio::test]
async fn the_shortest_retry_interval_is_a_millisecond() {
    let (nanosecond, millisecond) = (Duration::from_nanos(1), Duration::from_millis(1));
    let refused = LockProviderBuilder::in_memory()
        .retry_interval(nanosecond..=nanosecond)
        .build();
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("1ns") && text.contains("1 ms to 1 h"), "{text}");
    let least = LockProviderBuilder::in_memory().retry_interval(millisecond..=millisecond);
    assert!(least.build().is_ok());
}
