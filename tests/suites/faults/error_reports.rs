//! What an error says to a program that prints it with its sources, and what it never says.

use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind};
use mongolock::{IndexState, LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, LentServer, must, test_db, with_parameter};

use crate::{STEPPED_DOWN, assert_free, closed_address, connect, fail, foreign_transaction, until_indexed};

/// A password that no text of an error may have in it.
const PASSWORD: &str = "hunter2";

/// The error of an acquire that ends after this time.
async fn error_within(provider: &LockProvider, limit: u64) -> LockError {
    let lock = provider.lock("reported");
    let lock = lock.acquire_timeout(Duration::from_millis(limit));
    lock.await.unwrap_err()
}

/// The runs of three words that stand in more than one element of the chain of sources.
fn repeated(error: &LockError) -> Vec<String> {
    let report = anyhow::Error::from(error.clone());
    let mut seen = HashSet::new();
    let mut repeated = Vec::new();
    for element in report.chain() {
        let text = element.to_string();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let runs: HashSet<String> = words.windows(3).map(|run| run.join(" ")).collect();
        repeated.extend(runs.iter().filter(|run| seen.contains(*run)).cloned());
        seen.extend(runs);
    }
    repeated
}

/// Asserts that the text is one short line, and that the driver's error behind it repeats nothing of it.
pub(crate) fn is_told_once(error: &LockError) {
    let text = error.to_string();
    assert!(text.len() < 160 && !text.contains('\n'), "{text}");
    assert_eq!(
        repeated(error),
        [""; 0],
        "{:#}",
        anyhow::Error::from(error.clone())
    );
}

/// Asserts that the driver's error is behind the one of the library.
pub(crate) fn has_its_source(error: &LockError) {
    let source = error.source().and_then(|source| source.downcast_ref::<Error>());
    assert!(source.is_some(), "{error:?}");
}

/// The kind of the driver's error, which the source has as well.
fn kind(error: &LockError) -> &ErrorKind {
    let LockError::Mongo(driver_error) = error else {
        panic!("{error:?}")
    };
    has_its_source(error);
    &driver_error.kind
}

#[tokio::test]
async fn an_error_of_the_driver_is_told_once_and_keeps_its_kind() {
    let db = test_db().await;
    let provider = LockProvider::new(db.database());
    assert_free(&provider, "reported").await;

    let command = |code| FailPoint::on(&["findAndModify"]).always().error_code(code);
    for (code, name) in [(13, "Unauthorized"), (STEPPED_DOWN, "PrimarySteppedDown")] {
        let _point = fail(&db, command(code)).await;
        let error = error_within(&provider, 1500).await;
        let text = format!("MongoDB refused an operation (error {code}, {name})");
        assert_eq!(error.to_string(), text);
        assert!(
            matches!(kind(&error), ErrorKind::Command(error) if error.code == code),
            "{error:?}"
        );
        is_told_once(&error);
    }

    let unconfirmed = FailPoint::on(&["findAndModify"])
        .always()
        .write_concern_error(64, "waiting timed out");
    let point = fail(&db, unconfirmed).await;
    let error = error_within(&provider, 1500).await;
    point.clear().await.unwrap();
    assert!(
        error
            .to_string()
            .starts_with("MongoDB did not confirm a write (error 64"),
        "{error}"
    );
    assert!(matches!(kind(&error), ErrorKind::Write(_)), "{error:?}");
    is_told_once(&error);

    let point = fail(&db, FailPoint::on(&["findAndModify"]).always().close_connection()).await;
    let error = error_within(&provider, 1500).await;
    point.clear().await.unwrap();
    assert_eq!(error.to_string(), "the connection to MongoDB failed");
    // The release of an earlier call, which is repeated, may have been cut off.
    let is_cut = matches!(
        kind(&error),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }
    );
    assert!(is_cut, "{error:?}");
    is_told_once(&error);
}

/// A release in the background goes on. Meanwhile the caller learns the same as that of an acquire in this state.
#[tokio::test]
async fn a_release_of_a_blocked_document_has_the_words_of_an_acquire() {
    let db = test_db().await;
    let provider = LockProvider::new(db.database());
    assert_free(&provider, "reported").await;
    let guard = provider.lock("released").await.unwrap();
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &["reported", "released"]).await;
    let (error, acquire) = tokio::join!(guard.release(), error_within(&provider, 1500));
    let error = error.unwrap_err();
    let text = acquire.to_string().replace("`reported`", "`released`");
    assert!(text.contains("an open transaction"), "{text}");
    assert_eq!(error.to_string(), text);
    assert_eq!(error.help(), acquire.help());
    has_its_source(&error);
    is_told_once(&error);
    session.abort_transaction().await.unwrap();
    assert_free(&provider, "released").await;
}

