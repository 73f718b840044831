//! `LockAdmin::events`: what happens to locks, live and from the past.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::ErrorKind;
use mongolock::LockEventKind::{
    Acquired, Deleted, Detached, Done, Expired, Gap, Held, Released, Resumed, TakenOver,
};
use mongolock::{
    FencingToken, LockError, LockEvent, LockEventKind, LockEvents, LockFilter, LockGuard, LockProvider,
    LockState,
};
use mongolock_tests::{
    AMPLE, FailPoint, Fault, Proxy, Server, ServerOptions, claim, eventually, locks, must, stable_client,
};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, patient};
use crate::servers::{guarded, standalone};
use crate::waiting::hold_all;

conformance!(
    present_holds_come_first_and_then_the_changes,
    a_name_is_that_of_a_lock_or_of_a_semaphore,
    only_events_of_an_owner_are_returned,
    each_way_a_hold_ends_is_an_event,
    a_lease_that_is_not_renewed_expires,
    a_filter_with_a_state_or_a_limit_is_refused,
    a_shutdown_ends_the_events,
);

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The server's code of a stream whose beginning it no longer has.
const HISTORY_LOST: i32 = 286;

/// The server's code of an error that no driver repeats.
const OPERATION_FAILED: i32 = 96;

/// The next item, which comes soon.
async fn item(events: &mut LockEvents) -> Option<Result<LockEvent, LockError>> {
    timeout(AMPLE, events.next()).await.expect("an item comes")
}

async fn next(events: &mut LockEvents) -> LockEvent {
    item(events).await.expect("the events go on").unwrap()
}

/// The kind and the owner of the next event about a lock.
async fn told(events: &mut LockEvents, name: &str) -> (LockEventKind, String) {
    let event = next(events).await;
    assert_eq!(event.name, name, "{event:?}");
    (event.kind, event.owner.unwrap_or_default())
}

fn said(kind: LockEventKind, owner: &str) -> (LockEventKind, String) {
    (kind, owner.to_owned())
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
    assert!(
        event.acquired_at <= Some(event.at) && Some(event.at) < event.expires_at,
        "{event:?}"
    );
    held.release().await.unwrap();
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    let held = two.lock("a").await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((event.kind, event.owner.as_deref()), (Acquired, Some("two")));
    assert_eq!(event.fencing_token, Some(held.fencing_token()));
    let json = serde_json::to_value(&event).unwrap();
    assert_eq!(
        (&json["event"], &json["owner"]),
        (&"acquired".into(), &"two".into())
    );
    assert_eq!(json.get("previous_owner"), None, "{json}");
}

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
    assert_eq!(told(&mut events, "name").await, said(Released, "one"));
    permit.release().await.unwrap();
    assert_eq!(told(&mut events, "name").await, said(Released, "one"));
}

async fn only_events_of_an_owner_are_returned(fixture: Fixture) {
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    let filter = LockFilter::new().owner("two").prefix("x:");
    let _held = two.lock("x:held").await.unwrap();
    let mut events = one.admin().events(filter);
    assert_eq!(told(&mut events, "x:held").await, said(Held, "two"));
    let _own = one.lock("x:a").await.unwrap();
    let _other = two.lock("y").await.unwrap();
    let held = two.lock("x:b").await.unwrap();
    assert_eq!(told(&mut events, "x:b").await, said(Acquired, "two"));
    held.release().await.unwrap();
    assert_eq!(told(&mut events, "x:b").await, said(Released, "two"));
}

