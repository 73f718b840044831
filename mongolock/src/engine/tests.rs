//! The engine with a store in memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{About, AcquireCall, Engine, Hold};
use crate::LockError;
use crate::core::Wanted;
use crate::few::Few;
use crate::options::{Config, OnBusy, Options};
use crate::store::{MemoryStore, Store};
use crate::sync::lock;

type Acquiring = Pin<Box<dyn Future<Output = Result<Hold, LockError>> + Send>>;

fn engine() -> Arc<Engine> {
    let store = Store::Memory(Arc::new(MemoryStore::new()));
    Arc::new(Engine::new(store, Config::default(), "host:1".into(), None))
}

fn acquire(engine: &Arc<Engine>) -> Acquiring {
    let engine = Arc::clone(engine);
    let options = Arc::new(Options {
        acquire_timeout: None,
        ..Options::default()
    });
    Box::pin(async move {
        let name: Arc<str> = Arc::from("a");
        let about = About {
            names: Few::One([Arc::clone(&name)]),
            title: 0,
            template: None,
            options,
            resumes: None,
            is_inside_hold: false,
            on_busy: OnBusy::Wait,
        };
        AcquireCall::begin(&engine, about, Wanted::Lock(name), "host:1")?.await
    })
}

/// A waker that drops the caller, like a runtime that has ended.
struct Dropped(Mutex<Option<Acquiring>>);

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        let waiting = lock(&self.0).take();
        drop(waiting);
    }
}

/// Each hand-over drops the caller that gets the lock, which hands the lock on. If wakes or releases were nested, the
/// stack would overflow.
#[test]
fn a_hundred_thousand_callers_that_are_dropped_when_they_get_the_lock_need_no_stack() {
    const NUMBER: usize = 100_000;
    let drop_all = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let _entered = runtime.enter();
        let engine = engine();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(mut held)) = acquire(&engine).as_mut().poll(&mut context) else {
            panic!("the lock is free")
        };
        let waiting = (0..NUMBER).map(|_| {
            let mut waiting = acquire(&engine);
            let dropped = Arc::new(Dropped(Mutex::new(None)));
            let waker = Arc::clone(&dropped).into();
            let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            *lock(&dropped.0) = Some(waiting);
            dropped
        });
        let waiting: Vec<Arc<Dropped>> = waiting.collect();
        let left = || waiting.iter().filter(|one| lock(&one.0).is_some()).count();
        runtime.block_on(async {
            held.release().await.unwrap();
            // Between two series of hand-overs this process yields the lock to others.
            while left() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
            let again = timeout(Duration::from_secs(5), acquire(&engine)).await;
            assert!(again.is_ok_and(|held| held.is_ok()));
        });
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(drop_all);
    thread.unwrap().join().unwrap();
}

#[test]
fn a_call_is_small() {
    assert!(size_of::<AcquireCall>() <= 88, "{}", size_of::<AcquireCall>());
}
