//! The checks of names and options.

use std::time::Duration;

use mongolock::{DistributedLock, LockError};

use super::conformance;
use crate::fixture::{Fixture, acquire_and_release};

conformance!(
    a_name_is_any_displayable_value,
    invalid_names_and_options_are_refused_before_any_command,
);

/// S2.3
async fn a_name_is_any_displayable_value(fixture: Fixture) {
    struct Order(u32);
    impl std::fmt::Display for Order {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "order:{}", self.0)
        }
    }
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
    ];
    let names: Vec<&str> = locks.iter().map(DistributedLock::name).collect();
    assert_eq!(
        names,
        [&id.to_hex(), &uuid.to_string(), "-7", "text", "owned", "order:3"]
    );
    for lock in &locks {
        acquire_and_release(lock).await;
    }
}

async fn invalid_names_and_options_are_refused_before_any_command(fixture: Fixture) {
    let lock = |name: &str| fixture.provider.lock(name);
    for name in ["", "a\nb", &"n".repeat(1025)] {
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
        (lock("n").renew_interval(Duration::ZERO), "renew_interval"),
        (lock("n").expiry(second).renew_interval(second), "renew_interval"),
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
    // Without an explicit `renew_interval`, a shorter `expiry` is valid: the interval is a third of it.
    lock("n")
        .expiry(second)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
