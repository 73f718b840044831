//! `LockAdmin`: listing the locks of all processes, and releasing them by force.

use std::time::Duration;

use futures_util::{FutureExt, TryStreamExt};
use mongolock::{LockAdmin, LockError, LockFilter, LockGuard, LockInfo, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::time::sleep;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, renewing};
use crate::waiting::{acquired, hold_all, seldom_polling, until_lost, waiter};

conformance!(
    a_list_meets_every_condition_of_its_filter,
    prefixes_and_owners_are_matched_literally,
    a_lock_is_held_expired_or_released,
    a_lock_is_read_by_any_displayable_name,
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
    let ended = async || (fixture.info(name).await.state == LockState::Expired).then_some(());
    must(eventually(AMPLE, "the lease has expired", ended).await);
    guard
}

/// The names of the locks that a list has, and a stream as well.
async fn list(admin: &LockAdmin, filter: LockFilter) -> Vec<String> {
    let streamed: Vec<LockInfo> = admin.stream(filter.clone()).try_collect().await.unwrap();
    let listed = admin.list(filter).await.unwrap();
    let names = |locks: Vec<LockInfo>| locks.into_iter().map(|lock| lock.name).collect::<Vec<_>>();
    let listed = names(listed);
    assert_eq!(names(streamed), listed);
    listed
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
        let mut expected = STRINGS.to_vec();
        expected.retain(|name| name.starts_with(string));
        expected.sort_unstable();
        let (prefix, owner) = (LockFilter::new().prefix(string), LockFilter::new().owner(string));
        assert_eq!(list(&admin, prefix).await, expected, "prefix {string:?}");
        assert_eq!(list(&admin, owner).await, [string], "owner {string:?}");
        assert_eq!(fixture.info(string).await.owner.as_deref(), Some(string));
    }
    for string in STRINGS {
        assert_eq!(admin.release_owner(string).await.unwrap(), 1, "owner {string:?}");
    }
}

