//! `LockAdmin`: listing the locks of all processes, and releasing them by force, also only the hold that an operator has looked at.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::{FencingToken, LockAdmin, LockError, LockFilter, LockGuard, LockInfo, LockState, LossReason};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, claim};

use crate::conformance::conformance;
use crate::fixture::{
    Fixture, GUID, acquire_and_release, assert_lost, foreign, renewing, until_expired, until_lost,
};

conformance!(
    a_lock_can_be_released_by_force,
    a_list_meets_every_condition_of_its_filter,
    prefixes_and_owners_are_matched_literally,
    a_lock_is_held_expired_or_released,
    all_locks_of_one_owner_can_be_released,
);

/// How far the begin of a damaged hold lies ahead: no test lasts as long.
const AHEAD: i64 = 3_600_000;

const SHORT: Duration = Duration::from_millis(200);

async fn hold(fixture: &Fixture, owner: &str, name: &str) -> LockGuard {
    fixture.process(owner).lock(name).await.unwrap()
}

/// The lease of a crashed process, which has expired at the server.
async fn expired(fixture: &Fixture, owner: &'static str, name: &'static str) {
    fixture.crash_holding_as(owner, name, SHORT).await;
    until_expired(&fixture.provider, name).await;
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
    expired(&fixture, "one", "job:b").await;
    let released = hold(&fixture, "one", "report:a").await;
    released.release().await.unwrap();

    let all = LockFilter::new;
    for (filter, expected) in [
        (all(), "job:a job:b job:c report:a report:b"),
        (all().prefix("job:"), "job:a job:b job:c"),
        (all().prefix("ob:"), ""),
        (all().owner("one"), "job:b job:c report:b"),
        (all().state(LockState::Held), "job:a job:c report:b"),
        (all().state(LockState::Expired), "job:b"),
        (all().state(LockState::Released), "report:a"),
        (all().owner("one").state(LockState::Held), "job:c report:b"),
        (all().owner("one").state(LockState::Released), ""),
        (all().prefix("job:").owner("one").state(LockState::Held), "job:c"),
        (all().limit(0), ""),
        (all().limit(2), "job:a job:b"),
        (all().state(LockState::Held).limit(2), "job:a job:c"),
        (all().prefix("report:").limit(1), "report:a"),
    ] {
        let found = list(&admin, filter.clone()).await;
        assert_eq!(found.join(" "), expected, "{filter:?}");
    }
}

