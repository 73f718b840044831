//! The checks of names and options.

use std::time::Duration;

use mongolock::{LockError, LockName};
use mongolock_tests::AMPLE;

use super::subject::Subject;
use super::target::Target;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, acquire_and_release, refused_option};

conformance!(
    a_name_is_any_displayable_value,
    the_minimum_hold_of_a_provider_applies_to_its_locks,
);

conformance_of_kinds!(
    invalid_names_and_options_are_refused_before_any_command: CALLS with threads,
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
    for (lock, name) in [
        (provider.lock(id), &*id.to_hex()),
        (provider.lock(uuid), &*uuid.to_string()),
        (provider.lock(-7_i64), "-7"),
        (provider.lock("text"), "text"),
        (provider.lock(String::from("owned")), "owned"),
        (provider.lock(Order(3)), "order:3"),
        (provider.lock(Declared("a:b", 4)), "declared:a%3Ab:4"),
    ] {
        assert_eq!(lock.name(), name);
        acquire_and_release(&lock).await;
    }
    let admin = provider.admin();
    let declared = Declared("a:b", 4);
    assert!(admin.get(&declared).await.unwrap().is_some());
    assert!(!admin.force_release(&declared).await.unwrap(), "it is free");
    assert!(admin.get(Declared("a", 4)).await.unwrap().is_none());
}

async fn invalid_names_and_options_are_refused_before_any_command(subject: Subject) {
    for permits in [0, 1001] {
        let refused = subject.provider().semaphore("s", permits).try_acquire().await;
        assert_eq!(refused_option(refused), "permits");
    }
    let too_many = (0..501).map(|number| number.to_string());
    for names in [vec![], vec!["a".to_owned(), String::new()], too_many.collect()] {
        let refused = subject.provider().lock_all(names).try_acquire().await;
        let is_refused = matches!(refused, Err(LockError::InvalidName { .. }));
        assert!(is_refused, "{refused:?}");
    }
    for name in ["", "a\nb", " a", "a\u{3000}", "a\u{1f}", &"n".repeat(1025)] {
        for refused in refusals(&subject.named(name)).await {
            assert!(matches!(refused, LockError::InvalidName { .. }), "{refused:?}");
        }
    }
    // B6
    let target = || subject.ours();
    let (second, week) = (Duration::from_secs(1), Duration::from_secs(7 * 24 * 60 * 60));
    for (target, named) in [
        (target().expiry(Duration::ZERO), "expiry"),
        (target().acquire_timeout(Some(week * 2)), "acquire_timeout"),
        (target().min_hold(second / 1_000_000), "min_hold"),
        (target().min_hold(second * 2).max_hold(second), "max_hold"),
    ] {
        for refused in refusals(&target).await {
            assert_eq!(refused_option(Err::<(), _>(refused)), named);
        }
    }
    assert!(subject.documents().await.is_empty(), "nothing was sent");
    // If the provider sets no `renew_interval`, a shorter `expiry` is valid: the interval is a third of it.
    target().expiry(second).acquire_and_release().await;
}

/// The errors of an acquire, a try and a run.
async fn refusals(target: &Target) -> [LockError; 3] {
    let acquired = target.acquire().await.map(drop);
    let tried = target.try_acquire().await.map(drop);
    let ran = target.run(async |_| Ok(())).await;
    [acquired, tried, ran].map(Result::unwrap_err)
}

async fn the_minimum_hold_of_a_provider_applies_to_its_locks(fixture: Fixture) {
    let provider = fixture.with(|options| options.min_hold(AMPLE * 10));
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
        assert_eq!(fixture.is_free(name).await, least.is_none(), "{name}");
        let remaining = fixture.info(name).await.remaining;
        assert!(least.is_none_or(|least| remaining > least), "{name}");
    }
}