async fn a_lock_is_held_expired_or_released(fixture: Fixture) {
    let (holder, owner) = (fixture.process("holder"), Some("holder"));
    let guard = holder.lock("held").await.unwrap();
    let _expired = expired(&fixture, "holder", "expired").await;
    acquire_and_release(&holder.lock("released")).await;
    acquire_and_release(&holder.lock("closed").min_hold(AMPLE * 10)).await;

    let held = fixture.info("held").await;
    assert_eq!((&*held.name, held.fencing_token), ("held", guard.fencing_token()));
    assert_eq!(state_and_owner(&held), (LockState::Held, owner));
    assert!(held.remaining > Duration::ZERO, "{held:?}");
    assert!(held.remaining <= lasts(&held), "{held:?}");

    let expired = fixture.info("expired").await;
    assert_eq!(state_and_owner(&expired), (LockState::Expired, owner));
    assert_eq!(expired.remaining, Duration::ZERO);
    assert_eq!(lasts(&expired), SHORT);

    let released = fixture.info("released").await;
    assert_eq!(state_and_owner(&released), (LockState::Released, None));
    assert_eq!(released.remaining, Duration::ZERO);

    let closed = fixture.info("closed").await;
    assert_eq!(state_and_owner(&closed), (LockState::Released, None));
    assert!(
        closed.remaining > AMPLE,
        "the minimum hold is not over: {closed:?}"
    );
    assert!(!fixture.is_free("closed").await);

    // A list returns the same values, except those that change with time.
    let admin = fixture.provider.admin();
    let listed = admin.list(LockFilter::new()).await.unwrap();
    assert_eq!(listed.len(), 4);
    for mut listed in listed {
        let alone = fixture.info(&listed.name).await;
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

async fn a_lock_is_read_by_any_displayable_name(fixture: Fixture) {
    let admin = fixture.provider.admin();
    for never in ["never", ""] {
        assert_eq!(admin.get(never).await.unwrap(), None);
    }
    acquire_and_release(&fixture.provider.lock(7)).await;
    let info = admin.get(7).await.unwrap().expect("the document is kept");
    assert_eq!(info.name, "7");
}

/// S2.6: the holder notices the loss and cannot release the next holder's lock. The next token is greater.
async fn a_lock_can_be_released_by_force(fixture: Fixture) {
    let admin = fixture.provider.admin();
    let forced = async || admin.force_release("forced").await.unwrap();
    assert!(!forced().await, "the lock does not exist");
    let victim = hold_closely(&fixture, "victim", "forced").await;
    let before = fixture.info("forced").await;

    assert!(forced().await);
    let after = fixture.info("forced").await;
    assert_eq!(state_and_owner(&after), (LockState::Released, None));
    assert_eq!(after.remaining, Duration::ZERO);
    let begun = |info: &LockInfo| (info.fencing_token, info.acquired_at);
    assert_eq!(begun(&after), begun(&before));
    assert!(!forced().await, "the lock is already free");

    let next = fixture.rival().lock("forced").acquire().await.unwrap();
    assert!(next.fencing_token() > victim.fencing_token());
    until_lost(&victim, BEFORE_EXPIRY).await;
    assert!(matches!(victim.release().await, Err(LockError::Lost { name, .. }) if name == "forced"));
    let held = fixture.info("forced").await;
    let expected = (LockState::Held, next.fencing_token());
    assert_eq!((held.state, held.fencing_token), expected);
    next.release().await.expect("the next holder still has the lock");
    assert!(!forced().await, "a released lock is free");

    let _expired = expired(&fixture, "crashed", "forced").await;
    assert!(!forced().await, "an expired lock is free");
}

/// S2.6
async fn a_forced_release_wakes_the_waiters(fixture: Fixture) {
    let victim = hold(&fixture, "victim", "awaited").await;
    // After the first few attempts polling alone would take minutes, and the holder is in another process.
    let waiter = waiter(fixture.with(seldom_polling).lock("awaited"));
    sleep(Duration::from_millis(800)).await;
    assert!(!waiter.is_finished());
    assert!(fixture.provider.admin().force_release("awaited").await.unwrap());
    // This is less than the 4 s after which the waiter would poll.
    let next = acquired(waiter, Duration::from_secs(3)).await;
    assert!(next.fencing_token() > victim.fencing_token());
}

/// With this expiry the next renewal would come only after two days.
async fn a_holder_in_the_same_process_notices_a_forced_release_at_once(fixture: Fixture) {
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let provider = fixture.with(|builder| builder.expiry(week).owner("own"));
    let held = hold_all(&provider, ["first", "second", "other"]).await;
    assert!(provider.admin().force_release("first").await.unwrap());
    until_lost(&held[0], AMPLE).await;
    assert!(!held[1].is_lost() && !held[2].is_lost());

    let rival = fixture.rival().admin();
    assert!(rival.force_release("second").await.unwrap());
    assert_eq!(provider.admin().release_owner("own").await.unwrap(), 1);
    for guard in &held[1..] {
        until_lost(guard, AMPLE).await;
    }
}

async fn a_minimum_hold_can_be_ended_by_force(fixture: Fixture) {
    let lock = fixture.process("early").lock("closed").min_hold(AMPLE * 10);
    acquire_and_release(&lock).await;
    assert!(!fixture.is_free("closed").await);
    let admin = fixture.provider.admin();
    let no_names: [&str; 0] = [];
    assert_eq!(list(&admin, LockFilter::new().owner("early")).await, no_names);
    assert!(admin.force_release("closed").await.unwrap());
    assert!(!admin.force_release("closed").await.unwrap());
    assert!(fixture.is_free("closed").await);
    acquire_and_release(&lock).await;
    assert_eq!(admin.release_owner("late").await.unwrap(), 0);
    assert_eq!(admin.release_owner("early").await.unwrap(), 1);
    assert!(fixture.is_free("closed").await);
}

/// S2.7
async fn all_locks_of_one_owner_can_be_released(fixture: Fixture) {
    let (mut others, mut gone) = (Vec::new(), Vec::new());
    for owner in ["a#b", "ab", "A", "a#"] {
        others.push(hold(&fixture, owner, &format!("of {owner}")).await);
    }
    for name in ["1", "2", "3"] {
        gone.push(hold_closely(&fixture, "a", name).await);
    }
    let _expired = expired(&fixture, "a", "expired").await;
    let admin = fixture.provider.admin();
    for unknown in ["", "#", ".", ".*", "a|ab", "b", "unknown"] {
        assert_eq!(admin.release_owner(unknown).await.unwrap(), 0, "{unknown:?}");
    }

    assert_eq!(admin.release_owner("a").await.unwrap(), 3);
    assert_eq!(admin.release_owner("a").await.unwrap(), 0);
    let released = LockFilter::new().state(LockState::Released);
    assert_eq!(list(&admin, released).await, ["1", "2", "3"]);
    for guard in gone {
        assert!(fixture.is_free(guard.name()).await);
        until_lost(&guard, BEFORE_EXPIRY).await;
        assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    }
    for guard in others {
        assert!(!fixture.is_free(guard.name()).await);
        let released = guard.release().await;
        released.expect("the operator did not release this lock");
    }
}

/// B15
async fn a_request_whose_future_is_dropped_is_carried_out(fixture: Fixture) {
    let admin = fixture.provider.admin();
    let (_first, _second) = (hold(&fixture, "one", "1").await, hold(&fixture, "two", "2").await);
    // The first poll sends the request, and the future is dropped before the reply.
    let polled = admin.force_release("1").into_future().now_or_never();
    assert!(polled.is_none());
    let polled = admin.release_owner("two").into_future().now_or_never();
    assert!(polled.is_none());
    for name in ["1", "2"] {
        let released = async || (fixture.info(name).await.state == LockState::Released).then_some(());
        must(eventually(AMPLE, "it is released", released).await);
    }
}

async fn admin_requests_work_after_shutdown(fixture: Fixture) {
    let _held = hold(&fixture, "other", "held").await;
    let provider = fixture.with(|builder| builder);
    provider.shutdown().await;
    let admin = provider.admin();
    assert_eq!(list(&admin, LockFilter::new()).await, ["held"]);
    assert!(admin.get("held").await.unwrap().is_some());
    assert!(admin.force_release("held").await.unwrap());
    assert_eq!(admin.release_owner("other").await.unwrap(), 0);
}
