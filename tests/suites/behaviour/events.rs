//! `LockAdmin::events`: what happens to locks, live and from the past.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongolock::LockEventKind::{Acquired, Deleted, Expired, Gap, Held, Released, TakenOver};
use mongolock::{
    LockError, LockEvent, LockEventKind, LockEvents, LockFilter, LockGuard, LockProvider, LockState,
};
use mongolock_tests::{
    AMPLE, Fault, Proxy, Server, ServerOptions, claim, eventually, locks, must, stable_client,
};
use tokio::time::timeout;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, hold_all, patient};
use crate::servers::{guarded, standalone};

conformance!(
    present_holds_come_first_and_then_the_changes,
    a_name_is_that_of_a_lock_or_of_a_semaphore,
    a_lease_that_is_not_renewed_expires,
    a_shutdown_ends_the_events,
);

/// The next item, which comes soon.
async fn item(events: &mut LockEvents) -> Option<Result<LockEvent, LockError>> {
    timeout(AMPLE, events.next()).await.expect("an item comes")
}

async fn next(events: &mut LockEvents) -> LockEvent {
    item(events).await.expect("the events go on").unwrap()
}

/// Expects that the next event is about this lock, of this kind and of this owner.
async fn expect(events: &mut LockEvents, name: &str, kind: LockEventKind, owner: &str) {
    let event = next(events).await;
    let of = event.owner.as_deref().unwrap_or_default();
    assert_eq!((&*event.name, event.kind, of), (name, kind, owner), "{event:?}");
}

async fn error_of(mut events: LockEvents) -> LockError {
    let next = item(&mut events).await;
    let error = next.expect("an error").expect_err("an error");
    assert!(events.next().await.is_none(), "an error ends the events");
    error
}

/// The events of all locks, which have begun: the one of this hold has come.
async fn followed(provider: &LockProvider) -> (LockEvents, LockGuard) {
    let mut events = provider.admin().events(LockFilter::new());
    let first = provider.lock("first").await.unwrap();
    assert!(next(&mut events).await.kind.is_held());
    (events, first)
}

fn of(name: &str) -> LockFilter {
    LockFilter::new().name(name)
}

async fn present_holds_come_first_and_then_the_changes(fixture: Fixture) {
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    acquire_and_release(&one.lock("free")).await;
    let held = one.lock("a").await.unwrap();
    let mut events = two.admin().events(LockFilter::new());
    let event = next(&mut events).await;
    assert_eq!((event.kind, event.name.as_str()), (Held, "a"));
    assert_eq!(event.owner.as_deref(), Some("one"));
    assert_eq!(event.fencing_token, Some(held.fencing_token()));
    let at = Some(event.at);
    assert!(event.acquired_at <= at && at < event.expires_at, "{event:?}");
    held.release().await.unwrap();
    expect(&mut events, "a", Released, "one").await;
    let held = two.lock("a").await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((event.kind, event.owner.as_deref()), (Acquired, Some("two")));
    assert_eq!(event.fencing_token, Some(held.fencing_token()));
    let json = serde_json::to_value(&event).unwrap();
    assert!(json["event"] == "acquired" && json["owner"] == "two", "{json}");
    assert_eq!(json.get("previous_owner"), None, "{json}");
}

