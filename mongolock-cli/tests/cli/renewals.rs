//! What `run` says before it ends its command: that renewals fail, how much time is left, and why.

use std::time::Duration;

use mongolock_tests::must;

use crate::scene::Scene;

/// The server's code of an error that no driver repeats.
const OPERATION_FAILED: i32 = 96;

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
    assert!(
        left(ends) <= 2.1,
        "SIGTERM is sent a sixth of the expiry before the end: {said}"
    );
    assert!(
        lost.contains("the lock was lost, and the command was ended"),
        "{said}"
    );
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
    tokio::time::sleep(Duration::from_secs(5)).await;
    let said = scene.said();
    assert_eq!(said.lines().count(), 2, "{said}");
    scene.end();
    assert_eq!(scene.run.code().await, Some(0));
}
