//! The retention of unused documents.

use std::time::Duration;

use tokio::time::{advance, sleep};

use super::*;
use crate::few::Few;
use crate::protocol::{Row, RowOrder, Then, When};
use crate::store::MemoryStore;
use crate::{LockFilter, LockProvider};

const SECOND: Duration = Duration::from_secs(1);

/// Runs a row, and returns the token that the document has then.
fn run(store: &MemoryStore, name: &str, when: When, then: Then) -> i64 {
    let name = Arc::from(name);
    let replies = store.run(&Few::One([Row { name, when, then }]), RowOrder::Each);
    let reply = &replies[0];
    assert_eq!(reply.is_applied, Some(true), "{replies:?}");
    reply.sight.as_ref().unwrap().document.token.long().unwrap()
}

/// Acquires the lock for a second with this number of tokens, and returns the last of them.
fn claim(store: &MemoryStore, name: &str, tokens: i64) -> i64 {
    let id = "one".into();
    let expiry = 1000;
    let then = Then::Claim { id, expiry, tokens };
    run(store, name, When::Free { margin: 0 }, then)
}

/// Each name is used once, a hundred names a second.
async fn use_names(provider: &LockProvider, names: std::ops::Range<u32>) {
    for name in names {
        provider.lock(name).await.unwrap().release().await.unwrap();
        sleep(SECOND / 100).await;
    }
}

async fn count(provider: &LockProvider) -> usize {
    provider.admin().list(LockFilter::new()).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn documents_are_deleted_after_their_retention() {
    let builder = LockProvider::in_memory().to_builder();
    let provider = builder.retention(SECOND).build().unwrap();
    let held = provider.lock("held").await.unwrap();
    use_names(&provider, 0..5000).await;
    let kept = count(&provider).await;
    assert!((100..=210).contains(&kept), "{kept} documents");
    let document = provider.admin().get("held").await.unwrap().expect("it is kept");
    assert_eq!(document.fencing_token, held.fencing_token());
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_provider_that_was_built_last_decides() {
    let day = LockProvider::in_memory();
    use_names(&day, 0..500).await;
    assert_eq!(count(&day).await, 500);
    let second = day.to_builder().retention(SECOND).build().unwrap();
    use_names(&day, 500..2000).await;
    let kept = count(&second).await;
    assert!((100..=210).contains(&kept), "{kept} documents");
    let _day_again = day.to_builder().build().unwrap();
    use_names(&second, 2000..2500).await;
    assert_eq!(count(&day).await, kept + 500);
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_after_a_deletion_also_if_they_ran_ahead_of_the_clock() {
    let store = MemoryStore::new();
    store.set_retention(SECOND);
    let before = claim(&store, "n", 1_000_000_000);
    advance(SECOND * 3).await;
    claim(&store, "other", 1);
    assert!(store.sight(store.now(), "n").is_none());
    assert!(claim(&store, "n", 1) > before);
}

/// A release gives back what was not handed out of its block, and still each hold has a greater token than the one before
/// it: the clock stands still, and is behind the tokens when the document is deleted.
#[tokio::test(start_paused = true)]
async fn tokens_rise_over_releases_that_give_back_the_rest_of_their_blocks() {
    const BLOCK: i64 = 1000;
    let store = MemoryStore::new();
    store.set_retention(SECOND / 100);
    let (min_hold, unused, mut last) = (0, BLOCK - 1, 0);
    for _ in 0..100_000 {
        let first = claim(&store, "n", BLOCK) - unused;
        assert!(first > last, "{first} after {last}");
        let end = Then::End { min_hold, unused };
        last = run(&store, "n", When::is(&"one".into()), end);
        assert_eq!(last, first, "one token was handed out");
    }
    advance(SECOND / 50).await;
    assert!(last > store.now() * 1000, "the tokens are ahead of the clock");
    claim(&store, "other", 1);
    assert!(store.sight(store.now(), "n").is_none(), "it was deleted");
    assert!(claim(&store, "n", 1) > last);
}
