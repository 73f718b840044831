//! Locks of programs without async code: `mongolock::blocking`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mongolock::blocking::LockProvider;
use mongolock::{LockContext, LockError, LockFilter, LockGuard, LockName, LossReason};
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

fn acquire(locks: &LockProvider, name: &str) -> LockGuard {
    locks.acquire(&locks.lock(name)).unwrap()
}

/// Whether a call that tries to acquire the lock gets it, which is then released.
fn is_free(locks: &LockProvider, name: &str) -> bool {
    let guard = locks.try_acquire(&locks.lock(name)).unwrap();
    guard.is_some_and(|guard| locks.wait(guard.release()).is_ok())
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
                            let guard = acquire(locks, "one");
                            step();
                            locks.wait(guard.release()).unwrap();
                        } else {
                            let body = |_| {
                                step();
                                Ok::<_, LockError>(())
                            };
                            locks.run(&locks.lock("one"), body).unwrap();
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
    let shared = ours.lock("shared");
    assert!(ours.try_acquire(&shared).unwrap().is_none());
    let hurried = shared.clone().acquire_timeout(Duration::from_millis(200));
    let timed_out = ours.acquire(&hurried).unwrap_err();
    assert!(matches!(timed_out, LockError::Timeout { .. }), "{timed_out}");
    database.runtime.block_on(theirs.release()).unwrap();
    let guard = ours.acquire(&shared).unwrap();
    assert_eq!(ours.provider().held()[0].fencing_token, guard.fencing_token());
    assert!(ours.wait(ours.provider().health()).has_primary);
    let tried = database.runtime.block_on(rival.lock("shared").try_acquire());
    assert!(tried.unwrap().is_none());
    ours.wait(guard.release()).unwrap();
}

#[test]
fn calls_in_a_body_know_its_lock() {
    both(|locks| {
        let outer = locks.lock("outer");
        let run = locks.run(&outer, |context| {
            assert_eq!(
                LockContext::current().unwrap().fencing_token(),
                context.fencing_token()
            );
            let joined = locks.run(&outer, |context| Ok::<_, LockError>(context.fencing_token()));
            assert_eq!(joined?, context.fencing_token());
            assert!(matches!(locks.acquire(&outer), Err(LockError::Reentrant { .. })));
            assert!(matches!(
                locks.try_acquire(&outer),
                Err(LockError::Reentrant { .. })
            ));
            locks.run(&locks.lock("inner"), |_| Ok::<_, LockError>(()))?;
            context.ensure_held()
        });
        run.unwrap();
        assert!(LockContext::current().is_none());
    });
}

#[test]
fn the_options_of_a_lock_are_those_of_async_code() {
    both(|locks| {
        let day = Duration::from_secs(24 * 60 * 60);
        let nightly = locks.lock("nightly").once_per(day);
        locks.run(&nightly, |_| Ok::<_, LockError>(())).unwrap();
        assert!(matches!(locks.acquire(&nightly), Err(LockError::Done { .. })));
        let tick = locks.lock("tick").once();
        locks.wait(locks.acquire(&tick).unwrap().done()).unwrap();
        assert!(matches!(locks.acquire(&tick), Err(LockError::Done { .. })));

        let rare = locks.lock("rare").min_hold(AMPLE);
        locks.wait(locks.acquire(&rare).unwrap().release()).unwrap();
        assert!(!is_free(locks, "rare"), "the minimum hold is not over");
        let refused = locks.acquire(&locks.lock_all(["a"]).expiry(Duration::ZERO));
        assert!(matches!(
            refused,
            Err(LockError::InvalidOption { option: "expiry", .. })
        ));
    });
}

#[test]
fn the_administration_is_that_of_async_code() {
    both(|locks| {
        let guard = acquire(locks, "stuck");
        let admin = locks.provider().admin();
        let listed = locks.wait(admin.list(LockFilter::new())).unwrap();
        assert_eq!(listed[0].fencing_token, guard.fencing_token());
        assert!(locks.wait(admin.force_release("stuck")).unwrap());
        assert!(matches!(locks.wait(guard.release()), Err(LockError::Lost { .. })));
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
        let body = |context: LockContext| Ok::<_, LockError>((context.name().to_owned(), context.template()));
        let seen = locks.run(&locks.lock(&Report { id: 7 }), body).unwrap();
        assert_eq!(seen, ("report:7".to_owned(), Some("report:<id>")));
        let guard = locks.acquire(&locks.lock(Report { id: 7 })).unwrap();
        assert!(!is_free(locks, "report:7"));
        locks.wait(guard.release()).unwrap();
    });
}

