//! Calls that hold something and wait for something else: what their documents say, and which deadlocks are found.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, eventually, must};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, patient};
use crate::servers::{WITHOUT_WAITERS, guarded};
use crate::waiter_documents::{on_waiters, until_empty, waiters};

conformance!(
    a_ring_of_processes_is_named,
    a_ring_in_one_process_is_named_at_once,
    a_chain_is_no_deadlock,
    a_deadlock_that_is_over_is_not_named,
    a_deadlock_that_has_ended_since_the_last_look_is_not_named,
    a_deadlock_that_begins_late_is_named,
    a_hold_of_another_provider_is_known,
    callers_that_hold_nothing_do_not_hide_a_deadlock,
    a_semaphore_is_stuck_when_all_its_holders_are,
    a_semaphore_with_one_holder_that_works_is_not_stuck,
    a_set_that_waits_inside_a_hold_is_a_member,
    a_guard_alone_raises_no_alarm,
);

/// A wait of this time ends after the second look of a call that is in a deadlock from its beginning (1.8 s), also if the first
/// one has come too early on a slow machine (5.8 s), and each look takes a second there.
const LOOKED_TWICE: Duration = Duration::from_secs(10);

/// A wait of this time ends before the second look, which finds the deadlocks between processes.
const LOOKED_ONCE: Duration = Duration::from_millis(1_200);

/// The names of the deadlock that the error tells.
fn deadlock(outcome: Result<(), LockError>) -> Vec<String> {
    match outcome {
        Err(LockError::Timeout { deadlock, .. }) => *deadlock,
        Err(other) => panic!("{other}"),
        Ok(()) => panic!("it was acquired"),
    }
}

/// What all callers hold before the first of them waits.
fn together(callers: usize) -> Arc<Barrier> {
    Arc::new(Barrier::new(callers))
}

/// Waits for a lock under another one, when all hold theirs.
async fn nested(
    provider: LockProvider,
    (outer, inner): (String, String),
    limit: Duration,
    all_hold: Arc<Barrier>,
) -> Result<(), LockError> {
    let lock = provider.lock(inner).acquire_timeout(limit);
    let body = async |_| {
        all_hold.wait().await;
        lock.acquire().await?.release().await
    };
    provider.lock(outer).run(body).await
}

fn pair(outer: &str, inner: &str) -> (String, String) {
    (outer.to_owned(), inner.to_owned())
}

/// Each process holds a lock and waits for that of the next one; the first gives up after this time, and the others then
/// acquire theirs. The first finds the deadlock.
async fn ring(processes: Vec<LockProvider>, limit: Duration) {
    let (length, mut others) = (processes.len(), JoinSet::new());
    let all_hold = together(length);
    let name = |number: usize| format!("{length}:{}", number % length);
    let names = |number: usize| (name(number), name(number + 1));
    for (number, provider) in processes.iter().cloned().enumerate().skip(1) {
        others.spawn(nested(provider, names(number), AMPLE, Arc::clone(&all_hold)));
    }
    let found = deadlock(nested(processes[0].clone(), names(0), limit, all_hold).await);
    all_end(others).await;
    let expected: Vec<String> = (1..=length).map(name).collect();
    assert_eq!(found, expected);
}

/// Waits until the calls have succeeded, which need no longer wait for each other.
async fn all_end(calls: JoinSet<Result<(), LockError>>) {
    for outcome in timeout(AMPLE, calls.join_all()).await.expect("the calls end") {
        outcome.unwrap();
    }
}

async fn a_ring_of_processes_is_named(fixture: Fixture) {
    for length in [2, 3, 6] {
        let processes = (0..length).map(|number| fixture.process(&format!("p{number}")));
        ring(processes.collect(), LOOKED_TWICE).await;
    }
}

async fn a_ring_in_one_process_is_named_at_once(fixture: Fixture) {
    for length in 2..=6 {
        ring(vec![fixture.provider.clone(); length], LOOKED_ONCE).await;
    }
}

