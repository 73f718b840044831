//! A fail point hits only the clients of one test, and tests with fail points run one after the other.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongolock_tests::{FailPoint, TestDb, must, test_db};

async fn insert(db: &TestDb) -> Result<(), Error> {
    db.database()
        .collection::<Document>("numbers")
        .insert_one(doc! { "one": 1 })
        .await
        .map(drop)
}

#[tokio::test]
async fn a_fail_point_hits_as_often_as_set_and_only_one_client() {
    let (hit, spared) = tokio::join!(test_db(), test_db());
    // 13 is Unauthorized: the driver does not retry it.
    let failing = FailPoint::on(&["insert"])
        .error_code(13)
        .times(2)
        .app_name(hit.name());
    let guard = must(failing.enable(hit.uri()).await);
    must(insert(&spared).await);
    for _ in 0..2 {
        let error = insert(&hit).await.expect_err("the fail point is set");
        assert!(
            matches!(*error.kind, ErrorKind::Command(ref error) if error.code == 13),
            "{error}"
        );
    }
    must(insert(&hit).await);
    must(guard.clear().await);
}

#[tokio::test]
async fn dropping_a_guard_clears_its_fail_point_and_admits_the_next_one() {
    let db = test_db().await;
    let failing = FailPoint::on(&["insert"])
        .error_code(13)
        .always()
        .app_name(db.name());
    for _ in 0..2 {
        let guard = must(failing.clone().enable(db.uri()).await);
        assert!(insert(&db).await.is_err());
        drop(guard);
        must(insert(&db).await);
    }
}

#[tokio::test]
async fn commands_are_delayed_lose_their_connection_or_are_not_confirmed() {
    let db = test_db().await;
    let on_insert = || FailPoint::on(&["insert"]).app_name(db.name());

    let time = Duration::from_millis(200);
    let guard = must(on_insert().block(time).enable(db.uri()).await);
    let began = Instant::now();
    must(insert(&db).await);
    assert!(began.elapsed() >= time);
    must(guard.clear().await);

    // The fail point hits twice, because the driver repeats the first attempt by itself.
    let guard = must(on_insert().close_connection().times(2).enable(db.uri()).await);
    let error = insert(&db)
        .await
        .expect_err("both attempts lose their connection");
    assert!(matches!(*error.kind, ErrorKind::Io(_)), "{error}");
    must(guard.clear().await);

    let guard = must(
        on_insert()
            .write_concern_error(64, "injected")
            .enable(db.uri())
            .await,
    );
    let error = insert(&db)
        .await
        .expect_err("the insert has a write concern error");
    let code = match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        _ => None,
    };
    assert_eq!(code, Some(64), "{error}");
    must(guard.clear().await);
}
