//! `log` where the oplog has forgotten a part of the past. Filling the oplog makes this test one of the longest ones. Tests start in
//! the order of their names, so it is among the first.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must, test_db};
use serde_json::Value;
use tokio::time::sleep;

use crate::fixture::{at, output};
use crate::log::{log_at, now_as_text, told, turn};

/// What the oplog has forgotten is not known: a turn that has begun before is shown as far as the documents tell.
#[tokio::test]
async fn a_wrapped_oplog_hides_what_the_documents_do_not_tell() {
    // The oplog since the last checkpoint is kept, so there is one each second.
    let options = ServerOptions::single().argument("--syncdelay").argument("1");
    let server = must(Server::start(options).await);
    let db = test_db().await;
    let client = must(server.client().await);
    let database = client.database(db.name());
    let anna = LockProvider::builder(&database).owner("anna");
    let anna = must(anna.build());
    let released = must(anna.lock("a:released").acquire().await);
    let again = must(anna.lock("b:again").acquire().await);
    let held = must(anna.lock("c:held").acquire().await);
    turn(&anna, "d:before").await;
    let before = now_as_text(&database).await;
    let first_line = || {
        let (code, out, said) = output(at(&server.uri(), &db, &["log", "--json", "--at", "0s"]));
        assert_eq!((code, said.as_str()), (Some(0), ""));
        let line: Value = must(serde_json::from_str(out.lines().next().unwrap_or_default()));
        line
    };
    assert_eq!(first_line()["remembers_since"], Value::Null);
    must(released.release().await);
    let released = must(anna.lock("a:released").acquire().await);

    let filler = client.database("filler").collection::<Document>("filler");
    let text = "x".repeat(1_000_000);
    let wrapped = eventually(AMPLE, "the end of the first part of the oplog", || async {
        for _ in 0..20 {
            must(filler.insert_one(doc! { "text": &text }).await);
        }
        let earliest = first_line()["remembers_since"].clone();
        earliest
            .as_str()
            .filter(|earliest| *earliest > before.as_str())
            .map(str::to_owned)
    });
    let earliest = must(wrapped.await);
    // The second in which the oplog begins is not remembered as a whole.
    sleep(Duration::from_secs(2)).await;
    must(released.release().await);
    must(again.release().await);
    turn(&anna, "b:again").await;

    let turns = log_at(&server.uri(), &db, &[]);
    let wanted = [
        "b:again anna released",
        "a:released ? released",
        "c:held anna held",
        "b:again ? released",
    ];
    assert_eq!(told(&turns), wanted, "the latest beginning is first");
    // The document of a released lock keeps the time of its acquisition, until the next one.
    let from = turns[1]["from"].as_str().unwrap_or("none");
    assert!(from < earliest.as_str(), "{from}");
    must(held.release().await);
}