async fn each_way_a_hold_ends_is_an_event(fixture: Fixture) {
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    let (mut events, _first) = followed(&one).await;
    let held = one.lock("a").await.unwrap();
    assert_eq!(told(&mut events, "a").await, said(Acquired, "one"));
    assert!(two.admin().force_release("a").await.unwrap());
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    held.lost().await;

    let done = one.lock("b").once_per(HOUR * 24).acquire().await.unwrap();
    assert_eq!(told(&mut events, "b").await, said(Acquired, "one"));
    done.done().await.unwrap();
    assert_eq!(told(&mut events, "b").await, said(Done, "one"));

    let held = one.lock("c").await.unwrap();
    assert_eq!(told(&mut events, "c").await, said(Acquired, "one"));
    let handle = held.detach(HOUR).await.unwrap();
    assert_eq!(told(&mut events, "c").await, said(Detached, "one"));
    let held = two.resume(&handle).await.unwrap();
    let event = next(&mut events).await;
    assert_eq!(event.kind, Resumed);
    assert_eq!(event.fencing_token, Some(held.fencing_token()));
    held.release().await.unwrap();
    assert_eq!(told(&mut events, "c").await.0, Released);
}

async fn a_lease_that_is_not_renewed_expires(fixture: Fixture) {
    let (one, two) = (fixture.process("one"), fixture.process("two"));
    let mut events = two.admin().events(of("a"));
    let lock = one.lock("a").expiry(Duration::from_secs(2));
    let held = lock.max_hold(Duration::ZERO).await.unwrap();
    let acquired = next(&mut events).await;
    assert!(acquired.kind.is_held());
    let expired = next(&mut events).await;
    assert_eq!((expired.kind, expired.owner.as_deref()), (Expired, Some("one")));
    assert!(Some(expired.at) >= acquired.expires_at, "{expired:?}");
    assert_eq!(expired.expires_at, acquired.expires_at);
    assert!(held.is_lost());
    let _held = two.lock("a").await.unwrap();
    let event = next(&mut events).await;
    let is_next = matches!(event.kind, TakenOver | Acquired);
    assert!(is_next && event.owner.as_deref() == Some("two"), "{event:?}");
}

async fn a_filter_with_a_state_or_a_limit_is_refused(fixture: Fixture) {
    let admin = fixture.provider.admin();
    for filter in [
        LockFilter::new().state(LockState::Held),
        LockFilter::new().limit(5),
    ] {
        let error = error_of(admin.events(filter)).await;
        assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
    }
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

#[tokio::test]
async fn a_takeover_names_both_owners() {
    let fixture = Fixture::mongodb().await;
    let one = fixture.process("one");
    let mut events = one.admin().events(of("a"));
    dead(&fixture, "a", Duration::from_millis(300)).await;
    let event = next(&mut events).await;
    assert!(event.kind.is_held());
    assert_eq!(told(&mut events, "a").await, said(Expired, "dora"));
    let _held = one.lock("a").await.unwrap();
    let event = next(&mut events).await;
    assert_eq!((event.kind, event.owner.as_deref()), (TakenOver, Some("one")));
    assert_eq!(event.previous_owner.as_deref(), Some("dora"));
    must(fixture.locks().delete_one(doc! { "_id": "a" }).await);
    assert_eq!(told(&mut events, "a").await, said(Deleted, "one"));
}

/// The server leaves renewals out, so that a lease that was renewed is read when its first one would have ended.
#[tokio::test]
async fn a_renewed_lease_does_not_expire() {
    let fixture = Fixture::mongodb().await;
    let one = fixture.process("one");
    let mut events = one.admin().events(of("a"));
    let expiry = Duration::from_secs(2);
    let held = one.lock("a").expiry(expiry).await.unwrap();
    assert!(next(&mut events).await.kind.is_held());
    assert!(timeout(expiry * 2, events.next()).await.is_err());
    held.release().await.unwrap();
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
}

/// The time of the server.
async fn server_time(fixture: &Fixture) -> DateTime {
    let hello = must(fixture.database().run_command(doc! { "hello": 1 }).await);
    *must(hello.get_datetime("localTime"))
}

/// The next full second of the server, which has begun.
async fn next_second(fixture: &Fixture) -> DateTime {
    let now = server_time(fixture).await.timestamp_millis();
    let next = DateTime::from_millis((now / 1000 + 1) * 1000);
    let passed = || async { (server_time(fixture).await >= next).then_some(next) };
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
        assert_eq!(told(&mut events, name).await, said(kind, owner));
    }
    let mut events = admin.events(of("a")).since(begin);
    for (name, kind, owner) in &past[1..5] {
        assert_eq!(told(&mut events, name).await, said(*kind, owner));
    }

    // It goes on with the present, whose expiries are events as well.
    let mut events = admin.events(LockFilter::new().prefix("b")).since(end);
    assert_eq!(told(&mut events, "b").await, said(Released, ""));
    dead(&fixture, "b", Duration::from_millis(300)).await;
    assert_eq!(told(&mut events, "b").await, said(Acquired, "dora"));
    assert_eq!(told(&mut events, "b").await, said(Expired, "dora"));
}