/// An owner selects its holds. A state or a limit is refused.
async fn a_name_is_that_of_a_lock_or_of_a_semaphore(fixture: Fixture) {
    let provider = fixture.process("one");
    let _others = hold_all(&provider, ["name2", "nam"]).await;
    let held = provider.lock("name").await.unwrap();
    let permit = provider.semaphore("name", 2).await.unwrap();
    let admin = provider.admin();
    let listed = admin.list(of("name")).await.unwrap();
    let listed = listed.iter().map(|info| (info.name.as_str(), info.permit));
    assert!(listed.eq([("name", None), ("name", Some(permit.number()))]));

    let mut events = admin.events(of("name"));
    for permit in [None, Some(permit.number())] {
        let event = next(&mut events).await;
        assert_eq!((event.kind, &*event.name, event.permit), (Held, "name", permit));
        assert_eq!(event.fencing_token.is_some(), permit.is_none());
    }
    acquire_and_release(&provider.lock("name2x")).await;
    held.release().await.unwrap();
    expect(&mut events, "name", Released, "one").await;
    permit.release().await.unwrap();
    expect(&mut events, "name", Released, "one").await;

    let two = fixture.process("two");
    let mut events = admin.events(LockFilter::new().owner("two").prefix("x:"));
    let _own = provider.lock("x:a").await.unwrap();
    let _other = two.lock("y").await.unwrap();
    let held = two.lock("x:b").await.unwrap();
    expect(&mut events, "x:b", Held, "two").await;
    held.release().await.unwrap();
    expect(&mut events, "x:b", Released, "two").await;
    let filter = LockFilter::new;
    for refused in [filter().state(LockState::Held), filter().limit(5)] {
        let error = error_of(admin.events(refused)).await;
        assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
    }
}

/// The server leaves renewals out, so that a lease that was renewed is read when its first one would have ended.
async fn a_lease_that_is_not_renewed_expires(fixture: Fixture) {
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    let mut events = two.admin().events(LockFilter::new());
    let expiry = Duration::from_secs(2);
    let renewed = one.lock("renewed").expiry(expiry).await.unwrap();
    assert!(next(&mut events).await.kind.is_held());
    let lock = one.lock("a").expiry(expiry);
    let held = lock.max_hold(Duration::ZERO).await.unwrap();
    let acquired = next(&mut events).await;
    assert!(acquired.kind.is_held());
    let expired = next(&mut events).await;
    assert_eq!((expired.kind, expired.owner.as_deref()), (Expired, Some("one")));
    assert!(Some(expired.at) >= acquired.expires_at, "{expired:?}");
    assert_eq!(expired.expires_at, acquired.expires_at);
    assert!(held.is_lost());
    let _held = two.lock("a").await.unwrap();
    let next = next(&mut events).await;
    let is_next = matches!(next.kind, TakenOver | Acquired) && next.owner.as_deref() == Some("two");
    assert!(is_next, "{next:?}");
    // Nothing has been told of the other lease, which would have ended before this one.
    renewed.release().await.unwrap();
    expect(&mut events, "renewed", Released, "one").await;
}

/// A lease of a process that has died, written as that process has left it.
async fn dead(fixture: &Fixture, name: &str, expiry: Duration) {
    let expiry = i64::try_from(expiry.as_millis()).unwrap();
    let set = doc! { "lockId": "dora#1", "acquiredAt": "$$NOW", "fencingToken": 5_i64,
    "expiresAt": { "$add": ["$$NOW", expiry] } };
    let locks = fixture.locks();
    let update = locks.update_one(doc! { "_id": name }, vec![doc! { "$set": set }]);
    must(update.upsert(true).await);
}

/// The next full second of the server, which has begun.
async fn next_second(fixture: &Fixture) -> DateTime {
    let now = async || {
        let hello = must(fixture.database().run_command(doc! { "hello": 1 }).await);
        must(hello.get_datetime("localTime")).timestamp_millis()
    };
    let next = (now().await / 1000 + 1) * 1000;
    let passed = || async { (now().await >= next).then_some(DateTime::from_millis(next)) };
    must(eventually(AMPLE, "the next second", passed).await)
}

