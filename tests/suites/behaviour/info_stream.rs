//! `LockAdmin::stream`: the locks of a collection of any size, page by page.

use futures_util::{FutureExt, Stream, TryStreamExt};
use mongodb::bson::{Document, doc};
use mongolock::{IndexState, LockError, LockFilter, LockInfo, LockInfoStream, LockState};
use mongolock_tests::{FailPoint, must, names};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, foreign};

conformance!(a_cancelled_read_of_a_stream_skips_no_lock,);

/// The number of locks that one query of a stream returns.
const PAGE: usize = 1000;

async fn read(stream: impl Stream<Item = Result<LockInfo, LockError>>) -> Vec<String> {
    let locks: Vec<LockInfo> = stream.try_collect().await.unwrap();
    locks.into_iter().map(|lock| lock.name).collect()
}

async fn next_name(stream: &mut LockInfoStream) -> Option<String> {
    let next = stream.next().await?;
    Some(next.unwrap().name)
}

/// It outlives its provider.
async fn a_cancelled_read_of_a_stream_skips_no_lock(fixture: Fixture) {
    for name in ["a", "b", "c"] {
        acquire_and_release(&fixture.provider.lock(name)).await;
    }
    let provider = fixture.process("ended");
    let mut stream = provider.admin().stream(LockFilter::new());
    provider.shutdown().await;
    drop(provider);
    let mut read = Vec::new();
    while read.len() < 3 {
        // The first poll sends the request, and the future is dropped before the reply.
        match next_name(&mut stream).now_or_never() {
            Some(name) => read.extend(name),
            None => read.extend(next_name(&mut stream).await),
        }
    }
    assert_eq!(read, ["a", "b", "c"]);
    assert_eq!(next_name(&mut stream).await, None);
    assert_eq!(next_name(&mut stream).await, None, "it stays at its end");
}

/// A fixture with so many locks that are held for ten minutes, and their names in order.
async fn filled(count: usize) -> (Fixture, Vec<String>) {
    let fixture = Fixture::mongodb().await;
    let names: Vec<String> = (0..count).map(|number| format!("lock:{number:05}")).collect();
    let documents: Vec<Document> = names.iter().rev().map(|name| foreign(name.as_str())).collect();
    // The build of an index over many documents may take longer than the library allows.
    assert_eq!(fixture.provider.admin().index_state().await, IndexState::Ready);
    fixture.locks().insert_many(documents).await.unwrap();
    (fixture, names)
}

/// Reads as many locks as there are names, which are theirs.
async fn expect_next(stream: &mut LockInfoStream, names: &[String]) {
    for expected in names {
        assert_eq!(next_name(stream).await.as_ref(), Some(expected));
    }
}

/// The number of cursors that are open at the server for this test.
async fn open_cursors(fixture: &Fixture) -> usize {
    let namespace = format!("{}.distributed_locks", fixture.database().name());
    // The Stable API has no `$currentOp`.
    let database = must(fixture.db().without_stable_api().await);
    let admin = database.client().database("admin");
    let idle = doc! { "$currentOp": { "allUsers": true, "idleCursors": true } };
    let own = doc! { "$match": { "type": "idleCursor", "ns": namespace } };
    let found = admin.aggregate([idle, own]).await.unwrap();
    found.try_collect::<Vec<_>>().await.unwrap().len()
}

#[tokio::test]
async fn a_stream_requests_a_page_when_it_is_read() {
    let (fixture, expected) = filled(3 * PAGE).await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let admin = provider.admin();
    let mut stream = admin.stream(LockFilter::new());
    assert!(commands.all().is_empty(), "nothing is sent before the first read");
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(next_name(&mut stream).await.as_ref(), Some(expected));
        let pages = number / PAGE + 1;
        assert_eq!(commands.count("find"), pages, "after {} locks", number + 1);
    }
    assert_eq!(open_cursors(&fixture).await, 0);
    assert_eq!(next_name(&mut stream).await, None);
    let sent = commands.take();
    assert_eq!(names(&sent), ["find"; 4], "three full pages and an empty one");
    assert!(sent.iter().all(|find| find.get_i64("limit") == Ok(1000)));

    let mut stream = admin.stream(LockFilter::new());
    expect_next(&mut stream, &expected[..10]).await;
    assert_eq!(open_cursors(&fixture).await, 0, "also while the stream is used");
    commands.clear();
    let _cursor = fixture.locks().find(doc! {}).await.unwrap();
    assert_eq!(open_cursors(&fixture).await, 1, "that of this test is counted");

    // Filters and limits apply to all pages.
    let limited = LockFilter::new().state(LockState::Held).limit(1500);
    assert_eq!(read(admin.stream(limited)).await, expected[..1500]);
    let sent = commands.take();
    let limits = sent.iter().filter_map(|find| find.get_i64("limit").ok());
    assert_eq!(limits.collect::<Vec<_>>(), [1000, 500]);
    let prefixed = LockFilter::new().prefix("lock:01").state(LockState::Held);
    assert_eq!(read(admin.stream(prefixed)).await, expected[1000..2000]);
    let released = LockFilter::new().state(LockState::Released);
    assert!(read(admin.stream(released)).await.is_empty());
    let listed = admin.list(LockFilter::new()).await.unwrap();
    assert!(listed.into_iter().map(|lock| lock.name).eq(expected));
}

/// The name at which a page ends need not exist any more when the next page is requested.
#[tokio::test]
async fn locks_that_are_removed_meanwhile_disturb_no_other() {
    let (fixture, expected) = filled(2 * PAGE).await;
    let mut stream = fixture.provider.admin().stream(LockFilter::new());
    expect_next(&mut stream, &expected[..PAGE]).await;
    let removed = doc! { "_id": { "$in": &expected[PAGE - 2..=PAGE] } };
    fixture.locks().delete_many(removed).await.unwrap();
    fixture.locks().insert_one(foreign("lock:01500+")).await.unwrap();
    let rest = read(stream).await;
    assert_eq!(rest[..500], expected[PAGE + 1..PAGE + 501]);
    assert_eq!(rest[500], "lock:01500+");
    assert_eq!(rest[501..], expected[PAGE + 501..]);
}

#[tokio::test]
async fn a_stream_ends_after_an_error_of_the_server() {
    const UNAUTHORIZED: i32 = 13;
    let (fixture, expected) = filled(PAGE + 1).await;
    let admin = fixture.provider.admin();
    let mut stream = admin.stream(LockFilter::new());
    expect_next(&mut stream, &expected[..PAGE]).await;
    let failing = FailPoint::on(&["find"]).always().error_code(UNAUTHORIZED);
    let failing = failing.enable_for(fixture.db()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Err(LockError::Mongo(_)))));
    assert!(stream.next().await.is_none());
    failing.clear().await.unwrap();
    assert!(stream.next().await.is_none(), "a new stream is needed");
    assert_eq!(read(admin.stream(LockFilter::new())).await, expected);
}
