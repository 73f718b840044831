//! The shell with a store in memory and on MongoDB.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use mongodb::Database;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::cell::Step;
use super::state::Shell;
use super::waiting::{Got, Waiting};
use crate::core::{Cause, Conf, Ended, Ending, Event, Fault, Join, MS, Places, Rules, Wanted};
use crate::opaque::Opaque;
use crate::protocol::Name;
use crate::store::{MemoryStore, MongoStore, Store};
use crate::sync::lock;

const RULES: Rules = Rules {
    expiry: 30_000,
    renew_every: 10_000,
    max_hold: None,
    min_hold: 0,
    once: None,
};

fn shell(store: &Arc<MemoryStore>, mark: u8) -> Arc<Shell> {
    on(Store::Memory(Arc::clone(store)), mark)
}

fn on_mongodb(database: &Database, mark: u8) -> Arc<Shell> {
    let store = MongoStore::new(database, "distributed_locks", None, Arc::default());
    on(Store::Mongo(Opaque::new(store)), mark)
}

fn on(store: Store, mark: u8) -> Arc<Shell> {
    let conf = Conf {
        mark: [mark; 6],
        owner: format!("host:{mark}").into(),
        may_listen: true,
        margin: 0,
        retry: (10 * MS, 800 * MS),
        places: Places::of_pool(10),
    };
    Shell::new(conf, Arc::new(store), None)
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
}

impl Shell {
    fn lock_of(self: &Arc<Self>, name: &str, limit: Option<i64>, is_try: bool) -> Waiting {
        self.call(Wanted::Lock(name.into()), limit, is_try)
    }

    fn call(self: &Arc<Self>, wanted: Wanted, limit: Option<i64>, is_try: bool) -> Waiting {
        let join = Join {
            rules: RULES,
            limit,
            is_try,
            is_inside_hold: false,
            cell: (),
        };
        self.wait(wanted, join)
    }
}