#[tokio::test]
async fn the_past_is_told_in_its_order_and_then_the_present() {
    let fixture = Fixture::mongodb().await;
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    let before = one.lock("before").await.unwrap();
    let begin = next_second(&fixture).await;
    before.release().await.unwrap();
    acquire_and_release(&one.lock("a")).await;
    acquire_and_release(&two.lock("a")).await;
    dead(&fixture, "b", Duration::from_millis(1)).await;
    let taken = two.lock("b").await.unwrap();
    let end = next_second(&fixture).await;
    taken.release().await.unwrap();

    let past = [
        ("before", Released, ""),
        ("a", Acquired, "one"),
        ("a", Released, "one"),
        ("a", Acquired, "two"),
        ("a", Released, "two"),
        ("b", Acquired, "dora"),
        ("b", TakenOver, "two"),
        ("b", Released, "two"),
    ];
    let admin = one.admin();
    let mut events = admin.events(LockFilter::new()).since(begin);
    for (name, kind, owner) in past {
        expect(&mut events, name, kind, owner).await;
    }
    let mut events = admin.events(of("a")).since(begin);
    for (name, kind, owner) in &past[1..5] {
        expect(&mut events, name, *kind, owner).await;
    }

    // It goes on with the present, whose expiries are events as well.
    let mut events = admin.events(LockFilter::new().prefix("b")).since(end);
    expect(&mut events, "b", Released, "").await;
    dead(&fixture, "b", Duration::from_millis(300)).await;
    expect(&mut events, "b", Acquired, "dora").await;
    expect(&mut events, "b", Expired, "dora").await;
}

