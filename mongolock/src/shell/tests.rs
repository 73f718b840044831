//! The shell with a store in memory.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::cell::Step;
use super::waiting::{Got, Waiting};
use super::*;
use crate::core::{Cause, Ended, Ending, Join, MS, Places, Rules, Wanted};
use crate::store::MemoryStore;

const RULES: Rules = Rules {
    expiry: 30_000,
    renew_every: 10_000,
    max_hold: None,
    min_hold: 0,
    once: None,
};

fn shell(store: &Arc<MemoryStore>, mark: u8) -> Arc<Shell> {
    let conf = Conf {
        mark: [mark; 6],
        owner: format!("host:{mark}").into(),
        may_listen: true,
        margin: 0,
        retry: (10 * MS, 800 * MS),
        places: Places::of_pool(10),
    };
    Shell::new(conf, Arc::new(Store::Memory(Arc::clone(store))), None)
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
}

impl Shell {
    fn lock_of(self: &Arc<Self>, name: &str, limit: Option<i64>, is_try: bool) -> Waiting {
        let join = Join {
            rules: RULES,
            limit,
            is_try,
            is_inside_hold: false,
            cell: (),
        };
        self.wait(Wanted::Lock(name.into()), join)
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
