//! A fail point hits as often as it is set, and only the clients of one test.

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongolock_tests::{FailPoint, TestDb, must, test_db};

async fn insert(db: &TestDb) -> Result<(), Error> {
    let numbers = db.database().collection::<Document>("numbers");
    numbers.insert_one(doc! { "one": 1 }).await.map(drop)
}

/// A fail point with an error that the driver does not retry: Unauthorized.
fn failing() -> FailPoint {
    FailPoint::on(&["insert"]).error_code(13)
}

#[tokio::test]
async fn a_fail_point_hits_as_often_as_set_and_only_one_client() {
    let (hit, spared) = tokio::join!(test_db(), test_db());
    let failing = failing().times(2).app_name(hit.name());
    let guard = must(failing.enable(hit.uri()).await);
    must(insert(&spared).await);
    for _ in 0..2 {
        let error = insert(&hit).await.expect_err("the fail point is set");
        let is_meant = matches!(*error.kind, ErrorKind::Command(ref error) if error.code == 13);
        assert!(is_meant, "{error}");
    }
    must(insert(&hit).await);
    must(guard.clear().await);
}

/// A test whose fault hits nothing shows nothing: it fails.
#[tokio::test]
async fn a_fail_point_that_hits_nothing_is_an_error() {
    let db = test_db().await;
    let guard = must(failing().enable_for(&db).await);
    let error = guard.clear().await.expect_err("nothing was inserted");
    assert!(error.to_string().contains(r#""insert""#), "{error}");

    let guard = must(failing().enable_for(&db).await);
    let dropped = std::thread::spawn(|| drop(guard)).join();
    assert!(dropped.is_err(), "dropping it panics");

    let guard = must(failing().enable_for(&db).await);
    assert_eq!(must(guard.hits().await), 0, "the caller expects none");
    must(insert(&db).await);
}