/// For the program `mongolock`: what the server has at the beginning is told, and then the stream ends, with renewals and other
/// writes going on and without any.
#[tokio::test]
async fn the_past_ends_with_the_present() {
    let fixture = Fixture::mongodb().await;
    let one = fixture.process("one");
    let begin = next_second(&fixture).await;
    acquire_and_release(&one.lock("a")).await;
    let past = || one.admin().events(of("a")).since(begin).to_present();
    let read = async || {
        let mut events = past();
        assert_eq!(told(&mut events, "a").await, said(Acquired, "one"));
        assert_eq!(told(&mut events, "a").await, said(Released, "one"));
        assert!(item(&mut events).await.is_none(), "it has an end");
    };
    read().await;
    let often = one
        .to_builder()
        .renew_interval(Duration::from_millis(5))
        .build()
        .unwrap();
    let _renewed = often.lock("b").await.unwrap();
    read().await;
    let mut events = past();
    assert_eq!(told(&mut events, "a").await, said(Acquired, "one"));
    must(fixture.locks().drop().await);
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    assert!(item(&mut events).await.is_none(), "the drop came later");
    let error = error_of(LockProvider::in_memory().admin().events(of("a")).to_present()).await;
    assert!(matches!(error, LockError::Mongo(_)), "{error:?}");
}

#[tokio::test]
async fn memory_and_a_standalone_server_have_no_past() {
    let (_server, database) = standalone().await;
    for provider in [LockProvider::in_memory(), LockProvider::new(&database)] {
        let events = provider.admin().events(LockFilter::new());
        let error = error_of(events.since(DateTime::now())).await;
        assert!(matches!(error, LockError::Mongo(_)), "{error:?}");
    }
}

/// A follower on a server without change streams, and one of a user who may not open one, look once a second.
#[tokio::test]
async fn without_change_streams_the_locks_are_looked_at() {
    let (_standalone, alone) = standalone().await;
    let (server, limited, _) = guarded(&["find", "insert", "update"]).await;
    for database in [alone, limited] {
        let provider = patient(&database);
        let one = provider.to_builder().owner("one").build().unwrap();
        let mut events = provider.admin().events(of("leader"));
        let held = one.lock("leader").await.unwrap();
        let (kind, owner) = told(&mut events, "leader").await;
        assert!(kind.is_held() && owner == "one", "{kind:?} {owner}");
        held.release().await.unwrap();
        assert_eq!(told(&mut events, "leader").await, said(Released, "one"));
    }
    let nobody = restricted_to_nothing(&server).await;
    let error = error_of(nobody.admin().events(LockFilter::new())).await;
    assert!(error.help().contains("privileges"), "{error:?}");
}

/// A provider of a user who may not read the locks.
async fn restricted_to_nothing(server: &Server) -> LockProvider {
    let app = must(server.client().await).database("app");
    let user = doc! { "createUser": "nobody", "pwd": "nobody", "roles": [] };
    must(app.run_command(user).await);
    let uri = server.uri().replace("root:secret@", "nobody:nobody@");
    let client = must(stable_client(uri.replace("authSource=admin", "authSource=app")).await);
    LockProvider::new(&client.database("app"))
}

