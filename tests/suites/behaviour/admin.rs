//! `LockAdmin`: listing the locks of all processes, and releasing them by force.

use std::future::IntoFuture;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockAdmin, LockError, LockFilter, LockGuard, LockInfo, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, change_lock, eventually, must};
use tokio::time::timeout;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, renewing};

conformance!(
    a_list_meets_every_condition_of_its_filter,
    prefixes_and_owners_are_matched_literally,
    a_lock_is_held_expired_or_released,
    one_lock_can_be_read,
    a_lock_can_be_released_by_force,
    a_forced_release_wakes_the_waiters,
    a_holder_in_the_same_process_notices_a_forced_release_at_once,
    a_minimum_hold_can_be_ended_by_force,
    all_locks_of_one_owner_can_be_released,
    a_request_whose_future_is_dropped_is_carried_out,
    admin_requests_work_after_shutdown,
);

const SHORT: Duration = Duration::from_millis(200);

async fn hold(fixture: &Fixture, owner: &str, name: &str) -> LockGuard {
    fixture.process(owner).lock(name).await.unwrap()
}

/// A hold that is renewed often, so that its holder soon notices a loss.
async fn hold_closely(fixture: &Fixture, owner: &str, name: &str) -> LockGuard {
    let holder = renewing(&fixture.process(owner), SHORT);
    holder.lock(name).await.unwrap()
}

/// A hold whose lease has expired at the server, as that of a crashed process. The caller keeps the guard, because
/// dropping it would release the lock.
async fn expired(fixture: &Fixture, owner: &str, name: &str) -> LockGuard {
    let lock = fixture.process(owner).lock(name);
    let short = lock.expiry(SHORT).max_hold(Duration::ZERO);
    let guard = short.acquire().await.unwrap();
    let admin = fixture.provider.admin();
    let ended = async || {
        let state = admin.get(name).await.unwrap().unwrap().state;
        (state == LockState::Expired).then_some(())
    };
    must(eventually(AMPLE, "the lease has expired", ended).await);
    guard
}

async fn list(admin: &LockAdmin, filter: LockFilter) -> Vec<String> {
    let locks = admin.list(filter).await.unwrap();
    locks.into_iter().map(|lock| lock.name).collect()
}

async fn is_free(fixture: &Fixture, name: &str) -> bool {
    fixture.rival().lock(name).try_acquire().await.unwrap().is_some()
}

async fn a_list_meets_every_condition_of_its_filter(fixture: Fixture) {
    let admin = fixture.provider.admin();
    assert!(list(&admin, LockFilter::new()).await.is_empty());
    let _held = [
        hold(&fixture, "one", "job:c").await,
        hold(&fixture, "two", "job:a").await,
        hold(&fixture, "one", "report:b").await,
    ];
    let _expired = expired(&fixture, "one", "job:b").await;
    let released = hold(&fixture, "one", "report:a").await;
    released.release().await.unwrap();

    let all = LockFilter::new;
    for (filter, expected) in [
        (all(), "job:a job:b job:c report:a report:b"),
        (all().prefix("job:"), "job:a job:b job:c"),
        (all().prefix("job:a"), "job:a"),
        (all().prefix("ob:"), ""),
        (all().prefix(""), "job:a job:b job:c report:a report:b"),
        (all().owner("one"), "job:b job:c report:b"),
        (all().owner("unknown"), ""),
        (all().state(LockState::Held), "job:a job:c report:b"),
        (all().state(LockState::Expired), "job:b"),
        (all().state(LockState::Released), "report:a"),
        (all().owner("one").state(LockState::Held), "job:c report:b"),
        (all().owner("one").state(LockState::Released), ""),
        (all().prefix("job:").owner("one").state(LockState::Held), "job:c"),
        (all().limit(0), ""),
        (all().limit(2), "job:a job:b"),
        (all().limit(9), "job:a job:b job:c report:a report:b"),
        (all().state(LockState::Held).limit(2), "job:a job:c"),
        (all().prefix("report:").limit(1), "report:a"),
    ] {
        let found = list(&admin, filter.clone()).await;
        assert_eq!(found.join(" "), expected, "{filter:?}");
    }
}

