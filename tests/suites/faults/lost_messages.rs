//! Requests and replies that are lost or late while a lock, a set or a permit is acquired, detached, resumed and released.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Database;
use mongodb::bson::{DateTime, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Fault, Meant, Proxy, Purpose, eventually, locks, must};
use tokio::time::timeout;

use crate::act::Act;
use crate::detached::{HOUR, detach, resume};
use crate::{LONG_EXPIRY, Proxied, Standalone, assert_stores_its_tokens, claims};

/// What is acquired, with the number of its claims.
const ACTS: [(Act, u64); 3] = [(Act::Lock, 1), (Act::Set, 3), (Act::Permit(3), 1)];

/// The commands that acquire it: that of the claims, and for a set a query that finds out which of them have their locks.
fn commands(act: Act) -> Vec<Meant> {
    let query = (act == Act::Set).then(|| "find".into());
    [Purpose::Acquire.into()].into_iter().chain(query).collect()
}

/// The outcome of a call during which a command meets this fault.
async fn under<T>(
    fault: Fault,
    command: impl Into<Meant>,
    proxy: &Proxy,
    call: impl IntoFuture<Output = Result<T, LockError>>,
) -> T {
    let lost = proxy.inject(fault.command(command));
    let outcome = timeout(AMPLE, call).await.expect("the call ends").unwrap();
    must(lost.happened(AMPLE).await);
    outcome
}

/// Loses each message of each step of this provider, whose connections go through the proxy: those of an acquisition so many
/// times in a row, and the others once.
async fn lose_each_message(losses: u32, provider: LockProvider, proxy: &Proxy, direct: &Database) {
    for (act, count) in ACTS {
        for fault in [Fault::drop_reply, Fault::drop_request] {
            let of_act = doc! { "_id": { "$regex": "^n" } };
            locks(direct).delete_many(of_act.clone()).await.unwrap();
            for (number, command) in commands(act).into_iter().enumerate() {
                let lost = fault().times(losses);
                // A process may leave a lock to others for a moment that it has had for a while, and then asks for each of a set alone.
                let name = format!("n{number}");
                let held = under(lost, command, proxy, act.acquire(&provider, &name)).await;
                assert_eq!(claims(direct).await, count, "{act:?}");
                assert_stores_its_tokens(direct, &held.context()).await;
                under(fault(), Purpose::Release, proxy, held.release()).await;
                assert_eq!(claims(direct).await, 0, "{act:?}");
                if act != Act::Set {
                    // A claim that was repeated for another permit, and then given back, would leave a second document.
                    let made = locks(direct).count_documents(of_act.clone()).await.unwrap();
                    assert_eq!(made, count, "{act:?}");
                }
            }
            let held = act.acquire(&provider, "n").await.unwrap();
            let handle = under(fault(), Purpose::Detach, proxy, detach(held, HOUR)).await;
            let extending = provider.extend(&handle, 2 * HOUR);
            under(fault(), Purpose::Renew, proxy, extending).await;
            let resuming = resume(&provider, &handle);
            let held = under(fault(), Purpose::Resume, proxy, resuming).await;
            let handle = detach(held, HOUR).await.unwrap();
            assert!(under(fault(), Purpose::Release, proxy, provider.release(&handle)).await);
            assert_eq!(claims(direct).await, 0, "{act:?}");
        }
    }
}

/// B3, S0.9: on a standalone server only this library repeats commands.
#[tokio::test]
async fn a_lost_message_changes_no_outcome() {
    let (server, provider) = Standalone::with_provider(LONG_EXPIRY).await;
    lose_each_message(2, provider, &server.proxy, &server.direct).await;
}

/// B3, S0.9: on a replica set the driver repeats the command and gets the server's stored reply.
#[tokio::test]
async fn a_lost_message_changes_no_outcome_on_a_replica_set() {
    let it = Proxied::start(LONG_EXPIRY).await;
    lose_each_message(1, it.provider, &it.proxy, it.db.database()).await;
}

/// The number of claims whose leases have not ended.
async fn lasting_claims(database: &Database) -> u64 {
    let lasting = doc! { "lockId": { "$ne": "" }, "expiresAt": { "$gt": DateTime::now() } };
    locks(database).count_documents(lasting).await.unwrap()
}

/// B2: the request arrives after the call has ended and its claims were released for the first time. What it makes then lasts for
/// one expiry at most.
#[tokio::test]
async fn a_request_that_arrives_late_leaves_no_claim() {
    let expiry = Duration::from_secs(8);
    join_all(ACTS.map(|(act, count)| async move {
        let (server, provider) = Standalone::with_provider(expiry).await;
        let fault = Fault::late_request(Duration::from_millis(1500)).command(Purpose::Acquire);
        let late = server.proxy.inject(fault);
        let hurried = provider.to_builder().acquire_timeout(Duration::from_millis(300));
        assert!(act.acquire(&hurried.build().unwrap(), "n").await.is_err());
        must(late.happened(AMPLE).await);
        let granted = async || (claims(&server.direct).await == count).then_some(());
        must(eventually(AMPLE, "the late request is granted", granted).await);
        let ended = async || (lasting_claims(&server.direct).await == 0).then_some(());
        must(eventually(Duration::from_secs(15), "no claim lasts", ended).await);
    }))
    .await;
}
