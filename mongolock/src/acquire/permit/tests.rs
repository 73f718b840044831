use super::*;
use crate::LockProvider;

/// Without a change stream, and long before the next query is due.
#[tokio::test(start_paused = true)]
async fn a_release_in_this_process_ends_a_wait_at_once() {
    let pause = Duration::from_secs(10);
    let provider = LockProvider::in_memory().to_builder();
    let provider = provider.wake_up(false).retry_interval(pause..=pause).build();
    let semaphore = provider.unwrap().semaphore("s", 2);
    let (first, _second) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    );
    let waiting = semaphore.clone();
    let waiting = tokio::spawn(async move { waiting.acquire_timeout(None).acquire().await });
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    first.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Another process says that there are more permits.
#[tokio::test]
async fn permits_beyond_the_number_of_the_call_are_not_among_its_own() {
    let provider = LockProvider::in_memory();
    let (two, three) = (provider.semaphore("s", 2), provider.semaphore("s", 3));
    assert_eq!(two.available().await.unwrap(), 2);
    let mut held = Vec::new();
    for left in [2, 1, 0] {
        held.push(three.acquire().await.unwrap());
        assert_eq!(three.available().await.unwrap(), left);
    }
    assert_eq!(two.available().await.unwrap(), 0);
}

/// A foreign transaction has changed the document of a permit: it is chosen only if no other looks free.
#[test]
fn a_permit_whose_document_is_blocked_comes_last() {
    let (provider, name) = (LockProvider::in_memory(), RenderedName::new("s"));
    let options = Arc::new(Options::default());
    let call = AcquirePermit::permit(provider.engine(), &name, 2, &options, false, OnBusy::TryOnce);
    let held = HeldPermits::default();
    for _ in 0..20 {
        assert!(matches!(call.choose(&held, &[0]), Found::Free(1)));
    }
    assert!(matches!(call.choose(&held, &[0, 1]), Found::Free(0 | 1)));
}
