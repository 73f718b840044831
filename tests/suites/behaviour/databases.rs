//! Databases that cannot have locks: `local`, which is not replicated, and `admin` and `config`, which have no transactions and
//! no change streams.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use mongolock::{LeaseHandle, LockError, LockFilter, LockProvider, blocking, distributed_lock};
use mongolock_tests::{must, recorded, test_db};

use crate::conformance::kind::CALLS;
use crate::fixture::acquire_and_release;

const REFUSED: [&str; 3] = ["local", "admin", "config"];

/// Asserts that the error names the database and the reason, and that its help has the strings to write.
fn assert_refused(name: &str, error: &LockError) {
    let reason = if name == "local" {
        "no member replicates it, so that after a failover two processes could hold one lock"
    } else {
        "it has no transactions and no change streams, which locks need"
    };
    let expected = format!("option `database` is {name:?}: {reason}");
    assert_eq!(error.to_string(), expected);
    for written in ["mongodb://host/app?authSource=admin", ".database(\"app\")"] {
        assert!(error.help().contains(written), "{}", error.help());
    }
}

/// The handle of a lease in the default collection of a database, on the lock with this id as JSON has it.
fn handle(database: &str, id: &str) -> LeaseHandle {
    let content = format!(
        r#"{{"c":"{database}.distributed_locks","n":["{id}"],"i":0,"o":"anna","t":[1],"l":60000,"m":0,"s":[1,2]}}"#
    );
    must(format!("mlh1.{}", BASE64_URL_SAFE_NO_PAD.encode(content)).parse())
}

#[distributed_lock(name = "job")]
async fn job() -> Result<(), LockError> {
    unreachable!("no lock is acquired")
}

#[tokio::test]
async fn connecting_and_building_refuse_them() {
    let db = test_db().await;
    let client = db.database().client();
    for name in REFUSED {
        for options in ["", "?replicaSet=mongolock", "?authSource=admin"] {
            let uri = format!("mongodb://localhost/{name}{options}");
            assert_refused(name, &LockProvider::connect(&uri).await.unwrap_err());
        }
        let built = LockProvider::builder(&client.database(name)).build();
        assert_refused(name, &built.unwrap_err());
        let built = LockProvider::builder(db.database()).database(name).build();
        assert_refused(name, &built.unwrap_err());
        let connected = must(LockProvider::connect("mongodb://localhost/app").await);
        assert_refused(name, &connected.to_builder().database(name).build().unwrap_err());
    }
}

#[test]
fn a_program_without_async_code_is_refused_them_as_well() {
    for name in REFUSED {
        let uri = format!("mongodb://localhost/{name}");
        assert_refused(name, &blocking::LockProvider::connect(&uri).unwrap_err());
        let other = blocking::LockProvider::connect_with(&uri, |builder| builder.database("app"));
        other.expect("the builder names another database");
    }
}

/// The path of the string is where the driver looks for the user, and need not be where the locks are.
#[tokio::test]
async fn a_string_or_a_client_for_admin_with_another_database_is_no_fault() {
    let db = test_db().await;
    let in_admin = db.database().client().database("admin");
    let provider = LockProvider::builder(&in_admin).database(db.name()).build();
    acquire_and_release(&provider.unwrap().lock("job")).await;
    for uri in [
        "mongodb://anna:secret@localhost/app?authSource=admin",
        "mongodb://anna:secret@localhost/?authSource=admin",
        "mongodb://localhost/administration",
    ] {
        LockProvider::connect(uri).await.expect(uri);
    }
}

#[tokio::test]
async fn each_call_of_a_provider_on_one_of_them_fails_and_sends_nothing() {
    let db = test_db().await;
    for name in REFUSED {
        let (database, commands) = recorded(&db, &[]).await;
        let provider = LockProvider::new(&database.client().database(name));
        let refused = |error: LockError| assert_refused(name, &error);
        let lock = provider.lock("job");
        for kind in CALLS {
            let target = kind.of(&provider, None);
            refused(target.acquire().await.err().unwrap());
            refused(target.try_acquire().await.err().unwrap());
            refused(target.run(async |_| Ok::<_, LockError>(())).await.unwrap_err());
        }
        refused(lock.clone().acquire_timeout(None).acquire().await.unwrap_err());
        refused(provider.scope(job()).await.unwrap_err());
        refused(provider.semaphore("job", 3).available().await.unwrap_err());
        refused(lock.once().acquire().await.unwrap_err());

        let (of_lock, of_permit) = (handle(name, "job"), handle(name, r"job\u001f1"));
        refused(provider.resume(&of_lock).await.unwrap_err());
        refused(provider.resume_permit(&of_permit).await.unwrap_err());
        let extended = provider.extend(&of_lock, Duration::from_secs(60)).await;
        refused(extended.unwrap_err());
        refused(provider.release(&of_lock).await.unwrap_err());

        let admin = provider.admin();
        refused(admin.get("job").await.unwrap_err());
        refused(admin.list(LockFilter::new()).await.unwrap_err());
        let streamed = admin.stream(LockFilter::new()).next().await;
        refused(streamed.expect("an error").unwrap_err());
        refused(admin.force_release("job").await.unwrap_err());
        refused(admin.release_owner("anna").await.unwrap_err());
        let event = admin.events(LockFilter::new()).next().await;
        refused(event.expect("an error").unwrap_err());
        let index = admin.index_state().await.to_string();
        assert!(index.contains(name), "{index}");

        assert!(!provider.is_ready().await);
        let health = provider.health().await;
        assert!(!health.is_reachable && !health.has_primary);
        refused(health.error.expect("an error"));
        provider.shutdown().await;
        assert_eq!(commands.all().len(), 0, "{:?}", commands.all());
    }
}
