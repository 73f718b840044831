//! Rows that use the clock of the server.

use std::sync::Arc;

use fastrand::Rng;
use mongodb::Database;
use mongolock_tests::test_db;

use super::case::{Case, has_new_id, seen, shown, stored};
use super::draw::{SOUND, rows, seed};
use super::{LOCKS, read, write};
use crate::meter::CommandKind;
use crate::protocol::{LockId, Ms, Row, RowOrder, Then, When, apply};
use crate::store::{MongoStore, Store};
use crate::timing::COMMAND_LIMIT;

/// The longest time from before a command to after it, in milliseconds, for which a row has gone by the server's clock.
const NEAR: Ms = 50;

/// Runs a row as the library does. Its effect must be that of the row at the time in the reply; if the reply has no time, at one
/// between the server's times just before and just after the command. Returns whether these are near each other.
async fn by_the_clock(
    database: &Database,
    store: &Store,
    kind: (&'static str, &'static str),
    rng: &mut Rng,
) -> bool {
    let clock = async || {
        let (_, now) = store.hello().await.expect("the server has a time");
        now.timestamp_millis()
    };
    let case = Case::pair(kind, 0, clock().await, rng);
    let (row, document) = (&case.rows[0], case.documents[0].as_ref());
    write(database, std::slice::from_ref(&case)).await;
    let begun = clock().await;
    let (mongo, alone) = (
        store.mongo().expect("it is on a server"),
        std::slice::from_ref(row),
    );
    let ran = mongo.run(CommandKind::Acquire, alone, RowOrder::Each, COMMAND_LIMIT);
    let ran = ran.await;
    let ended = clock().await;
    let context = format!("{kind:?}: {row:?} of {document:?} from {begun} to {ended}: {ran:?}");
    let Some(reply) = ran.ok().and_then(|mut replies| replies.pop()) else {
        panic!("{context}");
    };
    let found = read(database).await;
    let found = shown(found.get(&*row.name));
    let is_meant = |now: Ms| {
        let mut fields = seen(document);
        let is_applied = apply(row, &mut fields, now).expect("the document is sound");
        let has_new_id = fields.as_ref().is_some_and(|fields| has_new_id(row, fields));
        let is_shown = reply
            .sight
            .as_ref()
            .is_none_or(|sight| Some(&sight.document) == fields.as_ref());
        is_shown
            && reply.is_applied == Some(if row.may_insert() { has_new_id } else { is_applied })
            && found == shown(stored(&row.name, document, fields).as_ref())
    };
    match reply.sight.as_ref().map(|sight| sight.now) {
        Some(now) => {
            let now = now.expect("a reply that has the document has the time");
            assert!(
                (begun..=ended).contains(&now) && is_meant(now),
                "{context}, {found}"
            );
        }
        None => assert!((begun..=ended).any(is_meant), "{context}, {found}"),
    }
    ended - begun <= NEAR
}

fn store(database: &Database) -> Store {
    Store::Mongo(Arc::new(Box::new(MongoStore::new(
        database,
        LOCKS,
        None,
        Arc::default(),
    ))))
}

/// The claim before the present one may be released by the same command: each row has the reply for the document that both are
/// about.
#[tokio::test]
async fn two_rows_about_one_document_have_a_reply_each() {
    let db = test_db().await;
    let store = store(db.database());
    let row = |name: &str, when, then| Row {
        name: Arc::from(name),
        when,
        then,
    };
    let ids: [LockId; 3] = ["owner#before", "owner#present", "owner#other"].map(Arc::from);
    let claim = |name: &str, id: &LockId| {
        let (id, expiry, tokens) = (Arc::clone(id), 30_000, 1);
        row(name, When::Free { margin: 0 }, Then::Claim { id, expiry, tokens })
    };
    let end = |name: &str, id: &LockId| {
        let (min_hold, unused) = (0, 0);
        row(name, When::is(id), Then::End { min_hold, unused })
    };
    let claims = [claim("a", &ids[1]), claim("b", &ids[2])];
    let ends = [end("a", &ids[0]), end("b", &ids[2]), end("a", &ids[1])];
    for rows in [&claims[..], &ends[..]] {
        let ran = store.run(rows, RowOrder::Each, COMMAND_LIMIT).await;
        let replies = ran.unwrap_or_else(|not_run| panic!("{}", not_run.error));
        assert!(replies.iter().all(|reply| reply.sight.is_some()), "{replies:?}");
    }
}

#[tokio::test]
async fn a_row_goes_by_the_clock_of_the_server() {
    let db = test_db().await;
    let mut rng = Rng::with_seed(seed());
    let store = store(db.database());
    for row in rows() {
        for document in SOUND.split(", ") {
            let mut slow = 0;
            while !by_the_clock(db.database(), &store, (row, document), &mut rng).await {
                slow += 1;
                assert!(slow < 20, "the machine is too slow for {row}, {document}");
            }
        }
    }
}
