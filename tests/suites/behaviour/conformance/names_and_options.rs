//! The checks of names and options.

use std::time::Duration;

use mongolock::{DistributedLock, LockError, LockName};
use mongolock_tests::AMPLE;

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release};

conformance!(
    a_name_is_any_displayable_value,
    invalid_names_and_options_are_refused_before_any_command,
    the_minimum_hold_of_a_provider_applies_to_its_locks,
    a_minimum_hold_out_of_bounds_is_refused_by_the_builder,
    a_maximum_hold_below_the_minimum_hold_is_refused,
);

/// S2.3
async fn a_name_is_any_displayable_value(fixture: Fixture) {
    struct Order(u32);
    impl std::fmt::Display for Order {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "order:{}", self.0)
        }
    }
    #[derive(LockName)]
    #[lock("declared:<0>:<1>")]
    struct Declared(&'static str, u32);
    let id = mongodb::bson::oid::ObjectId::new();
    let uuid = mongodb::bson::Uuid::new();
    let provider = &fixture.provider;
    let locks = [
        provider.lock(id),
        provider.lock(uuid),
        provider.lock(-7_i64),
        provider.lock("text"),
        provider.lock(String::from("owned")),
        provider.lock(Order(3)),
        provider.lock(Declared("a:b", 4)),
    ];
    let names: Vec<&str> = locks.iter().map(DistributedLock::name).collect();
    assert_eq!(
        names,
        [
            &id.to_hex(),
            &uuid.to_string(),
            "-7",
            "text",
            "owned",
            "order:3",
            "declared:a%3Ab:4"
        ]
    );
    for lock in &locks {
        acquire_and_release(lock).await;
    }
    let admin = provider.admin();
    let declared = Declared("a:b", 4);
    assert!(admin.get(&declared).await.unwrap().is_some());
    assert!(!admin.force_release(&declared).await.unwrap(), "it is free");
    assert!(admin.get(Declared("a", 4)).await.unwrap().is_none());
}

async fn invalid_names_and_options_are_refused_before_any_command(fixture: Fixture) {
    let lock = |name: &str| fixture.provider.lock(name);
    for name in ["", "a\nb", " a", "a\u{3000}", &"n".repeat(1025)] {
        assert!(matches!(
            lock(name).acquire().await,
            Err(LockError::InvalidName { .. })
        ));
        assert!(matches!(
            lock(name).try_acquire().await,
            Err(LockError::InvalidName { .. })
        ));
    }
    // B6
    let second = Duration::from_secs(1);
    for (lock, named) in [
        (lock("n").expiry(Duration::ZERO), "expiry"),
        (
            lock("n").acquire_timeout(second * 60 * 60 * 24 * 8),
            "acquire_timeout",
        ),
    ] {
        match lock.acquire().await {
            Err(LockError::InvalidOption { option, .. }) => assert_eq!(option, named),
            other => panic!("{named} was not refused: {other:?}"),
        }
    }
    // If the provider sets no `renew_interval`, a shorter `expiry` is valid: the interval is a third of it.
    lock("n")
        .expiry(second)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn the_minimum_hold_of_a_provider_applies_to_its_locks(fixture: Fixture) {
    let provider = fixture
        .provider
        .to_builder()
        .min_hold(AMPLE * 10)
        .build()
        .unwrap();
    let copy = provider.to_builder().owner("copy").build().unwrap();
    let longer = AMPLE * 20;
    for (lock, least) in [
        (provider.lock("default"), Some(AMPLE * 9)),
        (copy.lock("default of a copy"), Some(AMPLE * 9)),
        (provider.lock("longer").min_hold(longer), Some(AMPLE * 19)),
        (provider.lock("none").min_hold(Duration::ZERO), None),
        (fixture.provider.lock("the other provider"), None),
    ] {
        acquire_and_release(&lock).await;
        let name = lock.name();
        let free = fixture.rival().lock(name).try_acquire().await.unwrap();
        assert_eq!(free.is_some(), least.is_none(), "{name}");
        if let Some(least) = least {
            let info = fixture.provider.admin().get(name).await.unwrap().unwrap();
            assert!(info.remaining > least, "{info:?}");
        }
    }
}

async fn a_minimum_hold_out_of_bounds_is_refused_by_the_builder(fixture: Fixture) {
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let with = |hold| fixture.provider.to_builder().min_hold(hold).build();
    assert!(with(Duration::ZERO).is_ok() && with(week).is_ok());
    for (refused, shown) in [
        (week + Duration::from_secs(1), "604801s"),
        (Duration::from_micros(1500), "1.5ms"),
    ] {
        match with(refused) {
            Err(LockError::InvalidOption {
                option, value, bound, ..
            }) => {
                assert_eq!((option, value.as_str()), ("min_hold", shown));
                assert!(
                    bound.contains("7 days") || bound.contains("whole milliseconds"),
                    "{bound}"
                );
            }
            other => panic!("{refused:?} was not refused: {other:?}"),
        }
    }
}

async fn a_maximum_hold_below_the_minimum_hold_is_refused(fixture: Fixture) {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(60 * 60));
    let refused = |error: LockError| match error {
        LockError::InvalidOption {
            option, value, bound, ..
        } => {
            assert_eq!((option, value.as_str()), ("max_hold", "60s"));
            assert!(bound.contains("`min_hold` (3600s)"), "{bound}");
        }
        other => panic!("it was not refused: {other:?}"),
    };
    let with = |min, max| fixture.provider.to_builder().min_hold(min).max_hold(max).build();
    refused(with(hour, minute).expect_err("a refusal"));
    let provider = with(minute, minute).expect("equal holds are accepted");
    let lock = fixture.provider.lock("n").min_hold(hour).max_hold(minute);
    refused(lock.acquire().await.expect_err("a refusal"));
    refused(lock.try_acquire().await.expect_err("a refusal"));
    refused(
        lock.run(async |_| Ok::<_, LockError>(()))
            .await
            .expect_err("a refusal"),
    );
    refused(
        provider
            .lock("n")
            .min_hold(hour)
            .acquire()
            .await
            .expect_err("a refusal"),
    );
    assert!(
        fixture.provider.admin().get("n").await.unwrap().is_none(),
        "nothing was sent"
    );
}
