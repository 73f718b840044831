//! Locks that are shared with DistributedLock.MongoDB for .NET: a provider, and the commands that the .NET library
//! sends.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongolock_tests::{AMPLE, eventually, must};
use tokio::time::{sleep, timeout};

use crate::conformance::kind::{CALLS, Kind};
use crate::conformance::order::{Competition, SHARED};
use crate::fixture::{FIELDS, Fixture, fields, in_time, until_expired};

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

    /// Waits for the end of a lease or a mark.
    async fn wait(locks: &Collection<Document>, name: &str) -> Self {
        let taken = async || Self::acquire(locks, name).await;
        must(eventually(AMPLE, "the end of the lease", taken).await)
    }

    /// Releases the lock as the .NET library does: it deletes the document if it is still its own.
    pub(crate) async fn release(self, name: &str) -> u64 {
        let own = doc! { "_id": name, "lockId": self.lock_id };
        self.locks.delete_one(own).await.unwrap().deleted_count
    }
}

/// Each library keeps the other one out and can acquire what the other one has released: a lock, each lock of a set, and a permit,
/// whose document has a reserved id. Tokens rise, also after the .NET library has deleted the document.
#[tokio::test]
async fn both_libraries_exclude_each_other() {
    let fixture = Fixture::mongodb().await;
    let locks = fixture.locks();
    for kind in CALLS {
        let target = kind.of(&fixture.provider, None);
        let id = |name: &&str| match kind {
            Kind::Permit => format!("{name}\u{1f}0"),
            _ => (*name).to_owned(),
        };
        for id in kind.expects().names.iter().map(id) {
            let ours = target.acquire().await.unwrap();
            let context = ours.context();
            let document = fixture.document(&id).await.unwrap();
            assert_eq!(fields(&document), FIELDS, "{id}");
            assert!(DotnetLock::acquire(&locks, &id).await.is_none(), "{id}");
            ours.release().await.unwrap();
            let theirs = DotnetLock::acquire(&locks, &id).await;
            let theirs = theirs.expect("the lock was released");
            if let Some(token) = context.fencing_token_of(&id) {
                assert_eq!(theirs.token, token.get() + 1);
            }
            assert!(target.try_acquire().await.unwrap().is_none(), "{id}");
            let (waiting, token) = (target.spawn_acquire(), theirs.token);
            assert_eq!(theirs.release(&id).await, 1);
            let next = in_time(waiting).await.unwrap().unwrap();
            let next_token = next.context().fencing_token_of(&id);
            let rises = next_token.is_none_or(|next| next.get() > token);
            assert!(rises, "also after the deletion");
            next.release().await.unwrap();
        }
    }
}

/// A takeover margin applies to the holds of the .NET library, which has none itself: it takes an expired lock, and the former
/// holder's release changes nothing.
#[tokio::test]
async fn a_margin_is_left_to_both_libraries_by_one() {
    let fixture = Fixture::mongodb().await;
    let locks = fixture.locks();
    let provider = fixture.with(|b| b.takeover_margin(AMPLE));
    let theirs = DotnetLock::try_acquire(&locks, "shared", "a", 100).await.unwrap();
    let expired = until_expired(&provider, "shared").await;
    assert!(expired.remaining > AMPLE / 2, "{expired:?}");
    assert!(provider.lock("shared").try_acquire().await.unwrap().is_none());
    let next = DotnetLock::acquire(&locks, "shared").await;
    let next = next.expect("the .NET library takes an expired lock");
    assert!(next.token > theirs.token);
    assert_eq!(theirs.release("shared").await, 0, "it has another claim");
    assert_eq!(next.release("shared").await, 1);
    let ours = provider.lock("shared").try_acquire().await.unwrap();
    assert!(ours.is_some(), "it is released");
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
    assert_eq!(fields(&marked), FIELDS);
    assert!(DotnetLock::acquire(&locks, "shared").await.is_none());
    let renewal = doc! { "$set": { "expiresAt": DateTime::from_millis(0) } };
    let claim = doc! { "_id": "shared", "lockId": &own };
    let renewed = locks.update_one(claim, renewal).await;
    assert_eq!(renewed.unwrap().matched_count, 0);
    let stale = DotnetLock {
        locks: locks.clone(),
        lock_id: own,
        token: 0,
    };
    assert_eq!(stale.release("shared").await, 0);
    assert_eq!(fixture.document("shared").await.unwrap(), marked);

    let over = doc! { "$set": { "expiresAt": DateTime::now() } };
    locks.update_one(doc! { "_id": "shared" }, over).await.unwrap();
    let theirs = DotnetLock::wait(&locks, "shared").await;
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
                sleep(Duration::from_millis(3)).await;
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
}