#[tokio::test]
async fn a_dropped_collection_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let one = fixture.process("one");
    let mut events = one.admin().events(LockFilter::new().prefix("x:"));
    let _lost = one.lock("x:a").await.unwrap();
    assert!(next(&mut events).await.kind.is_held());
    must(fixture.locks().drop().await);
    assert_eq!(told(&mut events, "x:a").await, said(Deleted, "one"));
    assert_eq!(told(&mut events, "").await, said(Deleted, ""));
    for name in ["x:b", "x:c"] {
        acquire_and_release(&one.lock(name)).await;
        assert_eq!(told(&mut events, name).await, said(Acquired, "one"));
        assert_eq!(told(&mut events, name).await, said(Released, "one"));
        must(fixture.locks().drop().await);
        assert_eq!(told(&mut events, "").await, said(Deleted, ""));
    }
}

#[tokio::test]
async fn an_outage_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let proxy = must(fixture.db().proxy().await);
    let client = must(stable_client(proxy.uri()).await);
    let far = patient(&client.database(fixture.db().name()));
    let (mut events, _first) = followed(&far).await;
    let one = fixture.process("one");
    proxy.refuse_connections();
    proxy.reset_connections();
    for _ in 0..20 {
        acquire_and_release(&one.lock("a")).await;
    }
    proxy.accept_connections();
    for _ in 0..20 {
        assert_eq!(told(&mut events, "a").await, said(Acquired, "one"));
        assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    }
}

/// The changes of the lock `a`, by kind and token.
type Told = Arc<Mutex<Vec<(LockEventKind, Option<FencingToken>)>>>;

fn last_token(told: &Told) -> Option<FencingToken> {
    told.lock().unwrap().last()?.1
}

/// Has the lock `a` change hands until the end, which is that of the other side of the channel, and then the lock `last`.
async fn change_hands(one: LockProvider, mut end: oneshot::Receiver<()>, written: Told) {
    while end.try_recv() == Err(TryRecvError::Empty) {
        let held = one.lock("a").await.unwrap();
        let token = Some(held.fencing_token());
        held.release().await.unwrap();
        let events = [(Acquired, token), (Released, token)];
        written.lock().unwrap().extend(events);
    }
    acquire_and_release(&one.lock("last")).await;
}

async fn read_until_last(mut events: LockEvents, read: Told) {
    loop {
        let event = next(&mut events).await;
        if event.name == "last" {
            return;
        }
        read.lock().unwrap().push((event.kind, event.fencing_token));
    }
}

/// While a lock changes hands all the time, the connection of the stream is cut, or all connections are, and then one to three of
/// the requests that resume the stream: the server has not got the request, or its reply is on its way.
#[tokio::test]
async fn a_connection_that_is_cut_while_a_stream_is_resumed_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let proxy = must(fixture.db().proxy().await);
    let client = must(stable_client(proxy.uri()).await);
    let far = patient(&client.database(fixture.db().name()));
    let (events, _first) = followed(&far).await;
    let (written, read) = (Told::default(), Told::default());
    let (end, is_over) = oneshot::channel();
    let writing = tokio::spawn(change_hands(
        fixture.process("one"),
        is_over,
        Arc::clone(&written),
    ));
    let reading = tokio::spawn(read_until_last(events, Arc::clone(&read)));
    let cut = |is_request: bool, is_alone: bool| match (is_request, is_alone) {
        (true, true) => Fault::drop_request(),
        (false, true) => Fault::drop_reply(),
        (true, false) => Fault::swallow_request(),
        (false, false) => Fault::swallow_reply(),
    };
    for round in 0..20 {
        // The stream is open again: a reset would end a request that a fault has met before.
        let last = last_token(&written);
        let is_open = || async { (last_token(&read) >= last).then_some(()) };
        must(eventually(AMPLE, "the last event of the round before", is_open).await);
        let is_alone = round % 2 == 0;
        let cuts = (0..=round % 3).map(|attempt| cut((round / 2 + attempt) % 2 == 0, is_alone));
        let cuts: Vec<_> = cuts.map(|cut| proxy.inject(cut.command("aggregate"))).collect();
        // A cursor outlives its connection, but not a reply that is lost.
        let broken = proxy.inject(Fault::drop_reply().command("getMore"));
        if !is_alone {
            must(broken.happened(AMPLE).await);
            proxy.reset_connections();
        }
        for cut in cuts {
            must(cut.happened(AMPLE).await);
            let before = written.lock().unwrap().len();
            let more = || async { (written.lock().unwrap().len() >= before + 10).then_some(()) };
            must(eventually(AMPLE, "five more holds", more).await);
            if !is_alone {
                proxy.reset_connections();
            }
        }
    }
    drop(end);
    must(writing.await);
    must(reading.await);
    let (written, read) = (written.lock().unwrap(), read.lock().unwrap());
    let differs = written.iter().zip(&*read).position(|(one, other)| one != other);
    assert_eq!((differs, read.len()), (None, written.len()));
}

