use mongodb::options::ClientOptions;
use mongolock::LockProvider;
use mongolock_tests::{must, test_db};

use super::*;
use crate::driver;
use crate::log::{Hold, Key};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The statements for an event of a lock, whose hold is known as it is in events: an end does not name it.
fn event(what: What, at: i64, permit: Option<u32>, hold: Option<(i64, i64)>) -> Vec<Document> {
    let hold = hold.map(|(token, from)| Hold {
        owner: None,
        lock_id: Some(format!("anna#{token}-{at}")),
        token: Some(token).filter(|_| permit.is_none()),
        acquired_at: Some(DateTime::from_millis(from)),
    });
    let name = "a".to_owned();
    statements(Event {
        what,
        at: DateTime::from_millis(at),
        key: Key { name, permit },
        hold: hold.unwrap_or_default(),
        expires_at: None,
    })
}

/// All that two recorders may write one after the other: what one of them has written, and then the first of its batches again.
#[tokio::test]
async fn a_late_recorder_changes_nothing() {
    let db = test_db().await;
    let name = "distributed_locks.history";
    let collections = Collections {
        provider: must(LockProvider::builder(db.database()).build()),
        database: db.database().clone(),
        locks: db.database().collection("distributed_locks"),
        waiters: db.database().collection("distributed_locks.waiters"),
        history: db.database().collection(name),
        options: ClientOptions::default(),
        retention: DAY,
    };
    must(
        set_up(&collections, DAY)
            .await
            .map_err(|failure| failure.to_string()),
    );
    let lost = end(
        doc! { "to": { "$type": "object" } },
        DateTime::from_millis(50),
        End::Unknown,
    );
    let held = What::Present(Some(End::Held));
    let batches = [
        event(What::Acquired, 10, None, Some((1, 9))),
        event(What::Acquired, 12, Some(3), Some((1, 11))),
        // The command that acquires may begin before the release is written.
        [
            event(What::Ended(End::Released), 20, None, None),
            event(What::Acquired, 21, None, Some((2, 19))),
        ]
        .concat(),
        event(What::Changed, 25, None, Some((2, 19))),
        event(What::Ended(End::Released), 26, Some(3), None),
        event(What::Acquired, 30, None, Some((3, 30))),
        [
            event(What::Ended(End::Done), 40, None, None),
            event(What::Acquired, 40, None, Some((4, 40))),
        ]
        .concat(),
        event(What::Acquired, 45, Some(3), Some((1, 44))),
        [vec![lost], event(held, 60, None, Some((4, 40)))].concat(),
        event(What::Ended(End::ExpiredBy), 70, None, None),
    ];
    let run = async |statements: &[Document]| {
        let written = write(&collections, statements.to_vec()).await;
        must(written.map_err(|failure| failure.to_string()));
        must(driver::all(collections.history.find(doc! {}).sort(doc! { "_id": 1 }).await).await)
    };
    for last in 0..batches.len() {
        let turns = run(&batches[last]).await;
        for again in 0..=last {
            let late = run(&batches[..=again].concat()).await;
            assert_eq!(
                late, turns,
                "batches up to {again} again, after those up to {last}"
            );
        }
    }
    let mut ends: Vec<(i64, Option<String>)> = Vec::new();
    for turn in must(driver::all(collections.history.find(doc! {}).sort(doc! { "from": 1 }).await).await) {
        let from = must(turn.get_datetime("from")).timestamp_millis();
        ends.push((from, turn.get_str("end").ok().map(str::to_owned)));
    }
    let wanted = [
        (9, "released"),
        (11, "released"),
        (19, "expired_by"),
        (30, "done"),
        (40, "expired_by"),
        (44, "unknown"),
    ];
    assert_eq!(ends, wanted.map(|(from, end)| (from, Some(end.to_owned()))));
}
