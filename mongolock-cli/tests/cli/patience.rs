//! The end of `run` while the server refuses it, or has no primary: a mark, a detachment and a release are repeated while the lease
//! lasts.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongolock::{LeaseHandle, LockState};
use mongolock_tests::{BEFORE_EXPIRY, Server, ServerOptions, must, test_db};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::fixture::{Running, at, mongolock, output, provider};
use crate::scene::Scene;

/// The code of a refusal that passes.
const PASSING: i32 = 365;

/// For how long the server refuses: longer than any single request of the program.
const TROUBLE: Duration = Duration::from_secs(9);

async fn state(scene: &Scene) -> LockState {
    let info = must(provider(&scene.db).await.admin().get("a").await);
    info.expect("it was acquired").state
}

/// The command ends while the server refuses the end of its hold, and the program has said so.
async fn in_trouble(scene: &Scene, what: &str) {
    let refusing = scene.refuse(PASSING).await;
    scene.end();
    let begun = Instant::now();
    let said = scene
        .until_said(&format!("the {what} of a is not confirmed, trying for at most "))
        .await;
    assert_eq!(said.lines().count(), 1, "{said}");
    sleep(TROUBLE.saturating_sub(begun.elapsed())).await;
    must(refusing.clear().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_hold_is_repeated_while_the_lease_lasts() {
    tokio::join!(
        a_mark_is_repeated(),
        a_release_is_repeated(),
        a_detachment_is_repeated()
    );
}

async fn a_mark_is_repeated() {
    let mut scene = Scene::start(&["a", "--once-per", "1d", "--expiry", "60s"], 0).await;
    in_trouble(&scene, "mark").await;
    assert_eq!(scene.run.code().await, Some(0), "{}", scene.said());
    assert_eq!(state(&scene).await, LockState::Done);
}

/// The exit code is that of the command, whatever becomes of the lock.
async fn a_release_is_repeated() {
    let mut scene = Scene::start(&["a", "--expiry", "5m"], 7).await;
    in_trouble(&scene, "release").await;
    assert_eq!(scene.run.code().await, Some(7), "{}", scene.said());
    assert_eq!(state(&scene).await, LockState::Released);
}

async fn a_detachment_is_repeated() {
    let db = test_db().await;
    let directory = must(tempfile::tempdir());
    let file = directory.path().join("handle");
    let shown = file.display().to_string();
    let acquire = ["acquire", "a", "--ttl", "5m", "--handle", &shown];
    assert_eq!(output(mongolock(&db, &acquire)).0, Some(0));
    let options = ["--resume", &shown, "--then-detach", "5m", "--expiry", "60s"];
    let mut scene = Scene::start_in(db, &options, 0).await;
    in_trouble(&scene, "detachment").await;
    assert_eq!(scene.run.code().await, Some(0), "{}", scene.said());
    let handle: LeaseHandle = must(must(fs::read_to_string(&file)).trim().parse());
    let released = must(provider(&scene.db).await.release(&handle).await);
    assert!(released, "the handle is that of the lease");
}

/// Who does not want to wait ends the program: the work will run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_the_wait_for_a_mark() {
    let mut scene = Scene::start(&["a", "--once-per", "1d", "--expiry", "60s"], 0).await;
    let _refusing = scene.refuse(PASSING).await;
    scene.end();
    scene.until_said("the mark of a is not confirmed").await;
    scene.run.signal(Signal::TERM);
    let begun = Instant::now();
    assert_eq!(scene.run.code().await, Some(125));
    assert!(begun.elapsed() < BEFORE_EXPIRY / 3, "{:?}", begun.elapsed());
    assert!(scene.said().contains("will run again"), "{}", scene.said());
}

/// A release that cannot pass is no reason to wait: the program names it, and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_validator_refuses_ends_at_once() {
    let mut scene = Scene::start(&["a", "--expiry", "5m"], 7).await;
    scene.db.set_validator(doc! { "lockId": { "$ne": "" } }).await;
    scene.end();
    let begun = Instant::now();
    assert_eq!(scene.run.code().await, Some(7));
    assert!(begun.elapsed() < BEFORE_EXPIRY, "{:?}", begun.elapsed());
    let said = scene.said();
    assert!(said.contains("was not released"), "{said}");
    assert!(said.contains("DocumentValidationFailure"), "{said}");
}

/// Two hosts run one job a day, and the primary is killed right before the first one ends it: the other one does not run it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "an election with the server's default timeout takes more than 10 s"]
async fn a_job_runs_once_although_the_primary_dies_at_its_end() {
    let options = ServerOptions::three_members().election_timeout(Duration::from_secs(10));
    let server = must(Server::start(options).await);
    let db = test_db().await;
    let directory = must(tempfile::tempdir());
    let ran = directory.path().join("ran");
    let script = format!("echo run >>'{}'; sleep 2", ran.display());
    let options = [
        "run",
        "nightly",
        "--once-per",
        "1d",
        "--expiry",
        "60s",
        "--wait",
        "3m",
        "--",
    ];
    let host = || {
        let mut host = at(
            &server.uri(),
            &db,
            &[&options[..], &["sh", "-c", &script]].concat(),
        );
        host.stderr(Stdio::inherit());
        Running::start(host)
    };
    let (mut one, mut other) = (host(), host());
    while !ran.exists() {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_millis(1700)).await;
    must(must(server.primary().await).kill().await);
    assert_eq!(tokio::join!(one.code(), other.code()), (Some(0), Some(0)));
    assert_eq!(must(fs::read_to_string(&ran)), "run\n");
}