#[test]
fn several_locks_are_acquired_all_or_nothing() {
    both(|locks| {
        let both = locks.lock_all(["b", "a"]);
        let guard = locks.acquire(&both).unwrap();
        assert!(guard.names().eq(["a", "b"]));
        assert!(guard.fencing_token_of("a").is_some() && guard.ensure_held().is_ok());
        assert!(!is_free(locks, "a"));
        assert!(locks.try_acquire(&locks.lock_all(["c", "b"])).unwrap().is_none());
        assert!(is_free(locks, "c"), "the try holds nothing");
        locks.wait(guard.release()).unwrap();
        let names = locks.run(&both, |context| {
            let reentrant = locks.acquire(&locks.lock_all(["x", "a"]));
            assert!(matches!(reentrant, Err(LockError::Reentrant { .. })));
            let joined = locks.run(&locks.lock_all(["a", "b"]), Ok::<_, LockError>);
            assert_eq!(joined?.fencing_token_of("b"), context.fencing_token_of("b"));
            Ok::<_, LockError>(context.names().count())
        });
        assert_eq!(names.unwrap(), 2);
        drop(locks.try_acquire(&both).unwrap().expect("both are free"));
    });
}

#[test]
fn permits_are_held_by_so_many_threads() {
    both(|locks| {
        let two = locks.semaphore("s", 2);
        let (first, second) = (locks.acquire(&two).unwrap(), locks.acquire(&two).unwrap());
        assert_eq!((first.name(), first.number() + second.number()), ("s", 1));
        assert!(locks.try_acquire(&two).unwrap().is_none());
        locks.wait(first.release()).unwrap();
        assert_eq!(locks.wait(two.available()).unwrap(), 1);
        let run = locks.run(&two, |context| {
            assert!(locks.try_acquire(&locks.semaphore("other", 2))?.is_some());
            assert!(matches!(locks.acquire(&two), Err(LockError::Reentrant { .. })));
            context.ensure_held()
        });
        run.unwrap();
        drop(second);
        let refused = locks.acquire(&locks.semaphore("s", 0)).unwrap_err();
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
        let exit = locks.lock("exit");
        let failed = locks.run(&exit, |_| Err::<(), _>(anyhow::anyhow!("the body's own")));
        assert_eq!(failed.unwrap_err().to_string(), "the body's own");
        assert!(locks.provider().held().is_empty());
        let body = || locks.run(&exit, |_| -> Result<(), LockError> { panic!("in the body") });
        let panicked = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&"in the body"));
        assert!(is_free(locks, "exit"));
    });
}

#[test]
fn a_lost_lock_is_reported() {
    let database = Database::new();
    let locks = LockProvider::connect_with(database.uri.clone(), |options| {
        options.renew_interval(Duration::from_millis(50))
    });
    let locks = locks.unwrap();
    let lost = locks.run(&locks.lock("lost"), |context| {
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
    let (guard, clone) = (acquire(&locks, "dropped"), locks.clone());
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
                locks.run(&locks.lock("held"), |context| {
                    holds.send(()).unwrap();
                    while !locks.wait(locks.provider().health()).is_shut_down {
                        thread::sleep(Duration::from_millis(5));
                    }
                    context.ensure_held()
                })
            });
            held.recv().unwrap();
            let waiter = scope.spawn(|| locks.acquire(&locks.lock("held")).map(drop));
            locks.wait(locks.provider().shutdown_after(AMPLE));
            assert!(matches!(waiter.join().unwrap(), Err(LockError::ShutDown { .. })));
            body.join().unwrap().unwrap();
        });
        assert!(matches!(
            locks.acquire(&locks.lock("late")),
            Err(LockError::ShutDown { .. })
        ));
    });
}

/// Locks, sets and permits are detached and resumed without async code.
#[test]
fn leases_are_detached_and_resumed() {
    both(|locks| {
        let (hour, async_side) = (
            Duration::from_secs(3600),
            locks.provider().to_builder().build().unwrap(),
        );
        let set = locks.acquire(&locks.lock_all(["a", "b", "c"])).unwrap();
        for guard in [acquire(locks, "n"), set] {
            let name = guard.name().to_owned();
            let handle = locks.wait(guard.detach(hour).owner("session:1")).unwrap();
            assert!(!is_free(locks, &name));
            locks.wait(locks.provider().extend(&handle, hour * 2)).unwrap();
            let guard = locks.wait(async_side.resume(&handle)).unwrap();
            assert!(guard.fencing_token() > handle.fencing_token());
            let lost = locks.wait(locks.provider().resume(&handle)).unwrap_err();
            assert!(
                matches!(
                    lost,
                    LockError::Lost {
                        reason: LossReason::Gone,
                        ..
                    }
                ),
                "{lost}"
            );
            let handle = locks.wait(guard.detach(hour)).unwrap();
            assert_eq!(handle.owner(), "session:1");
            assert!(locks.wait(locks.provider().release(&handle)).unwrap());
            assert!(is_free(locks, &name));
        }
        let semaphore = locks.semaphore("s", 1);
        let handle = locks
            .wait(locks.acquire(&semaphore).unwrap().detach(hour))
            .unwrap();
        assert!(locks.try_acquire(&semaphore).unwrap().is_none());
        let permit = locks.wait(locks.provider().resume_permit(&handle)).unwrap();
        locks.wait(permit.release()).unwrap();
        locks.wait(locks.acquire(&semaphore).unwrap().release()).unwrap();
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
    assert!(matches!(
        locks.acquire(&locks.lock("")),
        Err(LockError::InvalidName { .. })
    ));
}
