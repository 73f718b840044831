//! Which documents a takeover margin applies to.

use std::time::Duration;

use mongodb::bson::{Bson, doc};
use mongolock::{LockProvider, LockState, LossReason};
use mongolock_tests::{AMPLE, change_lock, claim, eventually, must};
use tokio::time::timeout;

use crate::fixture::{Fixture, assert_lost};
use crate::planted::GUID;

fn with_margin(fixture: &Fixture) -> LockProvider {
    fixture.with(|builder| builder.takeover_margin(AMPLE))
}

/// The margin applies to a `lockId` that is neither empty nor a mark, whatever program has written it.
#[tokio::test]
async fn a_margin_applies_to_claims_only() {
    let fixture = Fixture::mongodb().await;
    let provider = with_margin(&fixture);
    let cases: [(&str, Option<Bson>, bool); 9] = [
        ("claim", Some(format!("a#{GUID}").into()), true),
        ("guid", Some(GUID.into()), true),
        ("dollar", Some("$lockId".into()), true),
        ("released", Some("".into()), false),
        ("mark", Some(format!("done:a#{GUID}").into()), false),
        ("null", Some(Bson::Null), false),
        ("number", Some(7.into()), false),
        ("array", Some(vec!["a#1"].into()), false),
        ("empty", None, false),
    ];
    for (name, lock_id, is_taken) in cases {
        // The lease has ended five seconds ago.
        let mut document = claim(name, lock_id.clone(), -5000);
        if lock_id.is_none() {
            document.remove("lockId");
            document.remove("expiresAt");
        }
        fixture.locks().insert_one(&document).await.unwrap();
        let acquired = provider.lock(name).try_acquire().await.unwrap();
        assert_eq!(acquired.is_none(), is_taken, "{document}");
        if is_taken {
            let found = fixture.document(name).await;
            assert_eq!(found, Some(document), "the attempt changes nothing");
        }
    }
}

/// After a failover to a member whose clock is ahead, a lease that runs is over by that clock. A provider without a margin
/// takes the lock from its holder; one with a margin leaves it to the holder, until that knows.
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
        assert_eq!(fixture.info("held").await.state, LockState::Expired);
        let margin = if has_margin { AMPLE } else { Duration::ZERO };
        let rival = fixture.with(|builder| builder.takeover_margin(margin));
        let taken = rival.lock("held").try_acquire().await.unwrap();
        assert_eq!(taken.is_none(), has_margin);
        if has_margin {
            // Nobody has had the lock, but its lease is over.
            timeout(AMPLE / 2, held.lost()).await.expect("the next renewal");
            assert_lost(held.release().await, LossReason::Gone);
            let free = async || rival.lock("held").try_acquire().await.unwrap();
            let taken = must(eventually(AMPLE / 2, "the lock is free", free).await);
            taken.release().await.unwrap();
        }
    }
}
