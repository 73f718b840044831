//! Locks that are shared with DistributedLock.MongoDB for .NET: a provider, and the commands that the .NET library
//! sends.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Collection, IndexModel};
use mongolock::{IndexState, LockError, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::time::{sleep, timeout};

use crate::competition::{Competition, SECTION, SHARED};
use crate::fixture::Fixture;
use crate::waiting::{acquired, waiter};

/// One acquisition as the .NET library makes it: a lock is free if `expiresAt` is missing or has passed, and the token
/// counts from 1.
///
/// The .NET library writes the end of a lease with `$dateAdd`, which MongoDB 4.4 does not know, and gets the same date.
pub(crate) struct DotnetLock {
    locks: Collection<Document>,
    lock_id: String,
    token: i64,
}

impl DotnetLock {
    async fn try_acquire(
        locks: &Collection<Document>,
        name: &str,
        lock_id: &str,
        millis: i64,
    ) -> Option<Self> {
        let free = doc! { "$lte": [{ "$ifNull": ["$expiresAt", DateTime::from_millis(0)] }, "$$NOW"] };
        let if_free = |new: Document, old: &str| doc! { "$cond": [free.clone(), new, old] };
        let end = doc! { "$add": ["$$NOW", millis] };
        let next = doc! { "$add": [{ "$ifNull": ["$fencingToken", 0_i64] }, 1_i64] };
        let stage = doc! { "$set": {
            "lockId": { "$cond": [free.clone(), lock_id, "$lockId"] },
            "expiresAt": if_free(end, "$expiresAt"),
            "acquiredAt": { "$cond": [free.clone(), "$$NOW", "$acquiredAt"] },
            "fencingToken": if_free(next, "$fencingToken"),
        } };
        let found = locks
            .find_one_and_update(doc! { "_id": name }, vec![stage])
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await
            .unwrap()
            .unwrap();
        (found.get_str("lockId").unwrap() == lock_id).then(|| Self {
            locks: locks.clone(),
            lock_id: lock_id.to_owned(),
            token: found.get_i64("fencingToken").unwrap(),
        })
    }

    /// An attempt for a lease that outlasts the test.
    pub(crate) async fn acquire(locks: &Collection<Document>, name: &str) -> Option<Self> {
        Self::try_acquire(locks, name, &format!("net-{}", fastrand::u64(..)), 30_000).await
    }

    /// Releases the lock as the .NET library does: it deletes the document if it is still its own.
    pub(crate) async fn release(self, name: &str) -> u64 {
        let own = doc! { "_id": name, "lockId": self.lock_id };
        self.locks.delete_one(own).await.unwrap().deleted_count
    }
}

/// The locks of a set are ordinary documents: the .NET library is refused each of them, and keeps a set out with any.
#[tokio::test]
async fn the_locks_of_a_set_are_shared_as_well() {
    let fixture = Fixture::mongodb().await;
    let (set, locks) = (fixture.provider.lock_all(["one", "two"]), fixture.locks());
    let ours = set.acquire().await.unwrap();
    for name in ["one", "two"] {
        assert!(DotnetLock::acquire(&locks, name).await.is_none(), "{name}");
    }
    let token = ours.fencing_token_of("two").unwrap().get();
    ours.release().await.unwrap();
    let theirs = DotnetLock::acquire(&locks, "two").await;
    let theirs = theirs.expect("the lock was released");
    assert_eq!(theirs.token, token + 1);
    assert!(set.try_acquire().await.unwrap().is_none());
    let waiting = waiter(set);
    assert_eq!(theirs.release("two").await, 1);
    let guard = acquired(waiting, AMPLE).await;
    assert!(guard.fencing_token_of("two").unwrap().get() > token);
    guard.release().await.unwrap();
}

/// Each library keeps the other one out and can acquire what the other one has released. Tokens rise, also after the
/// .NET library has deleted the document.
#[tokio::test]
async fn both_libraries_exclude_each_other() {
    let fixture = Fixture::mongodb().await;
    let (lock, locks) = (fixture.provider.lock("shared"), fixture.locks());
    let ours = lock.acquire().await.unwrap();
    assert!(DotnetLock::acquire(&locks, "shared").await.is_none());
    let token = ours.fencing_token().get();
    ours.release().await.unwrap();

    let theirs = DotnetLock::acquire(&locks, "shared").await;
    let theirs = theirs.expect("the lock was released");
    assert_eq!(theirs.token, token + 1);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiting = waiter(lock);
    assert_eq!(theirs.release("shared").await, 1);
    let ours = acquired(waiting, BEFORE_EXPIRY).await;
    let next = ours.fencing_token().get();
    assert!(next > token + 1, "the token rises after the deletion as well");
    ours.release().await.unwrap();
}

/// Each library can acquire an expired lock of the other one, and the former holder's release changes nothing.
#[tokio::test]
async fn both_libraries_take_over_expired_locks() {
    let fixture = Fixture::mongodb().await;
    let (lock, locks) = (fixture.provider.lock("shared"), fixture.locks());
    let theirs = DotnetLock::try_acquire(&locks, "shared", "a", 100).await.unwrap();
    let lock = lock.expiry(Duration::from_millis(200));
    let ours = lock.max_hold(Duration::ZERO).acquire().await.unwrap();
    assert!(ours.fencing_token().get() > theirs.token);
    let released = theirs.release("shared").await;
    assert_eq!(released, 0, "the document has another claim");
    let taken = async || DotnetLock::acquire(&locks, "shared").await;
    let theirs = must(eventually(AMPLE, "the end of the lease", taken).await);
    assert!(theirs.token > ours.fencing_token().get());
    assert!(matches!(ours.release().await, Err(LockError::Lost { .. })));
    let released = theirs.release("shared").await;
    assert_eq!(released, 1, "the release of the lost lock changed nothing");
}

/// A takeover margin applies to the holds of the .NET library, which has none itself.
#[tokio::test]
async fn a_margin_is_left_to_both_libraries_by_one() {
    let fixture = Fixture::mongodb().await;
    let (provider, locks) = (fixture.with(|b| b.takeover_margin(AMPLE)), fixture.locks());
    let theirs = DotnetLock::try_acquire(&locks, "shared", "a", 100).await.unwrap();
    let expired = async || {
        let info = provider.admin().get("shared").await.unwrap()?;
        (info.state == LockState::Expired).then_some(info.remaining)
    };
    let remaining = must(eventually(AMPLE, "the end of the lease", expired).await);
    assert!(remaining > AMPLE / 2, "{remaining:?}");
    assert!(provider.lock("shared").try_acquire().await.unwrap().is_none());
    let next = DotnetLock::acquire(&locks, "shared").await;
    let next = next.expect("the .NET library takes an expired lock");
    assert!(next.token > theirs.token);
    assert_eq!(next.release("shared").await, 1);
    let ours = provider.lock("shared").try_acquire().await.unwrap();
    assert!(ours.is_some(), "it is released");
}

/// The TTL index of the .NET library removes expired documents at once. Locks still work, tokens rise, and
/// `index_state` reports the conflict, and that it ends a takeover margin early.
#[tokio::test]
async fn locks_work_with_the_dotnet_index() {
    let fixture = Fixture::mongodb().await;
    let options = IndexOptions::builder().name("expiresAt_ttl".to_owned());
    let at_once = options.expire_after(Duration::ZERO).build();
    let index = IndexModel::builder().keys(doc! { "expiresAt": 1 });
    let index = index.options(at_once).build();
    fixture.locks().create_index(index).await.unwrap();
    let first = fixture.provider.lock("swept").await.unwrap();
    let token = first.fencing_token();
    first.release().await.unwrap();
    let gone = async || fixture.document("swept").await.is_none().then_some(());
    must(eventually(AMPLE, "the server removes the document", gone).await);
    let next = fixture.provider.lock("swept").await.unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    let IndexState::Conflict { reason, .. } = fixture.provider.admin().index_state().await else {
        panic!("it is a conflict");
    };
    assert!(reason.contains("`takeover_margin` ends early"), "{reason}");
}

/// The document of a permit is an ordinary one: the .NET library is refused a held permit, and a permit that it holds under
/// the reserved id is not acquired here.
#[tokio::test]
async fn permits_are_shared_as_well() {
    let fixture = Fixture::mongodb().await;
    let (semaphore, locks) = (fixture.provider.semaphore("shared", 2), fixture.locks());
    let id = |number: u32| format!("shared\u{1f}{number}");
    let ours = semaphore.acquire().await.unwrap();
    let (own, other) = (id(ours.number()), id(1 - ours.number()));
    assert!(DotnetLock::acquire(&locks, &own).await.is_none());
    let theirs = DotnetLock::acquire(&locks, &other).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "both are held");
    assert_eq!(semaphore.available().await.unwrap(), 0);

    let waiting = tokio::spawn(semaphore.acquire());
    // Its release deletes the document, and the waiter makes another one.
    assert_eq!(theirs.expect("it is free").release(&other).await, 1);
    let second = timeout(BEFORE_EXPIRY, waiting).await.expect("it is woken");
    let second = second.unwrap().unwrap();
    assert_eq!(id(second.number()), other);
    ours.release().await.unwrap();
    let after = DotnetLock::acquire(&locks, &own).await;
    assert!(after.is_some(), "a released permit is free for it");
    second.release().await.unwrap();
}

