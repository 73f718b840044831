//! `acquire` and `run --resume` that get a signal at any moment: the lock ends by itself, or the handle in the file works.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mongolock::LeaseHandle;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must, until};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::fixture::{Running, output, repetitions, until_waiting};
use crate::leases::Scene;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_micros(50);

/// When a signal is sent: so long after the start of the program, or after it has changed the file.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Start(Duration),
    Change(Duration),
}

impl Moment {
    /// Moments from the start of a program to its end.
    fn all() -> impl Iterator<Item = Self> {
        let start = (0..12).map(|step| Self::Start(Duration::from_millis(step * 4)));
        let change = (0..12).map(|step| Self::Change(Duration::from_micros(step * step * 100)));
        start.chain(change)
    }

    /// Starts a program, and sends a signal to it at this moment.
    async fn send(self, signal: Signal, mut command: Command, file: &Path) -> ExitStatus {
        let text = || fs::read_to_string(file).unwrap_or_default();
        let before = text();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::start(command);
        let begun = Instant::now();
        let pause = match self {
            Self::Start(pause) => pause,
            Self::Change(pause) => {
                while text() == before && begun.elapsed() < BEFORE_EXPIRY {
                    std::thread::sleep(LOOK);
                }
                pause
            }
        };
        sleep(pause).await;
        running.signal(signal);
        running.ended().await
    }
}

impl Scene {
    /// Waits until the handle in the file has released the lock, or the lock has ended by itself. A request of the killed
    /// program may still be under way.
    async fn assert_ends(&self, name: &str, file: &Path, limit: Duration) {
        let text = fs::read_to_string(file).unwrap_or_default();
        let handle: Option<LeaseHandle> = text.trim_end().parse().ok();
        let ended = eventually(limit, name, || async {
            if let Some(handle) = &handle
                && must(self.provider.release(handle).await)
            {
                return Some(());
            }
            let free = must(self.provider.lock(name).try_acquire().await)?;
            must(free.release().await);
            Some(())
        });
        must(ended.await);
    }
}

/// Its lease is detached for 2 h, and before that it lasts for 30 s. The locks of all moments end at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_is_killed() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        let mut killed = Vec::new();
        for (number, moment) in Moment::all().enumerate() {
            let (name, file) = (format!("lock-{number}"), format!("lease-{number}"));
            let acquire = scene.command(&format!("acquire {name} --ttl 2h --handle {file}"));
            let file = scene.file(&file);
            moment.send(Signal::KILL, acquire, &file).await;
            killed.push((name, file));
        }
        for (name, file) in killed {
            scene.assert_ends(&name, &file, AMPLE).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_is_interrupted() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        for (number, moment) in Moment::all().enumerate() {
            let name = format!("lock-{number}");
            let signal = [Signal::TERM, Signal::INT][number % 2];
            let acquire = scene.command(&format!("acquire {name} --ttl 2h --handle lease"));
            let file = scene.file("lease");
            let status = moment.send(signal, acquire, &file).await;
            if status.success() {
                assert!(must(scene.provider.release(&scene.handle("lease")).await));
                must(fs::remove_file(&file));
                continue;
            }
            // SIGINT ends the program itself, and so does a signal before its handler is there.
            let by_signal = status.signal().or(status.code().map(|code| code - 128));
            assert_eq!(by_signal, Some(signal.as_raw()), "{moment:?}: {status:?}");
            assert!(!file.exists(), "{moment:?}");
            scene.assert_ends(&name, &file, BEFORE_EXPIRY).await;
        }
    }
}

/// A busy lock: the wait ends by the signal, and nothing is left of it. A shell sees 130 for SIGINT.
#[tokio::test]
async fn a_signal_ends_a_wait() {
    let scene = Scene::new().await;
    let _held = must(scene.provider.lock("a").acquire().await);
    let signals = [
        (Signal::TERM, Some(143)),
        (Signal::HUP, Some(129)),
        (Signal::INT, None),
    ];
    for (signal, code) in signals {
        let lines = [
            "run a --wait 60s -- true",
            "acquire a --ttl 2h --wait 60s --handle lease",
            "hold a --for 2h --wait 60s",
        ];
        let mut waiting = lines.map(|line| Running::start(scene.command(line)));
        until_waiting(&scene.db, waiting.len()).await;
        for waiting in &mut waiting {
            waiting.signal(signal);
            let status = waiting.ended().await;
            assert_eq!(status.code(), code, "{status:?}");
            let by_signal = code.is_none().then_some(signal.as_raw());
            assert_eq!(status.signal(), by_signal, "{status:?}");
        }
        assert!(!scene.file("lease").exists());
        until_waiting(&scene.db, 0).await;
    }
}

/// The program that is killed leaves its file empty, and one that still waits finds out that its file was deleted.
#[tokio::test]
async fn an_empty_file_is_deleted_and_no_lock_stays_without_its_handle() {
    let scene = Scene::new().await;
    let held = must(scene.provider.lock("a").acquire().await);
    let file = scene.file("lease");
    let waiting = || async {
        let mut acquire = scene.command("acquire a --ttl 2h --wait 60s --handle lease");
        acquire.stderr(Stdio::piped());
        let running = Running::start(acquire);
        until("the file", async || file.exists()).await;
        running
    };
    let assert_deletes = || {
        let (code, _, said) = output(scene.command("release --handle lease"));
        assert!(code == Some(1) && said.contains("lease was empty"), "{said}");
        assert!(!file.exists());
    };

    let mut killed = waiting().await;
    killed.signal(Signal::KILL);
    killed.ended().await;
    let (code, _, said) = output(scene.command("extend --handle lease --ttl 2h"));
    assert!(code == Some(125) && said.contains("lease is empty"), "{said}");
    assert_deletes();

    let mut waits = waiting().await;
    assert_deletes();
    must(held.release().await);
    assert_eq!(waits.code().await, Some(125));
    let said = waits.said();
    assert!(said.contains("has deleted the file") && !file.exists(), "{said}");
    must(must(scene.provider.lock("a").acquire().await).release().await);
}

/// The file has one of the two handles at each moment. The lease of the run lasts for 5 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_run_is_killed() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        let mut killed = Vec::new();
        for (number, moment) in Moment::all().enumerate() {
            let (name, file) = (format!("lock-{number}"), format!("lease-{number}"));
            scene.detach(&name, &file).await;
            let run = format!("run --resume {file} --expiry 5s --then-detach 2h -- true");
            let run = scene.command(&run);
            moment.send(Signal::KILL, run, &scene.file(&file)).await;
            assert!(scene.handle(&file).names().eq([&*name]), "{moment:?}");
            killed.push((name, scene.file(&file)));
        }
        for (name, file) in killed {
            scene.assert_ends(&name, &file, AMPLE).await;
        }
    }
}

/// The lease is given back, or the command gets the signal and the lease is detached again: the handle in the file works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_run_is_interrupted() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        for (number, moment) in Moment::all().enumerate() {
            let name = format!("lock-{number}");
            scene.detach(&name, "lease").await;
            let run = scene.command("run --resume lease --then-detach 2h -- sleep 0.05");
            moment.send(Signal::TERM, run, &scene.file("lease")).await;
            let handle = scene.handle("lease");
            until(&name, async || must(scene.provider.release(&handle).await)).await;
        }
    }
}
