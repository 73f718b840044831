//! S1.19: tokens rise, even when the document of the lock is deleted or its token is ahead of the clock.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{FencingToken, LockProvider};
use mongolock_tests::{AMPLE, eventually, must};

use crate::fixture::Fixture;

async fn next_token(provider: &LockProvider, name: &str) -> FencingToken {
    let guard = provider.lock(name).await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

/// S1.19, B1
#[tokio::test]
async fn tokens_rise_after_the_document_was_deleted_by_hand() {
    let fixture = Fixture::mongodb().await;
    let mut last = next_token(&fixture.provider, "deleted").await;
    for _ in 0..20 {
        fixture
            .locks()
            .delete_one(doc! { "_id": "deleted" })
            .await
            .unwrap();
        let token = next_token(&fixture.provider, "deleted").await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

/// S1.19, S1.9, B1, B17: the server removes the document. Its TTL monitor runs once a second in the tests.
#[tokio::test]
async fn tokens_rise_after_the_ttl_index_removed_the_document() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture
        .provider
        .to_builder()
        .retention(Duration::from_secs(1))
        .build()
        .unwrap();
    let before = next_token(&provider, "swept").await;
    let held = provider.lock("held").await.unwrap();
    must(
        eventually(AMPLE * 2, "the server removes the document", async || {
            fixture.document("swept").await.is_none().then_some(())
        })
        .await,
    );
    assert!(
        fixture.document("held").await.is_some(),
        "the document of a held lock is never removed"
    );
    assert!(next_token(&provider, "swept").await > before);
    held.release().await.unwrap();
}

/// S1.19: the stored token is ahead of the clock.
#[tokio::test]
async fn tokens_rise_after_a_token_ahead_of_the_clock() {
    let fixture = Fixture::mongodb().await;
    let ahead = i64::pow(2, 52);
    fixture
        .locks()
        .insert_one(doc! { "_id": "ahead", "fencingToken": ahead })
        .await
        .unwrap();
    assert_eq!(next_token(&fixture.provider, "ahead").await.get(), ahead + 1);
    assert_eq!(next_token(&fixture.provider, "ahead").await.get(), ahead + 2);
}

#[test]
fn a_token_is_a_number_in_every_format() {
    let json = "1795225770144000";
    let token: FencingToken = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&token).unwrap(), json);
    assert_eq!(token.to_string(), json);
    assert_eq!(
        doc! { "token": token },
        doc! { "token": 1_795_225_770_144_000_i64 }
    );
    assert_eq!(i64::from(token), token.get());
}