/// The server's own text has the whole command in it, and the driver's the whole reply.
#[tokio::test]
async fn no_text_of_the_library_has_a_dump_of_the_driver_in_it() {
    let server = must(LentServer::with_users().await);
    let app = server.client().await.unwrap().database("app");
    let create = doc! { "createUser": "anna", "pwd": "anna", "roles": [] };
    app.run_command(create).await.unwrap();
    let uri = server.uri().replace("root:secret@", "anna:anna@");
    let uri = uri.replace("authSource=admin", "authSource=app");
    let provider = LockProvider::connect(&uri).await.unwrap();
    let lock = provider.lock("refused").acquire_timeout(AMPLE);
    let error = lock.acquire().await.unwrap_err();
    let source = error.source().unwrap_or_else(|| panic!("{error}")).to_string();
    assert!(
        source.contains("findAndModify") && source.contains("lsid"),
        "{source}"
    );
    let health = serde_json::to_string(&provider.health().await).unwrap();
    let IndexState::Unauthorized { reason } = provider.admin().index_state().await else {
        panic!("the user may not create an index");
    };
    let told = "error 13, Unauthorized";
    for text in [error.to_string(), health, reason] {
        assert!(text.contains(told), "{text}");
        assert!(text.len() < 600, "{text}");
        for dump in ["$", "lsid", "kind:", "Kind:", "labels"] {
            assert!(!text.contains(dump), "{text}");
        }
    }

    let documents =
        doc! { "insert": "distributed_locks", "documents": [{ "_id": "damaged", "fencingToken": "none" }] };
    app.run_command(documents).await.unwrap();
    let provider = LockProvider::connect(server.uri()).await.unwrap();
    let provider = provider.to_builder().database("app").build().unwrap();
    let lock = provider.lock("damaged").try_acquire().await;
    let set = provider.lock_all(["damaged", "other"]).try_acquire().await;
    for tried in [lock, set] {
        let text = tried.unwrap_err().to_string();
        assert!(text.contains("damaged") && text.len() < 200, "{text}");
        assert!(
            !text.contains("kind:") && !text.contains("PlanExecutor"),
            "{text}"
        );
    }
}

/// A client of the application sends its events to the application only: the driver's own error is passed on when there is one,
/// and until then the help says how to get it.
#[tokio::test]
async fn a_server_that_an_applications_client_does_not_reach_is_told_once() {
    let address = closed_address();
    let uri = format!("mongodb://{address}/?directConnection=true");
    let quick = with_parameter(&uri, "serverSelectionTimeoutMS=100");
    let quick = LockProvider::new(&connect(&quick, "app").await);
    let error = error_within(&quick, 1000).await;
    let text = format!("MongoDB at {address} cannot be reached: Connection refused");
    assert_eq!(error.to_string(), text);
    assert!(
        matches!(&error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }))
    );
    let report = format!("{:#}", anyhow::Error::from(error.clone()));
    assert!(
        report.contains(&address.to_string()) && report.contains("refused"),
        "{report}"
    );
    is_told_once(&error);

    let slow = LockProvider::new(&connect(&uri, "app").await);
    let error = error_within(&slow, 1000).await;
    let text = error.to_string();
    assert!(
        text.starts_with("MongoDB did not answer the acquire request within "),
        "{text}"
    );
    assert!(error.help().contains("serverSelectionTimeoutMS"));
    is_told_once(&error);
}

/// Asserts that no form of the error has the password in it.
fn is_discreet(error: &LockError) {
    let report = anyhow::Error::from(error.clone());
    let texts = format!("{error} {error:?} {report:#} {report:?} {}", error.help());
    assert!(!texts.contains(PASSWORD), "{texts}");
}

#[tokio::test]
async fn no_error_has_the_password_of_the_connection_string_in_it() {
    let server = must(LentServer::with_users().await);
    let wrong = server.uri().replace("root:secret@", &format!("root:{PASSWORD}@"));
    let closed = format!("mongodb://root:{PASSWORD}@{}/", closed_address());
    for (uri, start) in [
        (wrong, "MongoDB refused the login"),
        (closed, "MongoDB at 127.0.0.1:"),
    ] {
        let provider = LockProvider::connect(&uri).await.unwrap();
        let error = provider.lock("secret").try_acquire().await.unwrap_err();
        assert!(error.to_string().starts_with(start), "{error}");
        is_discreet(&error);
        assert!(!format!("{provider:?} {:?}", provider.to_builder().build()).contains(PASSWORD));
    }
    for uri in [
        format!("mongodb://root:{PASSWORD}/"),
        format!("mongodb://root:{PASSWORD}@127.0.0.1:x/"),
        format!("mongodb://root:a?{PASSWORD}@127.0.0.1/"),
        format!("mongodb:/root:{PASSWORD}@127.0.0.1/"),
    ] {
        is_discreet(&LockProvider::connect(&uri).await.unwrap_err());
    }
}
