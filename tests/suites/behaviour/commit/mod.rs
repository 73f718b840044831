//! Transactions that are committed only if the lock is still held.

mod done;
mod guard;
mod repetition;
mod slow_commit;

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Client, ClientSession, Collection};
use mongolock::{DistributedLock, LockContext, LockError, LockGuard};
use mongolock_tests::{FailPoint, FailPointGuard, change_lock, must, stable_options};

use crate::fixture::Fixture;

/// What a guarded commit does with the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Keeps,
    Marks,
}

impl Way {
    const ALL: [Self; 2] = [Self::Keeps, Self::Marks];

    /// A lock that can be committed in this way.
    fn lock(self, fixture: &Fixture, name: &str) -> DistributedLock {
        let lock = fixture.provider.lock(name);
        if self == Self::Marks { lock.once() } else { lock }
    }

    async fn commit(self, context: &LockContext, session: &mut ClientSession) -> Result<(), LockError> {
        match self {
            Self::Keeps => context.commit(session).await,
            Self::Marks => context.commit_done(session).await,
        }
    }
}

/// A fixture whose collections and indexes exist: MongoDB cannot begin a transaction on a collection while it creates
/// the collection or an index on it.
async fn prepared() -> Fixture {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    fixture.database().create_collection("accounts").await.unwrap();
    fixture
}

async fn session(fixture: &Fixture) -> ClientSession {
    fixture.database().client().start_session().await.unwrap()
}

fn accounts(fixture: &Fixture) -> Collection<Document> {
    fixture.database().collection("accounts")
}

/// The accounts through the client of this session.
fn accounts_of(fixture: &Fixture, session: &ClientSession) -> Collection<Document> {
    let database = session.client().database(fixture.db().name());
    database.collection("accounts")
}

/// Begins a transaction that inserts account 1.
async fn begin(fixture: &Fixture, session: &mut ClientSession) {
    begin_with(fixture, session, 1).await;
}

/// Begins a transaction that inserts this account.
async fn begin_with(fixture: &Fixture, session: &mut ClientSession, id: i32) {
    session.start_transaction().await.unwrap();
    let accounts = accounts_of(fixture, session);
    insert(&accounts, session, id).await.unwrap();
}

/// Inserts an account within the session's transaction.
async fn insert(
    accounts: &Collection<Document>,
    session: &mut ClientSession,
    id: i32,
) -> mongodb::error::Result<()> {
    let inserting = accounts.insert_one(doc! { "_id": id });
    inserting.session(session).await.map(drop)
}

/// A holder of the lock `a` with these options whose transaction has inserted account 1.
async fn holder_in_transaction(
    options: impl FnOnce(DistributedLock) -> DistributedLock,
) -> (Fixture, LockGuard, ClientSession) {
    let fixture = prepared().await;
    let guard = options(fixture.provider.lock("a")).await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    (fixture, guard, session)
}

/// A session of another client, whose commits meet this fault.
async fn failing_session(fixture: &Fixture, fault: FailPoint) -> (ClientSession, FailPointGuard) {
    let own = format!("{}_commits", fixture.db().name());
    let mut options = must(stable_options(fixture.db().uri()).await);
    options.app_name = Some(own.clone());
    let client = Client::with_options(options).unwrap();
    let failing = must(fault.app_name(&own).enable(fixture.db().uri()).await);
    (client.start_session().await.unwrap(), failing)
}

/// A session whose next commit takes 3 s, longer than the leases of the tests that use it.
async fn slow_session(fixture: &Fixture) -> (ClientSession, FailPointGuard) {
    let slow = FailPoint::on(&["commitTransaction"]).block(Duration::from_secs(3));
    failing_session(fixture, slow).await
}

async fn is_committed(fixture: &Fixture) -> bool {
    let found = accounts(fixture).find_one(doc! { "_id": 1 }).await;
    found.unwrap().is_some()
}

/// Frees the lock by changing its document, which the holder does not notice, and acquires it for a rival.
async fn take_over(fixture: &Fixture, name: &str) -> LockGuard {
    let freed = doc! { "$set": { "lockId": "", "expiresAt": DateTime::from_millis(0) } };
    change_lock(fixture.database(), name, freed).await;
    fixture.rival().lock(name).acquire().await.unwrap()
}