/// Strings that serve as a name, a prefix and an owner. None of them may work as a pattern or an expression.
const STRINGS: [&str; 41] = [
    "a", "A", "aa", "ab", "abc", "a.c", "a#", "a#b", "a#b#c", "#", "##", "a b", "_a", "^a", "a$", "$",
    "$$NOW", ".", ".*", "a|b", "(a)", "[a]", "a{1}", "a+", "a?", "*", "\\", "\\a", "\\d", "\\Qa", "\\E",
    "(?i)a", "'a'", "\"a\"", "/a/", "é", "éa", "日本", "😀", "a😀", "1",
];

async fn prefixes_and_owners_are_matched_literally(fixture: Fixture) {
    let mut guards = Vec::new();
    for string in STRINGS {
        guards.push(hold(&fixture, string, string).await);
    }
    let admin = fixture.provider.admin();
    for string in STRINGS {
        let mut expected: Vec<&str> = STRINGS
            .into_iter()
            .filter(|name| name.starts_with(string))
            .collect();
        expected.sort_unstable();
        assert_eq!(
            list(&admin, LockFilter::new().prefix(string)).await,
            expected,
            "prefix {string:?}"
        );
        assert_eq!(
            list(&admin, LockFilter::new().owner(string)).await,
            [string],
            "owner {string:?}"
        );
        let info = admin.get(string).await.unwrap().unwrap();
        assert_eq!(info.owner.as_deref(), Some(string));
    }
    for string in STRINGS {
        assert_eq!(admin.release_owner(string).await.unwrap(), 1, "owner {string:?}");
    }
}

async fn a_lock_is_held_expired_or_released(fixture: Fixture) {
    let _held = hold(&fixture, "holder", "held").await;
    let _expired = expired(&fixture, "holder", "expired").await;
    hold(&fixture, "holder", "released")
        .await
        .release()
        .await
        .unwrap();
    let closed = fixture.process("holder").lock("closed").min_hold(AMPLE * 10);
    acquire_and_release(&closed).await;

    let admin = fixture.provider.admin();
    let look = async |name: &str| admin.get(name).await.unwrap().unwrap();
    let owner = Some("holder");

    let held = look("held").await;
    assert_eq!(state_and_owner(&held), (LockState::Held, owner));
    assert!(held.remaining > Duration::ZERO, "{held:?}");
    assert!(held.remaining <= lasts(&held), "{held:?}");

    let expired = look("expired").await;
    assert_eq!(state_and_owner(&expired), (LockState::Expired, owner));
    assert_eq!(expired.remaining, Duration::ZERO);
    assert_eq!(lasts(&expired), SHORT);

    let released = look("released").await;
    assert_eq!(state_and_owner(&released), (LockState::Released, None));
    assert_eq!(released.remaining, Duration::ZERO);

    let closed = look("closed").await;
    assert_eq!(state_and_owner(&closed), (LockState::Released, None));
    assert!(
        closed.remaining > AMPLE,
        "the minimum hold is not over: {closed:?}"
    );
    assert!(!is_free(&fixture, "closed").await);

    // A list returns the same values, except those that change with time.
    let listed = admin.list(LockFilter::new()).await.unwrap();
    assert_eq!(listed.len(), 4);
    for mut listed in listed {
        let alone = look(&listed.name).await;
        (listed.remaining, listed.expires_at) = (alone.remaining, alone.expires_at);
        assert_eq!(listed, alone);
    }
}

fn state_and_owner(info: &LockInfo) -> (LockState, Option<&str>) {
    (info.state, info.owner.as_deref())
}

/// The time from the acquisition to the end of the lease.
fn lasts(info: &LockInfo) -> Duration {
    let millis = info.expires_at.timestamp_millis() - info.acquired_at.timestamp_millis();
    Duration::from_millis(millis.cast_unsigned())
}

async fn one_lock_can_be_read(fixture: Fixture) {
    let admin = fixture.provider.admin();
    assert_eq!(admin.get("never").await.unwrap(), None);
    assert_eq!(admin.get("").await.unwrap(), None);
    let guard = fixture.provider.lock(7).await.unwrap();
    let info = admin.get(7).await.unwrap().unwrap();
    assert_eq!(
        (info.name.as_str(), info.fencing_token),
        ("7", guard.fencing_token())
    );
    guard.release().await.unwrap();
    let info = admin.get(7).await.unwrap().unwrap();
    assert_eq!(info.state, LockState::Released, "the document is kept");
}

