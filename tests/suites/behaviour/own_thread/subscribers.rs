//! A subscriber of `tracing` that panics once or sleeps for long at each event makes no provider of `connect` lose a lease. It is
//! global, so that each is in a process of its own.

use std::collections::HashSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use mongolock_tests::{AMPLE, must};
use tokio::time::{sleep, timeout};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::{connect, database, runtime};

/// The connection string and the database, in the environment of the process.
const URI: &str = "MONGOLOCK_SUBSCRIBER_URI";
const DATABASE: &str = "MONGOLOCK_SUBSCRIBER_DATABASE";
const IN_PROCESS: &str = "MONGOLOCK_SUBSCRIBER_MODE";

/// A lease that is over for long when the subscriber has slept once.
const EXPIRY: Duration = Duration::from_secs(3);
const SLEEP: Duration = Duration::from_secs(4);

const QUIET: u8 = 0;
const PANICS: u8 = 1;
const SLEEPS: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(QUIET);
static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// It sleeps at each event of the library, or panics at the first one of each kind.
#[derive(Default)]
struct Disturbing {
    panicked: Mutex<HashSet<&'static str>>,
}

impl<S: Subscriber> Layer<S> for Disturbing {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() != "mongolock" {
            return;
        }
        EVENTS.fetch_add(1, Ordering::Relaxed);
        match MODE.load(Ordering::Relaxed) {
            SLEEPS => std::thread::sleep(SLEEP),
            PANICS => {
                let panicked = self.panicked.lock();
                let is_first = panicked.is_ok_and(|mut panicked| panicked.insert(metadata.name()));
                assert!(!is_first, "the subscriber panics at {}", metadata.name());
            }
            _ => {}
        }
    }
}

/// Runs the part below in a process of its own.
fn in_process(mode: u8) {
    let db = database();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process
        .args([
            "--exact",
            "own_thread::subscribers::holds_beside_a_subscriber",
            "--nocapture",
        ])
        .env(URI, db.uri())
        .env(DATABASE, db.name())
        .env(IN_PROCESS, mode.to_string());
    let output = process.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_subscriber_that_panics_once_loses_no_lease() {
    in_process(PANICS);
}

#[test]
fn a_subscriber_that_sleeps_loses_no_lease() {
    in_process(SLEEPS);
}

/// What the process does.
#[test]
fn holds_beside_a_subscriber() {
    let Ok(mode) = std::env::var(IN_PROCESS) else {
        return;
    };
    let [uri, name] = [URI, DATABASE].map(|key| std::env::var(key).unwrap());
    let subscriber = tracing_subscriber::registry().with(Disturbing::default());
    must(tracing::subscriber::set_global_default(subscriber));
    runtime().block_on(async {
        let provider = connect(&uri, &name).await;
        let guard = provider.lock("held").expiry(EXPIRY).acquire().await.unwrap();
        let before = EVENTS.load(Ordering::Relaxed);
        MODE.store(must(mode.parse()), Ordering::Relaxed);
        let other = provider.clone();
        // A renewal on time is no event; the calls of this task are. A panic of the subscriber ends no more than the task.
        let calls = tokio::spawn(async move {
            drop(other.lock("other").acquire().await.unwrap());
        });
        sleep(SLEEP).await;
        MODE.store(QUIET, Ordering::Relaxed);
        guard.ensure_held().expect("its lease was renewed");
        let others = EVENTS.load(Ordering::Relaxed) - before;
        assert!(others > 0, "the other calls are events");
        drop(calls);
        let released = timeout(AMPLE, guard.release()).await.unwrap();
        released.expect("it was held until then");
    });
}