async fn a_chain_is_no_deadlock(fixture: Fixture) {
    let [first, second, third] = ["a", "b", "c"].map(|owner| fixture.process(owner));
    let last = third.lock("n2").await.unwrap();
    let (all_hold, mut others) = (together(2), JoinSet::new());
    others.spawn(nested(second, pair("n1", "n2"), AMPLE, Arc::clone(&all_hold)));
    let found = deadlock(nested(first, pair("n0", "n1"), Duration::from_secs(3), all_hold).await);
    assert_eq!(found, [""; 0]);
    last.release().await.unwrap();
    all_end(others).await;
}

/// Holds `n1` and waits for `n0`. After this time it gives up, with the deadlock in its error, and goes on with its work under
/// the lock until that is over.
async fn give_up(
    provider: LockProvider,
    limit: Duration,
    all_hold: Arc<Barrier>,
    is_over: Arc<Barrier>,
) -> Result<(), LockError> {
    let short = provider.lock("n0").acquire_timeout(limit);
    let body = async |_| {
        all_hold.wait().await;
        let found = deadlock(short.acquire().await.map(drop));
        assert_eq!(found, ["n0", "n1"]);
        is_over.wait().await;
        Ok(())
    };
    provider.lock("n1").run(body).await
}

/// Of two members the second gives up after this time, and then the wait of the first ends after its limit.
async fn over(first: LockProvider, second: LockProvider, gives_up: Duration, limit: Duration) {
    let (all_hold, is_over, mut others) = (together(2), together(2), JoinSet::new());
    others.spawn(give_up(
        second,
        gives_up,
        Arc::clone(&all_hold),
        Arc::clone(&is_over),
    ));
    let outcome = nested(first, pair("n0", "n1"), limit, all_hold).await;
    assert_eq!(deadlock(outcome), [""; 0]);
    is_over.wait().await;
    all_end(others).await;
}

async fn a_deadlock_that_is_over_is_not_named(fixture: Fixture) {
    let (one, same) = (fixture.provider.clone(), fixture.provider.clone());
    over(one, same, Duration::from_millis(300), LOOKED_TWICE).await;
}

/// A caller that has found a deadlock at 1.8 s looks again at 5.8 s by itself. The other member gives up in between.
async fn a_deadlock_that_has_ended_since_the_last_look_is_not_named(fixture: Fixture) {
    let [first, second] = ["a", "b"].map(|owner| fixture.process(owner));
    over(first, second, Duration::from_secs(3), Duration::from_secs(5)).await;
}

/// The first look finds none, and the second one would come after the end of the wait.
async fn a_deadlock_that_begins_late_is_named(fixture: Fixture) {
    let [first, second] = ["a", "b"].map(|owner| fixture.process(owner));
    let (all_hold, mut others) = (together(2), JoinSet::new());
    let is_held = Arc::clone(&all_hold);
    others.spawn(async move {
        let late = second.lock("n0").acquire_timeout(AMPLE);
        let body = async |_| {
            is_held.wait().await;
            sleep(Duration::from_secs(1)).await;
            late.acquire().await?.release().await
        };
        second.lock("n1").run(body).await
    });
    let outcome = nested(first, pair("n0", "n1"), Duration::from_secs(4), all_hold).await;
    assert_eq!(deadlock(outcome), ["n1", "n0"]);
    all_end(others).await;
}

/// The caller has its lock through another provider than the one through which it waits.
async fn a_hold_of_another_provider_is_known(fixture: Fixture) {
    let [first, waiting, second] = ["a", "b", "c"].map(|owner| fixture.process(owner));
    let (all_hold, mut others) = (together(2), JoinSet::new());
    others.spawn(nested(second, pair("n1", "n0"), AMPLE, Arc::clone(&all_hold)));
    let inner = waiting.lock("n1").acquire_timeout(LOOKED_TWICE);
    let body = async |_| {
        all_hold.wait().await;
        inner.acquire().await?.release().await
    };
    let outcome = first.lock("n0").run(body).await;
    assert_eq!(deadlock(outcome), ["n1", "n0"]);
    all_end(others).await;
}

