//! Notes about holds, and who has ended one by force, in memory and on MongoDB.

use std::time::Duration;

use mongolock::{LockError, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::time::{sleep, timeout};

use super::detached::HOUR;
use super::subject::Subject;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, refused_option};

conformance!(
    a_note_is_shown_after_the_first_renewal,
    a_note_is_shown_at_once_where_the_program_asks_for_it,
    the_note_of_a_lock_replaces_that_of_the_provider,
    a_caller_that_has_waited_learns_the_note_of_the_holder,
    a_hold_that_is_handed_over_has_the_note_of_its_caller,
    a_detached_lease_keeps_its_note_and_a_resumed_one_has_its_own,
    the_former_holder_learns_who_has_released_its_lock_and_why,
    each_holder_of_an_owner_learns_who_has_released_its_locks,
    a_loss_without_an_operator_names_none,
    long_notes_and_reasons_are_refused,
);

conformance_of_kinds!(
    each_kind_has_notes: HOLDS,
);

/// A provider that renews its leases several times a second.
fn noting(fixture: &Fixture, owner: &str, note: &str) -> LockProvider {
    let soon = Duration::from_millis(50);
    fixture.with(|options| options.owner(owner).note(note).renew_interval(soon))
}

async fn until_noted(fixture: &Fixture, name: &str, note: Option<&str>) {
    let is_noted = || async { (fixture.info(name).await.note.as_deref() == note).then_some(()) };
    must(eventually(AMPLE, "the note", is_noted).await);
}

async fn a_note_is_shown_after_the_first_renewal(fixture: Fixture) {
    let slow = fixture.with(|options| options.note("never renewed"));
    let _slow = slow.lock("a").await.unwrap();
    let annotated = noting(&fixture, "web-1", "release 812\n");
    let _noted = annotated.lock("b").await.unwrap();
    let _without = noting(&fixture, "web-2", "").lock("c").await.unwrap();
    until_noted(&fixture, "b", Some("release 812\n")).await;
    let listed = fixture.provider.admin().list(LockFilter::new()).await.unwrap();
    let notes: Vec<_> = listed.iter().map(|lock| lock.note.as_deref()).collect();
    assert_eq!(notes, [None, Some("release 812\n"), None]);
    let json = serde_json::to_value(&listed).unwrap();
    assert_eq!(json[1]["note"], "release 812\n");
    assert!(json[0].get("note").is_none());
    assert!(listed[1].waiters.is_empty(), "a note is no waiter");
}

async fn a_note_is_shown_at_once_where_the_program_asks_for_it(fixture: Fixture) {
    let provider = fixture.with(|options| options.note("$$NOW").notes_at_once());
    let guard = provider.lock("n").await.unwrap();
    let noted = timeout(BEFORE_EXPIRY, until_noted(&fixture, "n", Some("$$NOW")));
    noted.await.expect("long before the first renewal");
    guard.release().await.unwrap();
    assert_eq!(fixture.info("n").await.note, None, "no hold");
}

async fn the_note_of_a_lock_replaces_that_of_the_provider(fixture: Fixture) {
    let provider = noting(&fixture, "web-1", "of the provider");
    let _first = provider.lock("first").await.unwrap();
    let second = provider.lock("second").note("of the lock");
    let _second = second.acquire().await.unwrap();
    let _third = provider.lock("third").note("").acquire().await.unwrap();
    until_noted(&fixture, "first", Some("of the provider")).await;
    until_noted(&fixture, "second", Some("of the lock")).await;
    assert_eq!(fixture.info("third").await.note, None);
}

async fn a_caller_that_has_waited_learns_the_note_of_the_holder(fixture: Fixture) {
    let holder = noting(&fixture, "web-1", "file\t7 of 9");
    let _held = holder.lock("n").await.unwrap();
    until_noted(&fixture, "n", Some("file\t7 of 9")).await;
    let _other = fixture.process("web-2").lock("other").await.unwrap();
    let rival = fixture.rival();
    let note_after = async |name: &str, wait: u64| {
        let lock = rival.lock(name).acquire_timeout(Duration::from_millis(wait));
        let error = lock.acquire().await.unwrap_err();
        let LockError::Timeout { note, .. } = &error else {
            panic!("{error:?}");
        };
        (note.clone(), error.to_string())
    };
    let (note, text) = note_after("n", 700).await;
    assert_eq!(note.as_deref().map(String::as_str), Some("file\t7 of 9"));
    assert!(text.contains("held by web-1"), "{text}");
    assert!(text.ends_with(r"; its note: file\t7 of 9"), "{text}");
    assert_eq!(note_after("other", 700).await.0, None, "its holder has none");
    let set = rival.lock_all(["n", "free"]);
    let set = set.acquire_timeout(Duration::from_millis(700));
    let text = set.acquire().await.unwrap_err().to_string();
    assert!(text.ends_with(r"; its note: file\t7 of 9"), "{text}");
    let (note, _) = note_after("n", 400).await;
    assert_eq!(note, None, "a short wait costs no command more");
}

