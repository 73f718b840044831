//! Locks of programs without async code: `mongolock::blocking`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mongolock::blocking::LockProvider;
use mongolock::{LockContext, LockError, LockName, LossReason};
use mongolock_tests::{AMPLE, TestDb, test_db};
use tokio::runtime::Runtime;

/// A database with the runtime of its client, and the connection string that names it.
struct Database {
    runtime: Runtime,
    db: TestDb,
    uri: String,
}

impl Database {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let db = runtime.block_on(test_db());
        let (hosts, options) = db.uri().split_once("/?").expect("it has options");
        let uri = format!("{hosts}/{}?{options}", db.name());
        Self { runtime, db, uri }
    }

    fn connect(&self) -> LockProvider {
        LockProvider::connect_with(self.uri.clone(), |options| options.acquire_timeout(AMPLE)).unwrap()
    }

    /// An async program with the same locks.
    fn rival(&self) -> mongolock::LockProvider {
        mongolock::LockProvider::new(self.db.database())
    }
}

/// One provider in memory, and then one on MongoDB.
fn both(test: impl Fn(&LockProvider)) {
    test(&LockProvider::in_memory().unwrap());
    test(&Database::new().connect());
}

#[test]
fn one_thread_at_a_time_is_under_the_lock() {
    both(|locks| {
        let (inside, calls) = (AtomicBool::new(false), AtomicU32::new(0));
        let step = || {
            assert!(!inside.swap(true, Ordering::SeqCst), "two threads are inside");
            thread::sleep(Duration::from_millis(1));
            calls.fetch_add(1, Ordering::SeqCst);
            inside.store(false, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for _ in 0..10 {
                        if thread % 2 == 0 {
                            let guard = locks.lock("one").unwrap();
                            step();
                            guard.release().unwrap();
                        } else {
                            let body = || {
                                step();
                                Ok::<_, LockError>(())
                            };
                            locks.with("one", body).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(calls.into_inner(), 80);
    });
}

#[test]
fn an_async_program_and_a_thread_exclude_each_other() {
    let database = Database::new();
    let (ours, rival) = (database.connect(), database.rival());
    let theirs = database.runtime.block_on(rival.lock("shared").acquire()).unwrap();
    assert!(ours.try_lock("shared").unwrap().is_none());
    let hurried = LockProvider::connect_with(database.uri.clone(), |options| {
        options.acquire_timeout(Duration::from_millis(200))
    });
    let timed_out = hurried.unwrap().lock("shared").unwrap_err();
    assert!(matches!(timed_out, LockError::Timeout { .. }), "{timed_out}");
    database.runtime.block_on(theirs.release()).unwrap();
    let guard = ours.lock("shared").unwrap();
    assert_eq!(ours.held()[0].fencing_token, guard.fencing_token());
    assert!(ours.health().unwrap().has_primary);
    let tried = database.runtime.block_on(rival.lock("shared").try_acquire());
    assert!(tried.unwrap().is_none());
    guard.release().unwrap();
}

#[test]
fn calls_in_a_body_know_its_lock() {
    both(|locks| {
        let outer = locks.with("outer", || {
            let context = LockContext::current().expect("inside the body");
            let joined = locks.with("outer", || {
                Ok::<_, LockError>(LockContext::current().unwrap().fencing_token())
            });
            assert_eq!(joined?, context.fencing_token());
            assert!(matches!(locks.lock("outer"), Err(LockError::Reentrant { .. })));
            assert!(matches!(
                locks.try_lock("outer"),
                Err(LockError::Reentrant { .. })
            ));
            locks.with("inner", || Ok::<_, LockError>(()))?;
            context.ensure_held()
        });
        outer.unwrap();
        assert!(LockContext::current().is_none());
    });
}

#[derive(LockName)]
#[lock("report:<id>")]
struct Report {
    id: u32,
}

#[test]
fn a_declared_name_comes_with_its_template() {
    both(|locks| {
        let body = || {
            let context = LockContext::current().unwrap();
            Ok::<_, LockError>((context.name().to_owned(), context.template()))
        };
        let seen = locks.with(&Report { id: 7 }, body).unwrap();
        assert_eq!(seen, ("report:7".to_owned(), Some("report:<id>")));
        let guard = locks.lock(Report { id: 7 }).unwrap();
        assert!(locks.try_lock("report:7").unwrap().is_none());
        guard.release().unwrap();
    });
}

#[test]
fn several_locks_are_acquired_all_or_nothing() {
    both(|locks| {
        let guard = locks.lock_all(["b", "a"]).unwrap();
        assert!(guard.names().eq(["a", "b"]));
        assert!(guard.fencing_token_of("a").is_some() && guard.ensure_held().is_ok());
        assert!(locks.try_lock("a").unwrap().is_none());
        assert!(locks.try_lock_all(["c", "b"]).unwrap().is_none());
        drop(locks.try_lock("c").unwrap().expect("the try holds nothing"));
        guard.release().unwrap();
        let names = locks.with_all(["b", "a"], || {
            let context = LockContext::current().unwrap();
            assert!(matches!(
                locks.lock_all(["x", "a"]),
                Err(LockError::Reentrant { .. })
            ));
            let joined = locks.with_all(["a", "b"], || Ok::<_, LockError>(LockContext::current().unwrap()));
            assert_eq!(joined?.fencing_token_of("b"), context.fencing_token_of("b"));
            Ok::<_, LockError>(context.names().count())
        });
        assert_eq!(names.unwrap(), 2);
        drop(locks.try_lock_all(["a", "b"]).unwrap().expect("both are free"));
    });
}

#[test]
fn permits_are_held_by_so_many_threads() {
    both(|locks| {
        let (first, second) = (locks.permit("s", 2).unwrap(), locks.permit("s", 2).unwrap());
        assert_eq!((first.name(), first.number() + second.number()), ("s", 1));
        assert!(locks.try_permit("s", 2).unwrap().is_none());
        first.release().unwrap();
        locks
            .with_permit("s", 2, || {
                assert!(locks.try_permit("other", 2).unwrap().is_some());
                assert!(matches!(locks.permit("s", 2), Err(LockError::Reentrant { .. })));
                LockContext::current().unwrap().ensure_held()
            })
            .unwrap();
        drop(second);
        let refused = locks.permit("s", 0).unwrap_err();
        assert!(
            matches!(
                refused,
                LockError::InvalidOption {
                    option: "permits",
                    ..
                }
            ),
            "{refused}"
        );
    });
}

#[test]
fn every_exit_of_a_body_releases() {
    both(|locks| {
        let failed = locks.with("exit", || Err::<(), _>(anyhow::anyhow!("the body's own")));
        assert_eq!(failed.unwrap_err().to_string(), "the body's own");
        assert!(locks.held().is_empty());
        let body = || locks.with("exit", || -> Result<(), LockError> { panic!("in the body") });
        let panicked = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&"in the body"));
        drop(locks.try_lock("exit").unwrap().expect("the lock is free"));
    });
}

#[test]
fn a_lost_lock_is_reported() {
    let database = Database::new();
    let locks = LockProvider::connect_with(database.uri.clone(), |options| {
        options.renew_interval(Duration::from_millis(50))
    });
    let locks = locks.unwrap();
    let lost = locks.with("lost", || {
        let context = LockContext::current().unwrap();
        let rival = database.rival();
        let forced = async { rival.admin().force_release("lost").await };
        assert!(database.runtime.block_on(forced)?);
        let begun = Instant::now();
        while context.ensure_held().is_ok() {
            assert!(begun.elapsed() < AMPLE, "the loss is noticed");
            thread::sleep(Duration::from_millis(5));
        }
        Ok::<_, LockError>("done")
    });
    let error = lost.unwrap_err();
    assert!(
        matches!(
            error,
            LockError::Lost {
                reason: LossReason::Gone,
                ..
            }
        ),
        "{error}"
    );
}

/// The release of a dropped guard is confirmed when the drop of the last clone returns.
#[test]
fn dropping_the_provider_releases_everything() {
    let database = Database::new();
    let locks = database.connect();
    let (guard, clone) = (locks.lock("dropped").unwrap(), locks.clone());
    drop(locks);
    drop(clone);
    assert!(!guard.is_lost(), "a guard keeps the provider");
    drop(guard);
    let free = database
        .runtime
        .block_on(database.rival().lock("dropped").try_acquire());
    let free = free.unwrap().expect("the lock is free at once");
    database.runtime.block_on(free.release()).unwrap();
}

#[test]
fn a_shutdown_refuses_waiters_and_lets_bodies_end() {
    both(|locks| {
        let (holds, held) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let body = scope.spawn(|| {
                locks.with("held", || {
                    holds.send(()).unwrap();
                    while !locks.health()?.is_shut_down {
                        thread::sleep(Duration::from_millis(5));
                    }
                    LockContext::current().unwrap().ensure_held()
                })
            });
            held.recv().unwrap();
            let waiter = scope.spawn(|| locks.lock("held").map(drop));
            locks.shutdown_after(AMPLE);
            assert!(matches!(waiter.join().unwrap(), Err(LockError::ShutDown { .. })));
            body.join().unwrap().unwrap();
        });
        assert!(matches!(locks.lock("late"), Err(LockError::ShutDown { .. })));
    });
}

#[test]
fn mistakes_are_errors_of_the_start() {
    let refused = LockProvider::connect("mongodb://").unwrap_err();
    assert!(matches!(refused, LockError::Mongo(_)), "{refused}");
    let refused = LockProvider::connect_with("mongodb://localhost", |options| options.expiry(Duration::ZERO));
    assert!(matches!(
        refused,
        Err(LockError::InvalidOption { option: "expiry", .. })
    ));
    let locks = LockProvider::in_memory().unwrap();
    assert!(matches!(locks.lock(""), Err(LockError::InvalidName { .. })));
}