/// In the process of one member such callers have begun before it, and give up one after the other between the looks.
async fn callers_that_hold_nothing_do_not_hide_a_deadlock(fixture: Fixture) {
    let [first, second] = ["a", "b"].map(|owner| fixture.process(owner));
    let (all_hold, mut others, mut plain) = (together(2), JoinSet::new(), JoinSet::new());
    let gives_up = Duration::from_secs(5);
    others.spawn(give_up(second, gives_up, Arc::clone(&all_hold), together(1)));
    let admin = first.admin();
    let taken = || async { admin.get("n1").await.unwrap().map(drop) };
    must(eventually(AMPLE, "the hold of the other member", taken).await);
    for _ in 0..5 {
        let wait = first.lock("n1").acquire_timeout(Duration::from_secs(7)).acquire();
        // The last ones may acquire it after the deadlock, and leave it to the others.
        plain.spawn(async { drop(wait.await) });
        sleep(Duration::from_millis(1_200)).await;
    }
    others.spawn(nested(first, pair("n0", "n1"), AMPLE, all_hold));
    all_end(others).await;
    plain.join_all().await;
}

/// Two permits, whose holders wait for the lock under which the first waits for a permit.
async fn a_semaphore_is_stuck_when_all_its_holders_are(fixture: Fixture) {
    let all_wait = [Some("n0"), Some("n0")];
    assert_eq!(permits(&fixture, all_wait).await, ["s", "n0"]);
    let same = vec![fixture.provider.clone(); 3];
    let found = permits_of(same, all_wait, LOOKED_ONCE).await;
    assert_eq!(found, ["s", "n0"]);
}

async fn a_semaphore_with_one_holder_that_works_is_not_stuck(fixture: Fixture) {
    assert_eq!(permits(&fixture, [Some("n0"), None]).await, [""; 0]);
}