async fn a_hold_that_is_handed_over_has_the_note_of_its_caller(fixture: Fixture) {
    let provider = noting(&fixture, "web-1", "");
    let lock = |note: &str| provider.lock("n").note(note);
    let first = lock("first").acquire().await.unwrap();
    let wait = |note: &str| {
        let lock = lock(note);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let (second, third) = (wait("second"), wait(""));
    sleep(Duration::from_millis(100)).await;
    until_noted(&fixture, "n", Some("first")).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    until_noted(&fixture, "n", Some("second")).await;
    second.release().await.unwrap();
    let third = third.await.unwrap();
    until_noted(&fixture, "n", None).await;
    third.release().await.unwrap();
}

async fn a_detached_lease_keeps_its_note_and_a_resumed_one_has_its_own(fixture: Fixture) {
    let first = noting(&fixture, "web-1", "draft of anna");
    let guard = first.lock("n").await.unwrap();
    let handle = guard.detach(HOUR).await.unwrap();
    until_noted(&fixture, "n", Some("draft of anna")).await;
    assert!(fixture.info("n").await.detached);
    let second = noting(&fixture, "web-2", "saving");
    let _resumed = second.resume(&handle).await.unwrap();
    until_noted(&fixture, "n", Some("saving")).await;
}

async fn each_kind_has_notes(subject: Subject) {
    let target = subject.of(&noting(&subject.fixture, "web-1", "of the provider"));
    let target = target.note("of a kind");
    let _hold = target.acquire().await.unwrap();
    let noted = async || {
        let infos = subject.infos().await;
        let are_noted = infos.iter().all(|info| info.note.as_deref() == Some("of a kind"));
        are_noted.then_some(())
    };
    must(eventually(AMPLE, "the notes", noted).await);
}

fn forced<T: std::fmt::Debug>(lost: Result<T, LockError>) -> Option<String> {
    match lost {
        Err(LockError::Lost { forced, .. }) => forced,
        other => panic!("{other:?}"),
    }
}

async fn the_former_holder_learns_who_has_released_its_lock_and_why(fixture: Fixture) {
    let admin = fixture.process("anna@ops").admin();
    let second = Duration::from_secs(1);
    let provider = fixture.with(|options| options.owner("web-1").renew_interval(second));
    // By a renewal, whose caller waits for the loss.
    let guard = provider.lock("renewed").await.unwrap();
    assert!(admin.force_release("renewed").reason("stuck\x1b").await.unwrap());
    guard.lost().await;
    let lost = guard.release().await;
    let shown = lost.as_ref().unwrap_err().to_string();
    assert!(shown.contains("released by force by anna@ops"), "{shown}");
    assert!(shown.ends_with(r"stuck\u{1b}"), "{shown}");
    let said = forced(lost).expect("the operator is known");
    assert!(
        said.starts_with("anna@ops") && said.ends_with(": stuck\x1b"),
        "{said}"
    );
    // By a release.
    let guard = fixture.provider.lock("released").await.unwrap();
    assert!(admin.force_release("released").await.unwrap());
    let said = forced(guard.release().await).expect("the operator is known");
    assert!(!said.contains(": "), "{said}");
    // By the mark that its work is done, by a request to detach it, and by a body that is cancelled.
    let release = async |name: &str| admin.force_release(name).reason(name).await.unwrap();
    let guard = provider.lock("done").once().acquire().await.unwrap();
    assert!(release("done").await);
    let done = guard.done().await;
    let guard = provider.lock("detached").await.unwrap();
    assert!(release("detached").await);
    let detached = guard.detach(HOUR).await.map(drop);
    let running = provider.lock("cancelled").run(async |_| {
        assert!(release("cancelled").await);
        sleep(AMPLE).await;
        Ok::<_, LockError>(())
    });
    for (lost, reason) in [
        (done, "done"),
        (detached, "detached"),
        (running.await, "cancelled"),
    ] {
        let said = forced(lost);
        assert!(
            said.is_some_and(|said| said.ends_with(&format!(": {reason}"))),
            "{reason}"
        );
    }
}

async fn each_holder_of_an_owner_learns_who_has_released_its_locks(fixture: Fixture) {
    let provider = fixture.process("web-1");
    let mut guards = Vec::new();
    for name in 0..20 {
        guards.push(provider.lock(name).await.unwrap());
    }
    let _other = fixture.process("web-2").lock("other").await.unwrap();
    let admin = fixture.process("anna").admin();
    let released = admin.release_owner("web-1").reason("it is gone").await;
    assert_eq!(released.unwrap(), 20);
    let mut learned = 0;
    for guard in guards {
        if let Some(said) = forced(guard.release().await) {
            assert!(said.starts_with("anna"), "{said}");
            assert!(said.ends_with(": it is gone"), "{said}");
            learned += 1;
        }
    }
    // A slow machine may cost single ones the note, for which a release waits 200 ms.
    assert!(learned >= 16, "{learned}");
}

async fn a_loss_without_an_operator_names_none(fixture: Fixture) {
    let lock = super::unrenewed(&fixture.provider, "n");
    let guard = lock.acquire().await.unwrap();
    guard.lost().await;
    assert_eq!(forced(guard.release().await), None);
}

async fn long_notes_and_reasons_are_refused(fixture: Fixture) {
    let (longest, longer) = ("\u{e4}".repeat(128), "a".repeat(257));
    let provider = fixture.with(|options| options.note(&*longest));
    let guard = provider.lock("n").note(longest).acquire().await.unwrap();
    let built = fixture.provider.to_builder().note(&*longer).build();
    assert_eq!(refused_option(built), "note");
    let acquired = provider.lock("other").note(&*longer).acquire().await;
    assert_eq!(refused_option(acquired), "note");
    let admin = provider.admin();
    let forced = admin.force_release("n").reason(&*longer).await;
    assert_eq!(refused_option(forced), "reason");
    let own = fixture.info("n").await.owner.unwrap();
    let forced = admin.release_owner(&own).reason(longer).await;
    assert_eq!(refused_option(forced), "reason");
    guard.release().await.expect("nothing was released");
}