/// Strings that serve as a name, a prefix and an owner. None of them may work as a pattern or an expression.
const STRINGS: [&str; 26] = [
    "a", "A", "aa", "ab", "a.c", "a#", "a#b", "a#b#c", "#", "a b", "^a", "a$", "$$NOW", ".*", "a|b", "[a]",
    "a{1}", "*", "\\", "\\Qa", "(?i)a", "'a'", "\"a\"", "é", "日本", "😀",
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
    expired(&fixture, "holder", "expired").await;
    acquire_and_release(&holder.lock("released")).await;
    acquire_and_release(&holder.lock("closed").min_hold(AMPLE * 10)).await;

    let lease = Duration::from_secs(15)..=Duration::from_secs(30);
    let none = Duration::ZERO..=Duration::ZERO;
    // A minimum hold is not over.
    for (name, state, owner, remaining) in [
        ("held", LockState::Held, owner, lease),
        ("expired", LockState::Expired, owner, none.clone()),
        ("released", LockState::Released, None, none),
        ("closed", LockState::Released, None, AMPLE..=AMPLE * 10),
    ] {
        let info = fixture.info(name).await;
        assert_eq!((&*info.name, state_and_owner(&info)), (name, (state, owner)));
        assert!(remaining.contains(&info.remaining), "{info:?}");
    }
    assert_eq!(fixture.info("held").await.fencing_token, guard.fencing_token());
    let lease = fixture.info("expired").await;
    let lasts = lease.expires_at.timestamp_millis() - lease.acquired_at.timestamp_millis();
    assert_eq!(u128::try_from(lasts).unwrap(), SHORT.as_millis());
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

/// S2.6: also by its token only, which is not one of a hold before or after it. The holder notices the loss and cannot release the
/// next holder's lock. The next token is greater.
async fn a_lock_can_be_released_by_force(fixture: Fixture) {
    let admin = fixture.provider.admin();
    let release = async |token: Option<FencingToken>| {
        let request = admin.force_release("stuck");
        let released = match token {
            Some(token) => request.only_if(token).await,
            None => request.await,
        };
        released.unwrap()
    };
    let lock = renewing(&fixture.rival(), SHORT).lock("stuck");
    assert!(!release(None).await, "the lock does not exist");
    acquire_and_release(&lock.clone().min_hold(AMPLE * 10)).await;
    let earlier = fixture.info("stuck").await.fencing_token;
    assert!(release(Some(earlier)).await, "its minimum hold is not over");
    assert!(!release(Some(earlier)).await, "it is free");
    for by_token in [false, true] {
        let stuck = lock.acquire().await.unwrap();
        let (token, before) = (stuck.fencing_token(), fixture.info("stuck").await);
        let later = FencingToken::from(token.get() + 1);
        for other in [earlier, FencingToken::from(0), later] {
            assert!(!release(Some(other)).await, "{other}");
        }
        drop(admin.force_release("stuck"));
        let held = stuck.ensure_held();
        held.expect("a request that is not awaited sends nothing");
        assert!(release(by_token.then_some(token)).await);
        let after = fixture.info("stuck").await;
        assert_eq!(state_and_owner(&after), (LockState::Released, None));
        assert!(after.remaining.is_zero() && after.acquired_at == before.acquired_at);
        assert_eq!((after.fencing_token, before.fencing_token), (token, token));
        assert!(!release(None).await, "it is free");
        let next = fixture.provider.lock("stuck").acquire().await.unwrap();
        assert!(next.fencing_token() > token);
        until_lost(&stuck, BEFORE_EXPIRY).await;
        assert_lost(stuck.release().await, LossReason::Gone);
        assert_eq!(fixture.info("stuck").await.fencing_token, next.fencing_token());
        next.release().await.expect("the next holder still has the lock");
    }
    expired(&fixture, "crashed", "stuck").await;
    assert!(!release(None).await, "an expired lock is free");
}

/// S2.7: an operator can work with a provider that is shut down as well.
async fn all_locks_of_one_owner_can_be_released(fixture: Fixture) {
    let (mut others, mut gone) = (Vec::new(), Vec::new());
    for owner in ["a#b", "ab", "A", "a#"] {
        others.push(hold(&fixture, owner, &format!("of {owner}")).await);
    }
    let closely = renewing(&fixture.process("a"), SHORT);
    for name in ["1", "2"] {
        gone.push(closely.lock(name).await.unwrap());
    }
    // The operator's own process knows of it before the next renewal, which comes after two days.
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let own = fixture.with(|builder| builder.expiry(week).owner("a"));
    gone.push(own.lock("3").await.unwrap());
    expired(&fixture, "a", "expired").await;
    let admin = own.admin();
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
        assert_lost(guard.release().await, LossReason::Gone);
    }
    own.shutdown().await;
    assert_eq!(admin.release_owner("ab").await.unwrap(), 1);
    for guard in others.into_iter().filter(|guard| guard.name() != "of ab") {
        assert!(!fixture.is_free(guard.name()).await);
        let released = guard.release().await;
        released.expect("the operator did not release this lock");
    }
}

