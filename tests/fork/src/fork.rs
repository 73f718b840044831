//! A process forks while it holds a lock. In the child every call fails and a drop does nothing, so that the parent keeps its lock.

use std::time::{Duration, Instant};

use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, must, test_db};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// A lease that has to be renewed in the parent while the child runs.
const EXPIRY: Duration = Duration::from_secs(3);

fn main() {
    let runtime = runtime();
    let db = runtime.block_on(test_db());
    let connected = runtime.block_on(async {
        let provider = must(LockProvider::connect(db.uri()).await);
        must(provider.to_builder().database(db.name()).build())
    });
    let providers = [
        ("connect", connected),
        ("new", LockProvider::new(db.database())),
        ("in_memory", LockProvider::in_memory()),
    ];
    let holds = providers.map(|(what, provider)| {
        let lock = provider.lock(what).expiry(EXPIRY);
        (what, provider, must(runtime.block_on(lock.acquire())))
    });
    // SAFETY: the child runs only code that takes no lock which another thread may hold at this time, and then exits. That it
    // does so is what this test is about.
    match unsafe { libc::fork() } {
        -1 => panic!("no process was made"),
        0 => {
            let are_right = holds.map(|(_, provider, guard)| fails_and_does_nothing(provider, guard));
            let failed = are_right.iter().position(|is_right| !is_right);
            std::process::exit(failed.map_or(0, |index| 1 + i32::try_from(index).unwrap_or(0)));
        }
        child => assert_eq!(
            status_of(child),
            Some(0),
            "otherwise the number of the provider that is wrong"
        ),
    }
    runtime.block_on(async {
        sleep(EXPIRY).await;
        for (what, provider, guard) in holds {
            guard.ensure_held().expect("the parent renews its lease");
            let again = provider.lock(what).acquire_timeout(Duration::ZERO);
            assert!(must(again.try_acquire().await).is_none(), "{what}: it is held");
            must(guard.release().await);
            let next = timeout(AMPLE, provider.lock(what).acquire()).await;
            must(must(next).expect("the provider goes on").release().await);
            println!("{what}: a child that drops the guard leaves the lock to its parent");
        }
    });
}

fn runtime() -> Runtime {
    must(Builder::new_current_thread().enable_all().build())
}

/// What the child does: it calls, shuts down, drops the guard, and ends; whether all calls have failed at once, with an error that
/// names the fork.
fn fails_and_does_nothing(provider: LockProvider, guard: LockGuard) -> bool {
    let begun = Instant::now();
    let says_so = |error: &LockError| error.to_string().contains("forked");
    let fails = runtime().block_on(async {
        let tried = provider.lock("other").try_acquire().await;
        let waited = provider.lock("other").acquire().await;
        provider.shutdown().await;
        tried.is_err_and(|error| says_so(&error)) && waited.is_err_and(|error| says_so(&error))
    });
    drop(guard);
    drop(provider);
    fails && begun.elapsed() < Duration::from_secs(1)
}

/// The exit status of the child; `None` if it was ended by a signal, at last by that of this function.
fn status_of(child: libc::pid_t) -> Option<i32> {
    let by = Instant::now() + AMPLE;
    let mut status = 0;
    // SAFETY: the status is a valid place, and the child is one of this process.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > by {
            // SAFETY: the child was not waited for, so that the id is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}
