//! Which documents a takeover margin applies to.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::{LockProvider, LockState};
use mongolock_tests::{AMPLE, change_lock, eventually, must};

use crate::fixture::Fixture;

fn with_margin(fixture: &Fixture) -> LockProvider {
    let builder = fixture.provider.to_builder().takeover_margin(AMPLE);
    builder.build().unwrap()
}

/// A document whose lease ended five seconds ago.
fn expired(name: &str, lock_id: impl Into<Bson>) -> Document {
    let past = DateTime::from_millis(DateTime::now().timestamp_millis() - 5000);
    doc! {
        "_id": name, "lockId": lock_id, "acquiredAt": past, "expiresAt": past, "fencingToken": 17_i64,
    }
}

/// The margin applies to a `lockId` that is neither empty nor a mark, whatever program has written it.
#[tokio::test]
async fn a_margin_applies_to_claims_only() {
    let fixture = Fixture::mongodb().await;
    let provider = with_margin(&fixture);
    let past = DateTime::from_millis(0);
    let cases: [(&str, Document, bool); 9] = [
        (
            "claim",
            expired("claim", "a#0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11"),
            true,
        ),
        (
            "guid",
            expired("guid", "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11"),
            true,
        ),
        ("dollar", expired("dollar", "$lockId"), true),
        ("released", expired("released", ""), false),
        (
            "mark",
            expired("mark", "done:a#0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11"),
            false,
        ),
        ("null", expired("null", Bson::Null), false),
        ("number", expired("number", 7), false),
        ("array", expired("array", vec!["a#1"]), false),
        (
            "empty",
            doc! { "_id": "empty", "acquiredAt": past, "fencingToken": 17_i64 },
            false,
        ),
    ];
    for (name, document, is_taken) in cases {
        fixture.locks().insert_one(&document).await.unwrap();
        let acquired = provider.lock(name).try_acquire().await.unwrap();
        assert_eq!(acquired.is_none(), is_taken, "{document}");
        if is_taken {
            assert_eq!(
                fixture.document(name).await,
                Some(document),
                "the attempt changes nothing"
            );
        }
    }
}

/// After a failover to a member whose clock is ahead, a lease that runs is over by that clock. A provider without a margin
/// takes the lock from its holder; one with a margin leaves it to the holder, whose renewals go on.
#[tokio::test]
async fn a_lease_that_a_clock_ahead_has_ended_is_left_to_its_holder() {
    let fixture = Fixture::mongodb().await;
    let provider = with_margin(&fixture);
    // The next renewal comes after three seconds, which leaves a slow machine time for an attempt before it.
    let expiry = Duration::from_secs(9);
    for has_margin in [true, false] {
        let held = provider.lock("held").expiry(expiry).await.unwrap();
        let back = doc! { "$set": { "expiresAt": { "$subtract": ["$expiresAt", 30_000_i64] } } };
        change_lock(fixture.database(), "held", back).await;
        let info = fixture.provider.admin().get("held").await.unwrap().unwrap();
        assert_eq!(info.state, LockState::Expired);
        let rival = if has_margin {
            with_margin(&fixture)
        } else {
            fixture.rival()
        };
        let taken = rival.lock("held").try_acquire().await.unwrap();
        assert_eq!(taken.is_none(), has_margin);
        if has_margin {
            let renewed = async || {
                let info = fixture.provider.admin().get("held").await.unwrap()?;
                (info.state == LockState::Held).then_some(())
            };
            must(eventually(AMPLE, "the next renewal", renewed).await);
            held.release().await.expect("the holder has kept the lock");
        }
    }
}
