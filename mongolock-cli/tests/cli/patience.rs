//! A `run` whose server refuses it or is not there: it says why renewals fail, and a mark, a detachment and a release are repeated
//! while the lease lasts.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongolock::{LeaseHandle, LockState};
use mongolock_tests::{BEFORE_EXPIRY, Server, ServerOptions, TestDb, must, test_db};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::fixture::{Running, at, mongolock, output, provider, state};
use crate::scene::Scene;

/// The code of a refusal that passes.
const PASSING: i32 = 365;

/// The server's code of an error that no driver repeats.
const OPERATION_FAILED: i32 = 96;

/// For how long the server refuses: longer than any single request of the program.
const TROUBLE: Duration = Duration::from_secs(9);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_hold_is_repeated_while_the_lease_lasts() {
    let directory = must(tempfile::tempdir());
    let file = directory.path().join("handle");
    let shown = file.display().to_string();
    let (once, plain, detached) = (test_db().await, test_db().await, test_db().await);
    let acquire = ["acquire", "a", "--ttl", "5m", "--handle", &shown];
    assert_eq!(output(mongolock(&detached, &acquire)).0, Some(0));
    let mark = ["a", "--once-per", "1d", "--expiry", "60s"];
    let detach = ["--resume", &shown, "--then-detach", "5m", "--expiry", "60s"];
    let (_, _, scene) = tokio::join!(
        is_repeated("mark", once, &mark, 0, LockState::Done),
        // The exit code is that of the command, whatever becomes of the lock.
        is_repeated("release", plain, &["a", "--expiry", "5m"], 7, LockState::Released),
        is_repeated("detachment", detached, &detach, 0, LockState::Held),
    );
    let handle: LeaseHandle = must(must(fs::read_to_string(&file)).trim().parse());
    let released = must(provider(&scene.db).await.release(&handle).await);
    assert!(released, "the handle is that of the lease");
}

/// The command ends while the server refuses the end of its hold, and the program says so once.
async fn is_repeated(what: &str, db: TestDb, options: &[&str], code: i32, wanted: LockState) -> Scene {
    let mut scene = Scene::start_in(db, options, code).await;
    let refusing = scene.refuse(PASSING).await;
    scene.end();
    let begun = Instant::now();
    let repeats = format!("the {what} of a is not confirmed, trying for at most ");
    let said = scene.until_said(&repeats).await;
    assert_eq!(said.lines().count(), 1, "{said}");
    // The library repeats a release in the background.
    assert_eq!(said.contains("(error 365"), what != "release", "{said}");
    sleep(TROUBLE.saturating_sub(begun.elapsed())).await;
    must(refusing.clear().await);
    assert_eq!(scene.run.code().await, Some(code), "{}", scene.said());
    assert_eq!(state(&scene.db, "a").await, wanted);
    scene
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

/// The command has succeeded, and its lock expires by itself. Only a mark that is missing is a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_at_the_end_does_not_make_success_a_failure() {
    let outage = async |options: &[&str], code: i32, words: &str| {
        let mut scene = Scene::start(options, 0).await;
        scene.proxy.freeze();
        scene.end();
        let ended = scene.run.code().await;
        let said = scene.said();
        assert!(ended == Some(code) && said.contains(words), "{ended:?}: {said}");
    };
    let mark = ["a", "--expiry", "8s", "--once-per", "7d"];
    tokio::join!(
        outage(&["a", "--expiry", "8s"], 0, "not released, and expires by itself"),
        outage(&mark, 125, "is not marked as done"),
    );
}

/// The seconds that are left by a line that says them.
fn left(said: &str) -> f64 {
    let (before, _) = said.split_once("s left").expect("it says what is left");
    let number = before.rsplit(' ').next().unwrap_or_default();
    must(number.parse())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_is_told_before_the_command_ends() {
    let mut scene = Scene::start(&["a", "--expiry", "12s"], 0).await;
    scene.proxy.freeze();
    let said = scene.until_said("renewal failed, ").await;
    assert!(!scene.run.has_ended(), "it is told in time: {said}");
    assert!((2.0..10.0).contains(&left(&said)), "{said}");
    assert_eq!(scene.run.code().await, Some(124));
    let said = scene.said();
    let lines: Vec<&str> = said.lines().collect();
    let [.., ends, lost] = lines[..] else {
        panic!("two lines at least: {said}")
    };
    assert!(ends.contains("the lock was not renewed, "), "{said}");
    assert!(ends.ends_with("s left: the command is ended"), "{said}");
    // SIGTERM is sent a sixth of the expiry before the end.
    assert!(left(ends) <= 2.1, "{said}");
    let is_lost = lost.contains("the lock was lost, and the command was ended");
    assert!(is_lost, "{said}");
}

/// Each reason is told once, and so is the end of the trouble.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_renewal_is_told_with_the_reason() {
    let mut scene = Scene::start(&["a", "--expiry", "5s"], 0).await;
    let failing = scene.refuse(OPERATION_FAILED).await;
    let said = scene.until_said("renewal failed, ").await;
    assert!(said.contains("error 96, OperationFailed"), "{said}");
    must(failing.clear().await);
    scene.until_said("the lock is renewed again").await;
    // A whole lease later nothing else was said.
    sleep(Duration::from_secs(5)).await;
    let said = scene.said();
    assert_eq!(said.lines().count(), 2, "{said}");
    scene.end();
    assert_eq!(scene.run.code().await, Some(0));
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
    let line = "run nightly --once-per 1d --expiry 60s --wait 3m -- sh -c";
    let arguments: Vec<&str> = line.split(' ').chain([&*script]).collect();
    let host = || {
        let mut host = at(&server.uri(), &db, &arguments);
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