/// S2.6: the holder notices the loss and cannot release the next holder's lock. The next token is greater.
async fn a_lock_can_be_released_by_force(fixture: Fixture) {
    let admin = fixture.provider.admin();
    assert!(
        !admin.force_release("forced").await.unwrap(),
        "the lock does not exist"
    );
    let victim = hold_closely(&fixture, "victim", "forced").await;
    let before = admin.get("forced").await.unwrap().unwrap();

    assert!(admin.force_release("forced").await.unwrap());
    let after = admin.get("forced").await.unwrap().unwrap();
    assert_eq!(state_and_owner(&after), (LockState::Released, None));
    assert_eq!(after.remaining, Duration::ZERO);
    assert_eq!(
        (after.fencing_token, after.acquired_at),
        (before.fencing_token, before.acquired_at)
    );
    assert!(
        !admin.force_release("forced").await.unwrap(),
        "the lock is already free"
    );

    let next = fixture.rival().lock("forced").acquire().await.unwrap();
    assert!(next.fencing_token() > victim.fencing_token());
    timeout(BEFORE_EXPIRY, victim.lost())
        .await
        .expect("the next renewal reports the loss");
    assert!(matches!(victim.release().await, Err(LockError::Lost { name, .. }) if name == "forced"));
    let held = admin.get("forced").await.unwrap().unwrap();
    assert_eq!(
        (held.state, held.fencing_token),
        (LockState::Held, next.fencing_token())
    );
    next.release().await.expect("the next holder still has the lock");
    assert!(
        !admin.force_release("forced").await.unwrap(),
        "a released lock is free"
    );

    let _expired = expired(&fixture, "crashed", "forced").await;
    assert!(
        !admin.force_release("forced").await.unwrap(),
        "an expired lock is free"
    );
}

/// S2.6
async fn a_forced_release_wakes_the_waiters(fixture: Fixture) {
    let victim = hold(&fixture, "victim", "awaited").await;
    // After the first few attempts polling alone would take minutes, and the holder is in another process.
    let patient = fixture
        .provider
        .to_builder()
        .retry_interval(Duration::from_millis(10)..=AMPLE * 10);
    let lock = patient
        .acquire_timeout(AMPLE * 10)
        .build()
        .unwrap()
        .lock("awaited");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(!waiter.is_finished());
    assert!(fixture.provider.admin().force_release("awaited").await.unwrap());
    // This is less than the 4 s after which the waiter would poll.
    let next = timeout(Duration::from_secs(3), waiter)
        .await
        .expect("the waiter is woken")
        .unwrap();
    assert!(next.fencing_token() > victim.fencing_token());
}

/// With this expiry the next renewal would come only after two days.
async fn a_holder_in_the_same_process_notices_a_forced_release_at_once(fixture: Fixture) {
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let provider = fixture
        .provider
        .to_builder()
        .expiry(week)
        .owner("own")
        .build()
        .unwrap();
    let (first, second, other) = (
        provider.lock("first").await.unwrap(),
        provider.lock("second").await.unwrap(),
        provider.lock("other").await.unwrap(),
    );
    assert!(provider.admin().force_release("first").await.unwrap());
    timeout(AMPLE, first.lost())
        .await
        .expect("the provider reports the loss");
    assert!(!second.is_lost() && !other.is_lost());

    let rival = fixture.rival().admin();
    assert!(rival.force_release("second").await.unwrap());
    assert_eq!(provider.admin().release_owner("own").await.unwrap(), 1);
    for guard in [second, other] {
        timeout(AMPLE, guard.lost())
            .await
            .expect("the provider reports the loss");
    }
}

async fn a_minimum_hold_can_be_ended_by_force(fixture: Fixture) {
    let lock = fixture.process("early").lock("closed").min_hold(AMPLE * 10);
    acquire_and_release(&lock).await;
    assert!(!is_free(&fixture, "closed").await);
    let admin = fixture.provider.admin();
    assert_eq!(
        admin.release_owner("early").await.unwrap(),
        0,
        "a released lock has no owner"
    );
    assert!(admin.force_release("closed").await.unwrap());
    assert!(!admin.force_release("closed").await.unwrap());
    assert!(is_free(&fixture, "closed").await);
}