async fn permits(fixture: &Fixture, waits: [Option<&'static str>; 2]) -> Vec<String> {
    let processes = ["a", "b", "c"].map(|owner| fixture.process(owner));
    permits_of(processes.to_vec(), waits, LOOKED_TWICE).await
}

/// The first process holds `n0` and waits for a permit; each other has a permit, and waits for a lock or works.
async fn permits_of(
    processes: Vec<LockProvider>,
    waits: [Option<&'static str>; 2],
    limit: Duration,
) -> Vec<String> {
    let (all_hold, mut others) = (together(3), JoinSet::new());
    for (provider, wait) in processes.iter().skip(1).cloned().zip(waits) {
        let all_hold = Arc::clone(&all_hold);
        others.spawn(async move {
            let body = async |_| {
                all_hold.wait().await;
                if let Some(name) = wait {
                    return provider.lock(name).acquire().await?.release().await;
                }
                sleep(limit + Duration::from_secs(1)).await;
                Ok(())
            };
            provider.semaphore("s", 2).run(body).await
        });
    }
    let permit = processes[0].semaphore("s", 2).acquire_timeout(limit);
    let outer = processes[0].lock("n0").run(async |_| {
        all_hold.wait().await;
        Ok::<_, LockError>(deadlock(permit.acquire().await.map(drop)))
    });
    let found = outer.await.unwrap();
    all_end(others).await;
    found
}

/// It lists the outer hold for the one name that it waits for at present.
async fn a_set_that_waits_inside_a_hold_is_a_member(fixture: Fixture) {
    let [first, second] = ["a", "b"].map(|owner| fixture.process(owner));
    let (all_hold, mut others) = (together(2), JoinSet::new());
    others.spawn(nested(second, pair("n2", "n0"), AMPLE, Arc::clone(&all_hold)));
    let set = first.lock_all(["n1", "n2", "n3"]).acquire_timeout(LOOKED_TWICE);
    let outer = first.lock("n0").run(async |_| {
        all_hold.wait().await;
        Ok::<_, LockError>(deadlock(set.acquire().await.map(drop)))
    });
    assert_eq!(outer.await.unwrap(), ["n2", "n0"]);
    all_end(others).await;
}

/// The guard may be in another task, which goes on.
async fn a_guard_alone_raises_no_alarm(fixture: Fixture) {
    let [first, second] = ["a", "b"].map(|owner| fixture.process(owner));
    let (all_hold, mut others) = (together(2), JoinSet::new());
    others.spawn(nested(second, pair("n1", "n0"), AMPLE, Arc::clone(&all_hold)));
    let guard = first.lock("n0").await.unwrap();
    all_hold.wait().await;
    let waiting = first.lock("n1").acquire_timeout(Duration::from_secs(3));
    assert_eq!(deadlock(waiting.acquire().await.map(drop)), [""; 0]);
    guard.release().await.unwrap();
    all_end(others).await;
}

/// Its own process has the lock, so that nothing else would be written.
#[tokio::test]
async fn the_document_of_a_wait_says_what_the_callers_hold() {
    let fixture = Fixture::mongodb().await;
    let (provider, waiters) = (fixture.provider.clone(), waiters(fixture.database()));
    let held = provider.lock("held").await.unwrap();
    let mut waiting = JoinSet::new();
    for outer in ["outer", "another"] {
        waiting.spawn(nested(provider.clone(), pair(outer, "held"), AMPLE, together(1)));
    }
    let guarding = provider.clone();
    waiting.spawn(async move {
        let _guard = guarding.lock("guard").await?;
        nested(guarding, pair("third", "held"), AMPLE, together(1)).await
    });
    let listed = || async {
        let document = waiters.find_one(doc! { "name": "held" }).await.ok()??;
        let holds = document.get_array("holds").ok()?;
        (holds.len() == 3).then_some(document)
    };
    let document = must(eventually(AMPLE, "all of them are listed", listed).await);
    let holds = document.get_array("holds").unwrap();
    for outer in ["outer", "another", "third"] {
        let id = fixture.lock_id(outer).await;
        assert!(holds.contains(&id.into()), "{document}");
    }
    let guard = fixture.lock_id("guard").await;
    assert_eq!(document.get_array("may_hold").unwrap(), &vec![guard.into()]);
    held.release().await.unwrap();
    all_end(waiting).await;
    until_empty(&waiters).await;
}

/// Nothing is known of what it holds but its guard, and its document is written in any case, because another process has the
/// lock.
#[tokio::test]
async fn the_document_of_a_waiting_task_names_its_guards() {
    let fixture = Fixture::mongodb().await;
    let (provider, waiters) = (fixture.provider.clone(), waiters(fixture.database()));
    let held = fixture.rival().lock("held").await.unwrap();
    let waiting = tokio::spawn(async move {
        let _guard = provider.lock("guard").await?;
        provider.lock("held").acquire().await?.release().await
    });
    let listed = || async {
        let document = waiters.find_one(doc! { "name": "held" }).await.ok()??;
        document.get_array("may_hold").ok().cloned()
    };
    let listed = must(eventually(AMPLE, "it is listed", listed).await);
    assert_eq!(listed, [fixture.lock_id("guard").await.into()]);
    held.release().await.unwrap();
    let ended = timeout(AMPLE, waiting).await.expect("it is released");
    ended.unwrap().unwrap();
}

/// A caller that holds something and waits for less than half a second sends nothing more, and so does one that holds
/// nothing, however long it waits for its own process.
#[tokio::test]
async fn a_short_wait_and_a_wait_that_holds_nothing_write_nothing() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let held = provider.lock("held").await.unwrap();
    let short = provider.lock("held").acquire_timeout(Duration::from_millis(100));
    let (outer, body) = (provider.lock("outer"), async |_| short.acquire().await.map(drop));
    outer.run(body).await.unwrap_err();
    let long = provider.lock("held").acquire_timeout(Duration::from_secs(2));
    long.acquire().await.unwrap_err();
    held.release().await.unwrap();
    let sent = on_waiters(&commands);
    // The long wait reads the note of the holder before its end.
    assert!(
        sent.iter().all(|command| command.contains_key("find")),
        "{sent:?}"
    );
}

/// The document of its wait is refused, which is not repeated, and then nothing looks for a deadlock.
#[tokio::test]
async fn a_user_without_the_rights_waits_as_before() {
    let (_server, database, commands) = guarded(&WITHOUT_WAITERS).await;
    let provider = patient(&database);
    let rival = provider.to_builder().build().unwrap();
    let held = rival.lock("held").await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(nested(provider, pair("outer", "held"), AMPLE, together(1)));
    // A second look would come after 5 s.
    sleep(LOOKED_TWICE).await;
    held.release().await.unwrap();
    all_end(waiting).await;
    let sent = on_waiters(&commands);
    // The write of its document, and the check of the indexes.
    assert!(sent.len() <= 3, "{sent:?}");
}
