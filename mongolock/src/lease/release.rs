//! The end of a hold: the turn is taken from the lease, the server is told, and the turn goes on to the next.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::background_release::BackgroundRelease;
use super::renewer::Renewer;
use super::{Lease, LossReason, QueueSlot};
use crate::backoff::Backoff;
use crate::store::driver_error;
use crate::timing::{RELEASE_ANSWER, RELEASE_LIMIT, RELEASE_NO_REPLY};
use crate::{LockError, task, trace};

/// A release that is under way.
pub(super) enum Begun {
    HandedOver,
    Lost,
    Telling(JoinHandle<Result<bool, LockError>>),
}

/// Begins to release a lease; it goes on whatever becomes of the caller.
pub(super) fn begin(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> Begun {
    let Some(deadline) = end(renewer, lease) else {
        // Perhaps the claim still stands, but nothing can be learned from it: no reason to wait.
        renewer.release_claim(lease, lease.take_slot());
        return Begun::Lost;
    };
    if hand_over(renewer, lease, deadline) {
        return Begun::HandedOver;
    }
    let told = tell(Arc::clone(renewer), Arc::clone(lease));
    Begun::Telling(task::spawn(told.in_current_span()))
}

/// Waits for the end of a release, and says whether the lock was held until then.
pub(super) async fn finish(lease: &Arc<Lease>, begun: Begun) -> Result<(), LockError> {
    let told = match begun {
        Begun::HandedOver => return Ok(()),
        Begun::Lost => return Err(lease.lost_error()),
        Begun::Telling(told) => told,
    };
    if task::answer(told, "release", RELEASE_ANSWER).await? {
        Ok(())
    } else {
        Err(lease.lost_error())
    }
}

/// Releases a lease whose guard was dropped: no caller waits for it, and no runtime need be there.
pub(super) fn in_background(renewer: &Arc<Renewer>, lease: &Arc<Lease>) {
    match end(renewer, lease) {
        Some(deadline) if hand_over(renewer, lease, deadline) => return,
        Some(_) => trace::released(&lease.fields()),
        None => {}
    }
    renewer.release_claim(lease, lease.take_slot());
}

fn end(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> Option<Instant> {
    renewer.forget(lease);
    lease.begin_release()
}

/// Gives the hold to the next caller that waits in this process, without a word to the server; not when the lease is
/// short, when other processes are to have their turn, or when the lock is to stay taken for a minimum time. Nor when a
/// guarded commit may still be made: the claim guards it, and the next hold would be on the same claim.
fn hand_over(renewer: &Arc<Renewer>, lease: &Arc<Lease>, deadline: Instant) -> bool {
    let long_enough = deadline.saturating_duration_since(Instant::now()) > lease.options.expiry / 2;
    if !long_enough || !lease.options.min_hold.is_zero() || lease.may_commit() || renewer.is_closing() {
        return false;
    }
    let turn = match lease.take_slot() {
        QueueSlot::Turn(turn) => turn,
        other => {
            lease.put_slot(other);
            return false;
        }
    };
    let next = if turn.others_wait() && turn.budget().allows(lease.claimed().elapsed()) {
        lease.successor(deadline)
    } else {
        None
    };
    let Some(next) = next else {
        lease.put_slot(QueueSlot::Turn(turn));
        return false;
    };
    trace::released(&lease.fields());
    turn.hand_over(renewer.hold(next));
    true
}

/// Whether the claim stood when it was released. Errors that pass are answered by another command, at first by this
/// task; after that, and without a reply, the renewer's task goes on. The turn goes on when the server has been told,
/// or with the first error: the next in this process has to hear for itself that the server does not work.
async fn tell(renewer: Arc<Renewer>, lease: Arc<Lease>) -> Result<bool, LockError> {
    lease.claim_ends();
    let mut release = BackgroundRelease::of_lease(&lease, lease.take_slot());
    let by = Instant::now() + RELEASE_NO_REPLY;
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    let mut is_first = true;
    loop {
        let store = renewer.store();
        let mut asked = pin!(store.release(&lease.key, release.min_hold, RELEASE_LIMIT));
        let Ok(told) = tokio::time::timeout_at(by, asked.as_mut()).await else {
            renewer.release_in_background(vec![release.alone(Instant::now())]);
            let told = asked.await;
            if told.as_ref().is_ok_and(|stood| *stood) {
                trace::released(&lease.fields());
            }
            // Whichever of them finds no claim: one of the others released it.
            return told.map(|_| true);
        };
        let told = match told {
            Ok(true) => {
                trace::released(&lease.fields());
                Ok(true)
            }
            Ok(false) if is_first => {
                trace::lost(&lease.fields(), LossReason::Gone.name());
                Ok(false)
            }
            // A claim that a repetition does not find was released by an earlier command.
            Ok(false) => Ok(true),
            Err(error) if driver_error::forbids_release(&error) => {
                trace::release_failed(1, &lease.key.name, &error);
                Err(error)
            }
            Err(error) => {
                release = release.without_turn();
                release.announce(&renewer.given_up);
                let pause = backoff.next();
                if !driver_error::is_transient(&error) || Instant::now() + pause >= by {
                    renewer.release_in_background(vec![release.alone(Instant::now() + pause)]);
                    return Err(error);
                }
                is_first = false;
                tokio::time::sleep(pause).await;
                continue;
            }
        };
        renewer.released(std::slice::from_ref(&release), told.is_ok());
        return told;
    }
}