/// A follower on a server without change streams, and one of a user who may not open one, look once a second. They and memory have
/// no past.
#[tokio::test]
async fn without_change_streams_the_locks_are_looked_at() {
    // Who may not read the locks is told so.
    let (server, nothing, _) = guarded(&["changeStream"]).await;
    let error = error_of(LockProvider::new(&nothing).admin().events(LockFilter::new())).await;
    assert!(error.help().contains("privileges"), "{error:?}");
    drop(server);
    let (_standalone, alone) = standalone().await;
    let (_server, limited, _) = guarded(&["find", "insert", "update"]).await;
    for database in [&alone, &limited] {
        let provider = patient(database);
        let one = provider.to_builder().owner("one").build().unwrap();
        let mut events = provider.admin().events(of("leader"));
        let held = one.lock("leader").await.unwrap();
        assert!(next(&mut events).await.kind.is_held());
        held.release().await.unwrap();
        expect(&mut events, "leader", Released, "one").await;
    }
    for provider in [LockProvider::in_memory(), LockProvider::new(&alone)] {
        let events = provider.admin().events(LockFilter::new());
        let error = error_of(events.since(DateTime::now())).await;
        assert!(matches!(error, LockError::Mongo(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_dropped_collection_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let one = fixture.process("one");
    let mut events = one.admin().events(LockFilter::new().prefix("x:"));
    let _lost = one.lock("x:a").await.unwrap();
    assert!(next(&mut events).await.kind.is_held());
    must(fixture.locks().drop().await);
    expect(&mut events, "x:a", Deleted, "one").await;
    expect(&mut events, "", Deleted, "").await;
    acquire_and_release(&one.lock("x:b")).await;
    expect(&mut events, "x:b", Acquired, "one").await;
    expect(&mut events, "x:b", Released, "one").await;
}

/// The connection of the stream is cut, or all connections are, and then one to three of the requests that resume the stream: the
/// server has not got the request, or its reply is on its way. Meanwhile a lock changes hands.
#[tokio::test]
async fn an_outage_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let proxy = must(fixture.db().proxy().await);
    let far = must(stable_client(proxy.uri()).await).database(fixture.db().name());
    let (mut events, _first) = followed(&patient(&far)).await;
    let lock = fixture.process("one").lock("a");
    let alone = [Fault::drop_request, Fault::drop_reply];
    let all = [Fault::swallow_request, Fault::swallow_reply];
    for round in 0..6 {
        let is_alone = round % 2 == 0;
        let faults = if is_alone { alone } else { all };
        let cuts = (0..=round % 3).map(|attempt| faults[(round / 2 + attempt) % 2]());
        let cuts: Vec<_> = cuts.map(|cut| proxy.inject(cut.command("aggregate"))).collect();
        // A cursor outlives its connection, but not a reply that is lost.
        let broken = proxy.inject(Fault::drop_reply().command("getMore"));
        let mut tokens = Vec::new();
        let mut change_hands = async || {
            for _ in 0..5 {
                let held = lock.acquire().await.unwrap();
                tokens.push(held.fencing_token());
                held.release().await.unwrap();
            }
        };
        change_hands().await;
        if !is_alone {
            must(broken.happened(AMPLE).await);
            proxy.reset_connections();
        }
        for cut in cuts {
            must(cut.happened(AMPLE).await);
            change_hands().await;
            if !is_alone {
                proxy.reset_connections();
            }
        }
        for token in tokens {
            for kind in [Acquired, Released] {
                let event = next(&mut events).await;
                let is_it = event.kind == kind && event.fencing_token == Some(token);
                assert!(is_it, "{event:?}");
            }
        }
    }
}

/// Writes to another collection until the oplog no longer has its first entries.
async fn wrap_oplog(server: &Server) {
    let client = must(server.client().await);
    let other = client.database("other").collection::<Document>("filler");
    let oplog = client.database("local").collection::<Document>("oplog.rs");
    let entry = async |order: i32| {
        let entry = must(oplog.find_one(doc! {}).sort(doc! { "$natural": order }).await);
        entry.expect("the oplog has entries").get_timestamp("ts").unwrap()
    };
    let (last, filler) = (entry(-1).await, "x".repeat(100_000));
    let wrapped = || async {
        for _ in 0..20 {
            must(other.insert_one(doc! { "filler": &filler }).await);
        }
        (entry(1).await > last).then_some(())
    };
    must(eventually(AMPLE, "the end of all entries before", wrapped).await);
}

#[tokio::test]
async fn a_wrapped_oplog_is_an_error_for_the_past_and_a_gap_for_a_stream_that_was_cut() {
    let server = must(Server::start(ServerOptions::single().oplog(1)).await);
    let proxy = must(Proxy::start(server.node().address()).await);
    let database = must(server.client().await).database("app");
    let near = patient(&database);
    let one = near.to_builder().owner("one").build().unwrap();
    let far = patient(&must(stable_client(proxy.uri()).await).database("app"));
    let mut events = far.admin().events(LockFilter::new());
    let begin = DateTime::now();
    let (released, kept) = (one.lock("a").await.unwrap(), one.lock("b").await.unwrap());
    assert!(next(&mut events).await.kind.is_held());
    assert!(next(&mut events).await.kind.is_held());
    proxy.refuse_connections();
    proxy.reset_connections();
    released.release().await.unwrap();
    let _new = one.lock("c").await.unwrap();
    wrap_oplog(&server).await;
    proxy.accept_connections();
    let gap = next(&mut events).await;
    assert_eq!((gap.kind, gap.name.as_str()), (Gap, ""));
    assert!(gap.since < Some(gap.at), "{gap:?}");
    expect(&mut events, "a", Released, "one").await;
    expect(&mut events, "c", Acquired, "one").await;
    kept.release().await.unwrap();
    expect(&mut events, "b", Released, "one").await;

    // A reader that is slower than the server gets all events that it still has. Those that its stream has received long before the
    // reader takes them do not hide when the missed ones were.
    let held = (0..1500).map(|number| claim(format!("{number:04}"), "dora#1", 600_000));
    must(locks(&database).insert_many(held).await);
    acquire_and_release(&one.lock("missed")).await;
    let missed = near.admin().get("missed").await.unwrap().unwrap().acquired_at;
    wrap_oplog(&server).await;
    let mut number = 0;
    let gap = loop {
        let event = next(&mut events).await;
        if event.kind == Gap {
            break event;
        }
        assert_eq!(event.name, format!("{number:04}"));
        number += 1;
    };
    assert!(gap.since <= Some(missed), "{gap:?}, {missed}");

    let error = error_of(near.admin().events(LockFilter::new()).since(begin)).await;
    // The server's code of a stream whose beginning it no longer has.
    assert!(matches!(&error, LockError::Mongo(_)), "{error}");
    assert!(error.to_string().contains("286"), "{error}");
}

async fn a_shutdown_ends_the_events(fixture: Fixture) {
    let one = fixture.process("one");
    let (mut events, held) = followed(&one).await;
    one.shutdown().await;
    while let Some(event) = item(&mut events).await {
        assert_eq!(event.unwrap().kind, Released);
    }
    assert!(held.is_lost());
}