/// S2.7
async fn all_locks_of_one_owner_can_be_released(fixture: Fixture) {
    let owners = ["a", "a#b", "ab", "A", "a#"];
    let mut others = Vec::new();
    for owner in owners.into_iter().filter(|owner| *owner != "a") {
        others.push(hold(&fixture, owner, &format!("of {owner}")).await);
    }
    let gone = [
        hold_closely(&fixture, "a", "1").await,
        hold_closely(&fixture, "a", "2").await,
        hold_closely(&fixture, "a", "3").await,
    ];
    let _expired = expired(&fixture, "a", "expired").await;
    let admin = fixture.provider.admin();
    for unknown in ["", "#", ".", ".*", "a|ab", "b", "unknown"] {
        assert_eq!(admin.release_owner(unknown).await.unwrap(), 0, "{unknown:?}");
    }

    assert_eq!(admin.release_owner("a").await.unwrap(), 3);
    assert_eq!(admin.release_owner("a").await.unwrap(), 0);
    assert_eq!(
        list(&admin, LockFilter::new().state(LockState::Released)).await,
        ["1", "2", "3"]
    );
    for guard in gone {
        assert!(is_free(&fixture, guard.name()).await);
        timeout(BEFORE_EXPIRY, guard.lost())
            .await
            .expect("the next renewal reports the loss");
        assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    }
    for guard in others {
        assert!(!is_free(&fixture, guard.name()).await);
        guard
            .release()
            .await
            .expect("the operator did not release this lock");
    }
}

/// B15
async fn a_request_whose_future_is_dropped_is_carried_out(fixture: Fixture) {
    let admin = fixture.provider.admin();
    let (_first, _second) = (hold(&fixture, "one", "1").await, hold(&fixture, "two", "2").await);
    poll_once(admin.force_release("1")).await;
    poll_once(admin.release_owner("two")).await;
    let both = async || {
        let released = list(&admin, LockFilter::new().state(LockState::Released)).await;
        (released == ["1", "2"]).then_some(())
    };
    must(eventually(AMPLE, "both locks are released", both).await);
}

async fn poll_once(future: impl IntoFuture) {
    let mut future = pin!(future.into_future());
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn admin_requests_work_after_shutdown(fixture: Fixture) {
    let _held = hold(&fixture, "other", "held").await;
    let provider = fixture.provider.to_builder().build().unwrap();
    provider.shutdown().await;
    let admin = provider.admin();
    assert_eq!(list(&admin, LockFilter::new()).await, ["held"]);
    assert!(admin.get("held").await.unwrap().is_some());
    assert!(admin.force_release("held").await.unwrap());
    assert_eq!(admin.release_owner("other").await.unwrap(), 0);
}

/// A forced release that has waited in the server is not meant for a lease that began meanwhile, which the operator has not
/// seen.
#[tokio::test]
async fn a_lease_that_began_after_the_forced_release_is_left_alone() {
    let fixture = Fixture::mongodb().await;
    let guard = hold(&fixture, "later", "forced").await;
    let admin = fixture.provider.admin();
    let begin = async |after: i64| {
        let begun = doc! { "$set": { "acquiredAt": { "$add": ["$$NOW", after] } } };
        change_lock(fixture.database(), "forced", begun).await;
    };
    begin(AMPLE.as_millis().try_into().unwrap()).await;
    assert!(!admin.force_release("forced").await.unwrap());
    assert_eq!(admin.release_owner("later").await.unwrap(), 0);
    begin(-1).await;
    assert!(admin.force_release("forced").await.unwrap());
    drop(guard);
}

/// To a forced release that has waited in the server, a release that has overtaken it looks like the rest of a minimum hold.
#[tokio::test]
async fn a_release_that_overtakes_a_forced_release_has_ended_the_hold() {
    let fixture = Fixture::mongodb().await;
    hold(&fixture, "overtaken", "forced")
        .await
        .release()
        .await
        .unwrap();
    let later = doc! { "$set": { "expiresAt": { "$add": ["$$NOW", 80] } } };
    change_lock(fixture.database(), "forced", later).await;
    assert!(!fixture.provider.admin().force_release("forced").await.unwrap());
}
