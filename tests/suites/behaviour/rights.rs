//! The roles that the guide lists are sufficient.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{IndexState, LockError, LockFilter, LockGuard, LockProvider, LockState};
use mongolock_tests::{Commands, LentServer, Server, ServerOptions, locks, must, stable_client};

use crate::fixture::acquire_and_release;
use crate::mongosh::{PASSWORD, call};
use crate::servers::{guarded, recorded_app, restricted};
use crate::stable_api::use_everything;

const PAGE: &str = include_str!("../../../mongolock/src/guide/production.md");

/// All rights that waiters, holders and operators need.
const RIGHTS: [&str; 5] = ["find", "insert", "update", "createIndex", "changeStream"];

/// A server whose past has no events.
async fn fresh() -> Server {
    must(Server::start(ServerOptions::single().auth()).await)
}

/// The names of the commands that the server has refused for a missing right.
fn refused(commands: &Commands) -> Vec<String> {
    let mut failed = commands.failed();
    failed.retain(|failure| failure.contains("(Unauthorized)"));
    let name = |failure: &String| failure.split(':').next().unwrap_or_default().to_owned();
    failed.iter().map(name).collect()
}

#[tokio::test]
async fn five_actions_on_one_collection_are_enough() {
    let server = fresh().await;
    let (database, commands) = recorded_app(&restricted(&server, &RIGHTS).await).await;
    use_everything(&database, &commands).await;
    let stream = locks(&database).watch().await;
    stream.expect("the role allows a change stream");
    let refused = refused(&commands);
    for optional in ["listIndexes", "listCollections"] {
        assert!(refused.iter().any(|name| name == optional), "{refused:?}");
    }
}

/// A user in the database `admin` with exactly the role of the page can use everything, and no command is refused.
#[tokio::test]
async fn a_user_in_admin_with_the_role_of_the_guide_lacks_nothing() {
    let server = fresh().await;
    let root = server.client().await.unwrap().database("test");
    for comment in ["A role", "A user"] {
        call(PAGE, comment).run(&root).await;
    }
    let password = PASSWORD.replace(' ', "%20");
    let uri = server.uri().replace("/?", "/app?");
    let uri = uri.replace("root:secret@", &format!("billing:{password}@"));
    assert!(uri.contains("authSource=admin"), "{uri}");

    let (database, commands) = recorded_app(&uri).await;
    use_everything(&database, &commands).await;
    for command in "findAndModify update createIndexes listIndexes listCollections".split(' ') {
        assert!(commands.count(command) > 0, "{command} was not sent");
    }
    assert_eq!(commands.count("delete"), 0, "only the TTL index deletes");
    assert_eq!(refused(&commands), Vec::<String>::new());

    let connected = LockProvider::connect(&uri).await.unwrap();
    acquire_and_release(&connected.lock("connected")).await;

    let wrong = uri.replace("authSource=admin", "authSource=app");
    let other = LockProvider::connect(&wrong).await.unwrap();
    let error = other.lock("refused").await.unwrap_err();
    assert!(matches!(error, LockError::Mongo(_)), "{error:?}");
}

/// Two actions are enough for operators, and for the detached leases of a lock, a set and a permit that another user has
/// acquired.
#[tokio::test]
async fn who_acquires_no_lock_needs_to_find_and_update_only() {
    let server = must(LentServer::with_users().await);
    let ttl = Duration::from_secs(60);
    let owner = LockProvider::new(&server.client().await.unwrap().database("app"));
    let one = owner.lock("one").await.unwrap();
    let set = owner.lock_all(["first", "second"]).await.unwrap();
    let permit = owner.semaphore("permits", 2).await.unwrap();
    let handles = [one.detach(ttl).await.unwrap(), set.detach(ttl).await.unwrap()];
    let permit = permit.detach(ttl).await.unwrap();

    let client = must(stable_client(restricted(&server, &["find", "update"]).await).await);
    let provider = LockProvider::new(&client.database("app"));
    let permit = provider.resume_permit(&permit).await.unwrap();
    permit.release().await.unwrap();
    for handle in &handles {
        provider.extend(handle, ttl).await.unwrap();
        let guard = provider.resume(handle).await.unwrap();
        let handle = guard.detach(ttl).await.unwrap();
        assert!(provider.release(&handle).await.unwrap());
    }

    let (admin, held) = (provider.admin(), owner.lock("forced").await.unwrap());
    look(&provider, &held).await;
    assert!(admin.force_release("forced").await.unwrap());
    let gone = owner.to_builder().owner("gone").build().unwrap();
    let _held = gone.lock("gone").await.unwrap();
    assert_eq!(admin.release_owner("gone").await.unwrap(), 1);
}

async fn look(operator: &LockProvider, held: &LockGuard) {
    let filter = LockFilter::new().prefix("f").state(LockState::Held);
    assert_eq!(operator.admin().list(filter).await.unwrap().len(), 1);
    let found = operator.admin().get(held.name()).await.unwrap().unwrap();
    assert_eq!(found.fencing_token, held.fencing_token());
}

/// It is an error, and not "the lock was free". An index that an administrator has created is found without the right to create
/// one.
#[tokio::test]
async fn a_forced_release_without_the_right_to_update_is_an_error() {
    let (server, database, _) = guarded(&["find", "listIndexes"]).await;
    let locks = server.client().await.unwrap().database("app");
    call(PAGE, "The index").run(&locks).await;
    let gone = LockProvider::builder(&locks).owner("gone").build().unwrap();
    let (held, operator) = (gone.lock("forced").await.unwrap(), LockProvider::new(&database));
    look(&operator, &held).await;
    let admin = operator.admin();
    assert_eq!(admin.index_state().await, IndexState::Ready);
    for error in [
        admin.force_release("forced").await.unwrap_err(),
        admin.release_owner("gone").await.unwrap_err(),
    ] {
        assert!(matches!(&error, LockError::Mongo(_)), "{error}");
        assert!(error.to_string().contains("Unauthorized"), "{error}");
    }
}