/// A `lockId` that is only a GUID names no owner. Names that mongolock itself refuses can still be read and released.
#[tokio::test]
async fn locks_of_another_program_can_be_listed_and_released() {
    let fixture = Fixture::mongodb().await;
    let foreign_names = ["", "line\nbreak", "line\nbreak\n", "nul\0byte", "plain"];
    let documents = foreign_names.map(foreign);
    fixture.locks().insert_many(&documents).await.unwrap();
    let admin = fixture.provider.admin();
    let filter = LockFilter::new;
    assert_eq!(list(&admin, filter()).await, foreign_names);
    for (prefix, expected) in [("line\n", 1..3), ("nul\0", 3..4), ("\0", 0..0)] {
        let found = list(&admin, filter().prefix(prefix)).await;
        assert_eq!(found, foreign_names[expected], "{prefix:?}");
    }
    for (name, document) in foreign_names.into_iter().zip(&documents) {
        let info = fixture.info(name).await;
        let found = (&*info.name, info.owner, info.state);
        assert_eq!(found, (name, None, LockState::Held));
        assert_eq!(info.fencing_token.get(), 17);
        assert_eq!(Some(&info.acquired_at), document.get_datetime("acquiredAt").ok());
        assert_eq!(Some(&info.expires_at), document.get_datetime("expiresAt").ok());
        assert_eq!(admin.release_owner("").await.unwrap(), 0);
        assert!(admin.force_release(name).await.unwrap());
        assert!(!admin.force_release(name).await.unwrap());
    }
    let next = fixture.provider.lock("plain").await.unwrap();
    assert!(next.fencing_token().get() > 17);

    // A document whose id is not a string is no lock.
    fixture.locks().delete_many(doc! {}).await.unwrap();
    let document = doc! { "a": 1 };
    for id in [Bson::from(ObjectId::new()), 7.into(), document.into(), Bson::Null] {
        let own = claim(id, format!("me#{GUID}"), 600_000);
        fixture.locks().insert_one(own).await.unwrap();
    }
    let _lock = fixture.provider.lock("lock").await.unwrap();
    for filter in [filter(), filter().prefix(""), filter().state(LockState::Held)] {
        assert_eq!(list(&admin, filter).await, ["lock"]);
    }
    assert_eq!(admin.get(7).await.unwrap(), None);
    assert_eq!(admin.release_owner("me").await.unwrap(), 0);
}

/// Asserts that the error of a read names the document and the field, that the other locks can be read with a narrower filter, and
/// that a forced release makes the document that of a released lock.
async fn assert_named_and_set_right(fixture: &Fixture, damaged: &Document, field: &str) {
    let (name, admin) = (damaged.get_str("_id").unwrap(), fixture.provider.admin());
    let read = admin.get(name).await.map(drop);
    for read in [read, admin.list(LockFilter::new()).await.map(drop)] {
        match read.unwrap_err() {
            LockError::CorruptDocument {
                name: named, problem, ..
            } => assert!(named == name && problem.contains(field), "{damaged}: {problem}"),
            other => panic!("{damaged}: {other}"),
        }
    }
    let sound = admin.list(LockFilter::new().prefix("sound")).await.unwrap();
    assert!(sound.len() == 1 && sound[0].name == "sound");

    assert!(admin.force_release(name).await.unwrap(), "{damaged}");
    let document = fixture.document(name).await.unwrap();
    assert_eq!(document.len(), 5, "{damaged}: {document}");
    assert_eq!(document.get_str("lockId"), Ok(""), "{damaged}: {document}");
    let at = fixture.millis(name, "acquiredAt").await;
    assert_eq!(fixture.millis(name, "expiresAt").await, at);
    let token = document.get_i64("fencingToken").unwrap();
    let before = damaged.get_i64("fencingToken").unwrap_or_default();
    assert_eq!(token, before.max(at * 1000), "{damaged}");
    assert_eq!(fixture.info(name).await.state, LockState::Released);
    assert!(!admin.force_release(name).await.unwrap(), "{damaged}");
    fixture.locks().delete_one(doc! { "_id": name }).await.unwrap();
}

/// A field of another type, or without a value, in a document that begins and ends in the future. The token rises if it can be read.
#[tokio::test]
async fn a_damaged_document_is_set_right() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let _sound = fixture.provider.lock("sound").await.unwrap();
    let wrong = [
        Bson::Null,
        1.5.into(),
        vec!["a"].into(),
        doc! { "$gt": "" }.into(),
        Bson::MaxKey,
    ];
    let begin = DateTime::from_millis(DateTime::now().timestamp_millis() + AHEAD);
    for (field, token) in [
        ("lockId", 17),
        ("acquiredAt", i64::MAX / 2),
        ("expiresAt", 17),
        ("fencingToken", 17),
    ] {
        let mut sound = claim("broken $name", "anna#1", 2 * AHEAD);
        sound.extend(doc! { "acquiredAt": begin, "fencingToken": token });
        // A text is an id of whatever program.
        let text = (field != "lockId").then(|| Bson::from("$$NOW"));
        for value in wrong.iter().cloned().chain(text).map(Some).chain([None]) {
            let mut damaged = sound.clone();
            match value {
                Some(value) => drop(damaged.insert(field, value)),
                None => drop(damaged.remove(field)),
            }
            fixture.locks().insert_one(&damaged).await.unwrap();
            assert_named_and_set_right(&fixture, &damaged, field).await;
        }
    }
}
