//! Sessions without a transaction that a lock could guard.

use mongolock::{LockError, LockProvider};
use mongolock_tests::{Server, ServerOptions, must};

use super::{Way, begin, is_committed, prepared, session};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_transaction_begun_before_the_lock_is_refused() {
    let fixture = prepared().await;
    let mut session = session(&fixture).await;
    for way in Way::BOTH {
        begin(&fixture, &mut session).await;
        let guard = fixture.provider.lock("a").await.unwrap();
        let refused = way.commit(&guard.context(), &mut session).await;
        assert!(
            matches!(&refused, Err(LockError::NoTransaction { reason, .. }) if reason.contains("under the lock")),
            "{way:?}: {refused:?}"
        );
        assert!(!guard.is_lost());
        assert!(!is_committed(&fixture).await);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_without_a_transaction_is_refused() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    let memory = Fixture::memory().provider.lock("a").await.unwrap();
    for way in Way::BOTH {
        let none = way.commit(&guard.context(), &mut session).await;
        assert!(
            matches!(&none, Err(LockError::NoTransaction { name, reason, .. }) if name == "a" && reason.contains("standalone")),
            "{way:?}: {none:?}"
        );
        let none = way.commit(&memory.context(), &mut session).await;
        assert!(
            matches!(&none, Err(LockError::NoTransaction { reason, .. }) if reason.contains("in memory")),
            "{way:?}: {none:?}"
        );
    }
    memory.release().await.unwrap();
    guard.release().await.unwrap();
}

/// A standalone server has no transactions, and refuses the first statement of one: the guard, or one before it.
#[tokio::test]
async fn a_commit_on_a_standalone_server_is_refused() {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let client = must(server.client().await);
    let provider = LockProvider::new(&client.database("app"));
    let guard = provider.lock("a").await.unwrap();
    let mut session = client.start_session().await.unwrap();
    for (begins, way) in [true, false]
        .into_iter()
        .flat_map(|begins| Way::BOTH.map(|way| (begins, way)))
    {
        if begins {
            session.start_transaction().await.unwrap();
        }
        let none = way.commit(&guard.context(), &mut session).await;
        assert!(
            matches!(&none, Err(LockError::NoTransaction { name, reason, .. }) if name == "a" && reason.contains("standalone")),
            "{way:?}: {none:?}"
        );
    }
    guard.release().await.unwrap();
}
