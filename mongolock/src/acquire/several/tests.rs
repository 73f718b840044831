use tokio::time::Instant;

use super::*;
use crate::LockProvider;

/// A call of a task that holds nothing, and that waits for these names.
fn waiting<'a>(
    provider: &'a LockProvider,
    names: &'a [RenderedName],
    first: usize,
    options: &'a Arc<Options>,
) -> AcquireSeveral<'a> {
    let is_inside_hold = false;
    AcquireSeveral::several(
        provider.engine(),
        names,
        first,
        options,
        is_inside_hold,
        OnBusy::Wait,
    )
}

/// The time that the call has waited between its locks does not count: it is longer than a maximum hold and a lease.
#[tokio::test(start_paused = true)]
async fn the_hold_of_names_that_were_acquired_one_by_one_begins_with_the_last() {
    let provider = LockProvider::in_memory();
    let rival = provider.to_builder().build().unwrap();
    let guard = rival.lock("b").acquire().await.unwrap();
    tokio::spawn(async move {
        sleep(Duration::from_secs(100)).await;
        guard.release().await.unwrap();
    });
    let names = [RenderedName::new("a"), RenderedName::new("b")];
    let options = Arc::new(Options {
        acquire_timeout: None,
        max_hold: Some(Duration::from_secs(60)),
        ..Options::default()
    });
    let call = waiting(&provider, &names, 0, &options);
    let mut hold = call.one_by_one().await.unwrap().unwrap();
    assert!(call.call.begun.elapsed() >= Duration::from_secs(100));
    assert!(hold.lease().acquired.elapsed() < Duration::from_secs(1));
    assert!(hold.lease().is_renewable(Instant::now()));
    hold.release().await.unwrap();
}

/// A call that acquires the locks one by one waits for the first, and the holder of the same set hands all of them over.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_first_lock_takes_the_whole_set_over() {
    let provider = LockProvider::in_memory();
    let holder = provider.lock_all(["a", "b"]);
    let first = holder.acquire().await.unwrap();
    let second = tokio::spawn(holder.acquire());
    tokio::task::yield_now().await;
    let names = ["a", "b"].map(RenderedName::new);
    let options = Arc::default();
    let call = waiting(&provider, &names, 1, &options);
    let release = async {
        tokio::task::yield_now().await;
        first.release().await.unwrap();
        // Its request reserves tokens, because the call waits behind it.
        let second = second.await.unwrap().unwrap();
        let token = second.fencing_token_of("b").unwrap();
        second.release().await.unwrap();
        token
    };
    let (acquired, token) = tokio::join!(call.one_by_one(), release);
    let mut hold = acquired.unwrap().unwrap();
    assert!(hold.lease().is_handed_over());
    assert_eq!(hold.lease().name(), "b");
    assert_eq!(hold.lease().token().get(), token.get() + 1);
    hold.release().await.unwrap();
}

/// The minimum hold begins when the caller has all locks.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_back_has_no_minimum_hold() {
    let provider = LockProvider::in_memory();
    let rival = provider.to_builder().build().unwrap();
    let _held = rival.lock("b").acquire().await.unwrap();
    let names = ["a", "b"].map(RenderedName::new);
    let options = Arc::new(Options {
        min_hold: Duration::from_secs(60),
        acquire_timeout: Some(Duration::from_secs(1)),
        ..Options::default()
    });
    let call = waiting(&provider, &names, 0, &options);
    let outcome = call.one_by_one().await;
    assert!(matches!(outcome, Err(LockError::Timeout { .. })));
    let begun = Instant::now();
    let free = rival.lock("a").acquire_timeout(None).acquire().await;
    assert!(free.is_ok() && begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn rounds_that_meet_the_same_holder_count_once() {
    let provider = LockProvider::in_memory();
    let (name, options) = (RenderedName::new("n"), Arc::default());
    let call = Call::new(provider.engine(), &name, &options, false, OnBusy::Wait);
    let new = || Rounds::new(&call);
    let held_by = |id: Option<&str>| Holder::new(Instant::now(), id.map(Arc::from), None, None);
    let met = [Some("one"), Some("one"), Some("two"), Some("two"), None];
    let mut rounds = new();
    let last = met.map(|id| rounds.was_last(0, &held_by(id)));
    assert_eq!(last, [false, false, false, false, true]);
    let mut unnamed = new();
    assert_eq!(
        [(); 3].map(|()| unnamed.was_last(0, &held_by(None))),
        [false, false, true]
    );
}

#[tokio::test]
async fn free_locks_are_acquired_by_the_first_round() {
    let provider = LockProvider::in_memory();
    let (names, options) = (["a", "b"].map(RenderedName::new), Arc::default());
    let call = waiting(&provider, &names, 0, &options);
    let entries = call.join();
    let turns = entries.iter().filter_map(Entry::try_turn).collect();
    let mut rounds = Rounds::new(&call.call);
    let round = call.round(&entries, turns, &mut rounds);
    assert!(matches!(round.await, Ok(Round::Acquired(_))));
}