/// The stream was opened, and its first reply is an error for which the driver does not open it again.
#[tokio::test]
async fn a_failure_before_the_first_reply_hides_no_event() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let namespace = fixture.locks().namespace().to_string();
    let failing = FailPoint::on(&["getMore"]).error_code(OPERATION_FAILED);
    let failing = must(failing.collection(&namespace).enable(fixture.db().uri()).await);
    let mut events = provider.admin().events(LockFilter::new());
    let first = tokio::spawn(async move { (told(&mut events, "a").await, events) });
    let is_get_more = |failed: &String| failed.starts_with("getMore");
    let failed = || async { commands.failed().iter().any(is_get_more).then_some(()) };
    must(eventually(AMPLE, "a failed command", failed).await);
    acquire_and_release(&fixture.process("one").lock("a")).await;
    let (first, mut events) = must(first.await);
    assert_eq!(first, said(Acquired, "one"));
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    must(failing.clear().await);
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
    let near = patient(&must(server.client().await).database("app"));
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
    assert_eq!(told(&mut events, "a").await, said(Released, "one"));
    assert_eq!(told(&mut events, "c").await, said(Acquired, "one"));
    kept.release().await.unwrap();
    assert_eq!(told(&mut events, "b").await, said(Released, "one"));

    let error = error_of(near.admin().events(LockFilter::new()).since(begin)).await;
    let is_lost = |kind: &ErrorKind| matches!(kind, ErrorKind::Command(error) if error.code == HISTORY_LOST);
    assert!(
        matches!(&error, LockError::Mongo(error) if is_lost(&error.kind)),
        "{error:?}"
    );
}

/// Documents of locks that are held, in the order of their names.
fn held(count: i32) -> impl Iterator<Item = Document> {
    (0..count).map(|number| {
        let mut held = claim(format!("{number:04}"), "dora#1", 600_000);
        held.insert("lockIdBefore", "");
        held
    })
}

/// The events that the stream has received long before its reader takes them do not hide when the missed ones were.
#[tokio::test]
async fn the_gap_of_a_slow_reader_begins_before_what_it_has_missed() {
    let server = must(Server::start(ServerOptions::single().oplog(1)).await);
    let database = must(server.client().await).database("app");
    let one = patient(&database);
    let (mut events, _first) = followed(&one).await;
    must(locks(&database).insert_many(held(1500)).await);
    acquire_and_release(&one.lock("missed")).await;
    let missed = one.admin().get("missed").await.unwrap();
    let missed = missed.expect("it was held").acquired_at;
    wrap_oplog(&server).await;
    let gap = loop {
        let event = next(&mut events).await;
        assert_ne!(event.name, "missed");
        if event.kind == Gap {
            break event;
        }
    };
    assert!(gap.since <= Some(missed), "{gap:?}, {missed}");
}

/// A reader that is slower than the server gets all events.
#[tokio::test]
async fn a_slow_reader_misses_nothing() {
    let fixture = Fixture::mongodb().await;
    let (mut events, _first) = followed(&fixture.process("one")).await;
    must(fixture.locks().insert_many(held(1000)).await);
    for number in 0..1000 {
        let name = format!("{number:04}");
        assert_eq!(told(&mut events, &name).await, said(Acquired, "dora"));
    }
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