impl Got {
    async fn release(self) -> Result<Ended, Option<Fault>> {
        self.shell.apply(Event::End(
            self.hold,
            Ending::Release,
            Some(Arc::clone(&self.cell)),
        ));
        let ended = |step: &mut Step| match step {
            Step::Ended(ended) => Some(ended.clone()),
            _ => None,
        };
        std::future::poll_fn(|context| self.cell.poll(context, ended)).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_goes_from_one_provider_to_another() {
    let store = store();
    let (one, other) = (shell(&store, 1), shell(&store, 2));
    let held = one
        .lock_of("a", None, false)
        .await
        .unwrap_or_else(|_| panic!("it is free"));
    let busy = other.lock_of("a", Some(10_000 * MS), true).await;
    assert!(matches!(busy, Err(failure) if failure.cause == Cause::Busy));
    let waiting = tokio::spawn(other.lock_of("a", None, false));
    sleep(Duration::from_secs(40)).await;
    assert!(!waiting.is_finished(), "the lease is renewed");
    let token = held.tokens[0];
    assert_eq!(held.release().await, Ok(Ended::Released));
    let next = timeout(Duration::from_secs(1), waiting).await.unwrap().unwrap();
    let next = next.unwrap_or_else(|_| panic!("it is free"));
    assert!(next.tokens[0] > token);
    assert_eq!(next.release().await, Ok(Ended::Released));
    one.shut_down(Duration::from_secs(1)).await;
    let refused = one.lock_of("a", None, false).await;
    assert!(matches!(refused, Err(failure) if failure.cause == Cause::ShutDown));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_lets_the_next_one_have_the_lock() {
    let shell = shell(&store(), 1);
    let held = shell
        .lock_of("a", None, false)
        .await
        .unwrap_or_else(|_| panic!("it is free"));
    let mut first = Box::pin(shell.lock_of("a", None, false));
    let mut second = pin!(shell.lock_of("a", None, false));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(context).is_pending());
    assert!(second.as_mut().poll(context).is_pending());
    assert_eq!(held.release().await, Ok(Ended::Released));
    // It was given the lock, and is dropped before it takes it.
    drop(first);
    let second = timeout(Duration::from_secs(1), second).await.unwrap();
    assert!(second.is_ok());
}

/// What the holders of the locks have seen: the number of holds at a time, and the last token.
#[derive(Default)]
struct Ledger {
    held: HashMap<Name, (usize, i64)>,
    holds: usize,
}

impl Ledger {
    fn enter(&mut self, names: &[Name], tokens: &[i64], most: usize) {
        for (name, token) in names.iter().zip(tokens) {
            let (held, last) = self.held.entry(name.clone()).or_default();
            *held += 1;
            assert!(*held <= most, "{held} holders of {name}");
            assert!(most > 1 || token > last, "{name}: {token} after {last}");
            *last = *token;
        }
        self.holds += 1;
    }

    fn leave(&mut self, names: &[Name]) {
        for name in names {
            let (held, _) = self.held.get_mut(name).expect("it was entered");
            *held -= 1;
        }
    }
}

/// Tasks of several providers ask for locks, sets and permits again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_exclude_each_other_on_mongodb() {
    let db = mongolock_tests::test_db().await;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut tasks = JoinSet::new();
    let until = Instant::now() + Duration::from_secs(3);
    let shells: Vec<Arc<Shell>> = (1..=3).map(|mark| on_mongodb(db.database(), mark)).collect();
    for shell in &shells {
        for task in 0..5 {
            let (shell, ledger) = (Arc::clone(shell), Arc::clone(&ledger));
            tasks.spawn(async move {
                let (names, most): (Vec<Name>, usize) = match task {
                    0 => (vec!["a".into(), "b".into()], 1),
                    1 | 2 => (vec!["permits\u{1f}".into()], 2),
                    3 => (vec!["a".into()], 1),
                    _ => (vec!["c".into()], 1),
                };
                while Instant::now() < until {
                    let wanted = match task {
                        0 => Wanted::All(names.clone()),
                        1 | 2 => Wanted::Permit(names[0].clone(), 2),
                        _ => Wanted::Lock(names[0].clone()),
                    };
                    let held = shell.call(wanted, Some(20_000_000), false).await;
                    let held = held.unwrap_or_else(|failure| panic!("{names:?}: {failure:?}"));
                    lock(&ledger).enter(&names, &held.tokens, most);
                    sleep(Duration::from_millis(1)).await;
                    lock(&ledger).leave(&names);
                    assert_eq!(held.release().await, Ok(Ended::Released));
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let holds = lock(&ledger).holds;
    assert!(holds > 30, "{holds} holds");
    for shell in shells {
        shell.shut_down(Duration::from_secs(5)).await;
        assert!(shell.is_empty());
    }
}

#[tokio::test]
async fn a_lock_goes_from_one_provider_to_another_on_mongodb() {
    let db = mongolock_tests::test_db().await;
    let (one, other) = (on_mongodb(db.database(), 1), on_mongodb(db.database(), 2));
    let held = one
        .lock_of("a", None, false)
        .await
        .unwrap_or_else(|_| panic!("it is free"));
    let busy = other.lock_of("a", Some(10_000 * MS), true).await;
    assert!(matches!(busy, Err(failure) if failure.cause == Cause::Busy && failure.seen.is_some()));
    let waiting = tokio::spawn(other.lock_of("a", None, false));
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    let token = held.tokens[0];
    assert_eq!(held.release().await, Ok(Ended::Released));
    let next = timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    let next = next.unwrap_or_else(|_| panic!("it is free"));
    assert!(next.tokens[0] > token);
    assert_eq!(next.release().await, Ok(Ended::Released));
}

/// Wakes a caller by dropping it, as a runtime that has ended.
struct Dropped(Mutex<Option<Pin<Box<Waiting>>>>);

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        let waiting = lock(&self.0).take();
        drop(waiting);
    }
}

/// Each hand-over drops the caller that gets the lock, which hands it on: a wake within a wake, or a release within a release, would
/// need a stack for all of them.
#[test]
fn a_hundred_thousand_callers_that_are_dropped_when_they_get_the_lock_need_no_stack() {
    const NUMBER: usize = 100_000;
    let drop_all = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let shell = shell(&store(), 1);
        let mut first = Box::pin(shell.lock_of("a", None, false));
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(held)) = first.as_mut().poll(context) else {
            panic!("the lock is free")
        };
        let dropped: Vec<Arc<Dropped>> = (0..NUMBER)
            .map(|_| {
                let mut waiting = Box::pin(shell.lock_of("a", None, false));
                let dropped = Arc::new(Dropped(Mutex::new(None)));
                let waker = Arc::clone(&dropped).into();
                assert!(
                    waiting
                        .as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
                *lock(&dropped.0) = Some(waiting);
                dropped
            })
            .collect();
        let left = || dropped.iter().filter(|one| lock(&one.0).is_some()).count();
        runtime.block_on(async {
            assert_eq!(held.release().await, Ok(Ended::Released));
            // Between two rows of hand-overs this process leaves the lock to others.
            while left() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
            let again = timeout(Duration::from_secs(5), shell.lock_of("a", None, false)).await;
            assert!(again.is_ok_and(|held| held.is_ok()));
        });
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(drop_all);
    thread.unwrap().join().unwrap();
}

#[test]
fn a_call_is_small() {
    assert!(size_of::<Waiting>() <= 64, "{}", size_of::<Waiting>());
}