/// To the .NET library a mark is a holder: its acquire, renewal and release leave it alone. When the mark has ended, it
/// acquires the lock, and the token rises.
#[tokio::test]
async fn the_dotnet_library_leaves_marks_alone() {
    let fixture = Fixture::mongodb().await;
    let locks = fixture.locks();
    let lock = fixture.provider.lock("shared").once();
    let guard = lock.acquire().await.unwrap();
    let own = fixture.lock_id("shared").await;
    guard.done().await.unwrap();
    let marked = fixture.document("shared").await.unwrap();
    assert_eq!(marked.get_str("lockId").unwrap(), format!("done:{own}"));
    assert_eq!(
        marked.keys().collect::<Vec<_>>(),
        ["_id", "lockId", "acquiredAt", "expiresAt", "fencingToken"],
    );
    assert!(DotnetLock::acquire(&locks, "shared").await.is_none());
    let stale = DotnetLock {
        locks: locks.clone(),
        lock_id: own.clone(),
        token: 0,
    };
    let renewal = doc! { "$set": { "expiresAt": DateTime::from_millis(0) } };
    let claim = doc! { "_id": "shared", "lockId": &own };
    let renewed = locks.update_one(claim, renewal).await;
    assert_eq!(renewed.unwrap().matched_count, 0);
    assert_eq!(stale.release("shared").await, 0);
    assert_eq!(fixture.document("shared").await.unwrap(), marked);

    let over = doc! { "$set": { "expiresAt": DateTime::now() } };
    locks.update_one(doc! { "_id": "shared" }, over).await.unwrap();
    let taken = async || DotnetLock::acquire(&locks, "shared").await;
    let theirs = must(eventually(AMPLE, "the end of the mark", taken).await);
    assert_eq!(theirs.token, marked.get_i64("fencingToken").unwrap() + 1);
    let busy = lock.try_acquire().await.unwrap();
    assert!(busy.is_none(), "the .NET library holds the lock");
    assert_eq!(theirs.release("shared").await, 1);
    lock.acquire().await.unwrap().done().await.unwrap();
}

/// The .NET library sees the lock free now and then, and knows nothing of an order between processes.
#[tokio::test]
async fn processes_in_turn_share_with_dotnet() {
    let fixture = Fixture::mongodb().await;
    let locks = fixture.locks();
    let competition = Competition::begin(&[fixture.process("a"), fixture.process("b")]);
    let dotnet = tokio::spawn(async move {
        let mut turns = 0;
        while turns < 3 {
            if let Some(lock) = DotnetLock::acquire(&locks, SHARED).await {
                turns += 1;
                sleep(SECTION).await;
                assert_eq!(lock.release(SHARED).await, 1, "nobody else has taken it");
            }
            // Its pauses while the lock is held.
            sleep(Duration::from_millis(fastrand::u64(10..=800))).await;
        }
    });
    competition.until_each_had(20).await;
    let ended = timeout(AMPLE, dotnet).await;
    ended.expect(".NET has its turns").unwrap();
    competition.until_each_had(20).await;
    competition.end().await;
}
