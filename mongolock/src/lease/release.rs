//! The release of a hold: the turn is taken from the lease, the server confirms the release, and the turn passes to the
//! next waiter in this process.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::claim_release::ClaimRelease;
use super::renewer::Renewer;
use super::{Lease, Turn};
use crate::backoff::Backoff;
use crate::moment::Luck;
use crate::queue::Rivals;
use crate::store::ClaimEnd;
use crate::store::driver_error::{self, Refusals};
use crate::timing::{RELEASE_LIMIT, RELEASE_NO_REPLY, RELEASE_REPLY_LIMIT};
use crate::{LockError, LossReason, task, trace};

/// How a release has begun.
pub(super) enum BegunRelease {
    /// The hold was handed over to the next waiter in this process, without a command.
    HandedOver,
    /// The lease had ended before.
    Lost,
    /// The release has ended, because the store never waits; the output is that of [`send`]. The
    /// error is boxed, because futures have room for it and none occurs.
    Ended(Result<bool, Box<LockError>>),
    /// A task sends the release; its output is whether the lock was held until then.
    Sent(JoinHandle<Result<bool, LockError>>),
}

/// Begins to release a lease; the release goes on if the caller is cancelled.
pub(super) fn begin(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> BegunRelease {
    match close(renewer, lease) {
        Ended::Lost => BegunRelease::Lost,
        Ended::HandedOver => BegunRelease::HandedOver,
        Ended::Unreleased => begin_sending(renewer, lease),
    }
}

/// Waits for the end of a release within this limit, or for that of a mark, which ends by itself; an error says that the lock was
/// not held until then, or that MongoDB did not confirm the request.
pub(super) async fn outcome(
    renewer: &Renewer,
    lease: &Arc<Lease>,
    begun: BegunRelease,
    limit: Option<Duration>,
) -> Result<(), LockError> {
    let was_held = match begun {
        BegunRelease::HandedOver => return Ok(()),
        BegunRelease::Lost => return Err(lease.lost_error()),
        BegunRelease::Ended(result) => result.map_err(|error| *error)?,
        BegunRelease::Sent(sending) => {
            let reply = match limit {
                Some(limit) => task::wait_for_reply(sending, "release", limit).await,
                None => task::joined(sending.await),
            };
            reply.map_err(|error| match lease.blocked_release() {
                _ if !driver_error::is_no_reply(&error) => error,
                // A repetition may still wait behind the operation that has blocked the first request.
                Some(blocked) => blocked,
                None => renewer.store().no_reply("release", RELEASE_REPLY_LIMIT),
            })?
        }
    };
    if was_held { Ok(()) } else { Err(lease.lost_error()) }
}

/// Releases a lease whose call returns before the server has confirmed the release; the next caller in this process waits for
/// that. An error says that the lease had ended before.
pub(super) fn unawaited(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> Result<(), LockError> {
    match close(renewer, lease) {
        Ended::Lost => return Err(lease.lost_error()),
        Ended::HandedOver => {}
        Ended::Unreleased => {
            lease.note_release_sent();
            // The outcome is reported by an event.
            drop(begin_sending(renewer, lease));
        }
    }
    Ok(())
}

/// Releases a lease whose guard was dropped: no caller waits for the release, and there may be no runtime.
pub(super) fn in_background(renewer: &Arc<Renewer>, lease: &Arc<Lease>) {
    if let Ended::Unreleased = close(renewer, lease) {
        if let ClaimEnd::Released { .. } = lease.end() {
            lease.report(trace::released);
        }
        renewer.release_claim(lease);
    }
}

/// What is left to do for a lease that was ended.
enum Ended {
    /// The lease had ended before. The server may still have the claim, which is released in the background: the reply
    /// would not change the outcome of the call.
    Lost,
    /// The hold was handed over to the next waiter in this process.
    HandedOver,
    /// The claim has to be released.
    Unreleased,
}

/// Stops the renewal of a lease, ends it, and hands the hold over if that is possible.
fn close(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> Ended {
    renewer.forget(lease);
    match lease.begin_release() {
        None => {
            after_loss(renewer, lease);
            Ended::Lost
        }
        Some(deadline) if hand_over(renewer, lease, deadline) => Ended::HandedOver,
        Some(_) => Ended::Unreleased,
    }
}

/// Releases what the server may still have of a lease that was over before.
pub(super) fn after_loss(renewer: &Arc<Renewer>, lease: &Arc<Lease>) {
    if lease.may_have_claim() {
        renewer.release_claim(lease);
    } else {
        drop(lease.take_slots());
    }
}

/// Hands the hold over to the next waiter in this process, without a command; `false` if that is not possible.
fn hand_over(renewer: &Arc<Renewer>, lease: &Arc<Lease>, deadline: Instant) -> bool {
    let Some(turn) = turn_to_hand_over(renewer, lease, deadline) else {
        return false;
    };
    let next = if takes_over(&turn, lease)
        && turn
            .budget()
            .allows_handover(Instant::now(), rivals(renewer, lease))
    {
        lease.successor(deadline)
    } else {
        None
    };
    let Some(next) = next else {
        lease.put_turn(turn);
        return false;
    };
    lease.report(trace::released);
    if let Some(meter) = lease.meter() {
        meter.handed_over();
    }
    turn.hand_over(renewer.hold(next));
    true
}

/// Whether the next caller in the queue can take the hold over: that of a set only if it wants the same set, and that of a
/// single lock as far as is known.
fn takes_over(turn: &Turn, lease: &Lease) -> bool {
    let wants_set = || turn.next_set().is_some_and(|names| lease.is_set_of(&names));
    lease.is_set_of(&[]) && turn.others_wait() || wants_set()
}

/// What is known of other processes that want the lock, or one of the locks of a set.
fn rivals(renewer: &Renewer, lease: &Lease) -> Rivals {
    let of_each = lease.keys().iter().map(|key| renewer.lines.rivals(&key.name));
    of_each.reduce(Rivals::or).unwrap_or(Rivals::Unknown)
}

/// Takes the turn from a lease if its hold can pass to another caller; of a set that of the first name.
///
/// A hold is not handed over when little of the lease is left, when the lock has a minimum hold, when its work may succeed
/// only once (the claim belongs to the period in which it was acquired), when the provider is shut down, or while a guarded
/// commit may still be made: the claim guards the commit, and the next hold would use the same claim.
fn turn_to_hand_over(renewer: &Renewer, lease: &Lease, deadline: Instant) -> Option<Turn> {
    let long_enough = deadline.saturating_duration_since(Instant::now()) > lease.options.expiry / 2;
    if !long_enough
        || !lease.options.min_hold.is_zero()
        || lease.may_commit()
        || lease.once.is_some()
        || renewer.is_closing()
    {
        return None;
    }
    lease.take_turn()
}

/// Sends the release, on a task of its own unless the store never waits.
fn begin_sending(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> BegunRelease {
    let sending = send(Arc::clone(renewer), Arc::clone(lease));
    if renewer.store().never_waits() {
        return BegunRelease::Ended(task::run_at_once(sending).map_err(Box::new));
    }
    BegunRelease::Sent(task::spawn_for_caller(sending))
}

/// Sends the release, and returns whether the lock was held until then.
///
/// This task repeats the command after an error that passes for [`RELEASE_NO_REPLY`]; after that, and without a reply, the
/// renewer's task repeats it in the background. The turn passes on when the server has confirmed the release, or with
/// the first error: the next waiter then sends a request of its own and finds out by itself whether the server works.
async fn send(renewer: Arc<Renewer>, lease: Arc<Lease>) -> Result<bool, LockError> {
    lease.begin_claim_release();
    let (keys, min_hold) = (lease.keys(), lease.min_hold());
    let mut releases = ClaimRelease::of_lease(&lease);
    let by = Instant::now() + RELEASE_NO_REPLY;
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    let (mut is_first, mut may_gather) = (true, true);
    let mut refusals = Refusals::default();
    loop {
        let store = renewer.store();
        // What has failed goes alone.
        let token = match &lease.parts[..] {
            [part] if may_gather => Some(part.last_token),
            _ => None,
        };
        let mut request = pin!(store.release(keys, min_hold, RELEASE_LIMIT, token));
        let reply = if store.never_waits() {
            Ok(request.as_mut().await)
        } else {
            tokio::time::timeout_at(by, request.as_mut()).await
        };
        let Ok(reply) = reply else {
            renewer.release_in_background(each_alone(releases, Instant::now()));
            return late_outcome(&lease, request.await.map_err(driver_error::of_request));
        };
        let error = match reply {
            Ok(false) if is_first => {
                lease.report_loss(LossReason::Gone);
                renewer.released(releases, true);
                return Ok(false);
            }
            Ok(had_claim) => {
                if had_claim {
                    lease.report(trace::released);
                }
                renewer.released(releases, true);
                // A claim that a repetition does not find was released by an earlier command, or by a waiter of this process
                // that has met it.
                return Ok(true);
            }
            Err(error) if driver_error::failed_together(&error) => {
                (is_first, may_gather) = (false, false);
                continue;
            }
            Err(error) => error,
        };
        if driver_error::is_closed(&error) {
            trace::release_failed(keys.len(), &lease.key().name, &error);
            renewer.released(releases, false);
            return Err(error);
        }
        if refusals.end(Instant::now(), &error) {
            renewer.release_refused(releases, &error);
            return Err(error);
        }
        if driver_error::is_blocked_document(&error) {
            lease.note_blocked_release(&error);
        }
        let releasing = releases.into_iter().map(ClaimRelease::without_turn);
        releases = releasing.map(|release| release.refused_since(refusals)).collect();
        for release in &mut releases {
            release.announce(&renewer.given_up);
        }
        let pause = backoff.next(Luck::draw());
        if Instant::now() + pause >= by {
            renewer.release_in_background(each_alone(releases, Instant::now() + pause));
            return Err(error);
        }
        is_first = false;
        // What was rejected for overload has delayed no other release.
        may_gather &= error.is_rejection();
        tokio::time::sleep(pause).await;
    }
}

/// The same releases again, each in a command of its own.
fn each_alone(releases: Vec<ClaimRelease>, at: Instant) -> Vec<ClaimRelease> {
    releases.into_iter().map(|release| release.alone(at)).collect()
}

/// The outcome of a release whose reply came after a second release was begun in the background: if one of the two
/// commands finds no claim, the other one has released it.
fn late_outcome(lease: &Lease, reply: Result<bool, LockError>) -> Result<bool, LockError> {
    let had_claim = reply?;
    if had_claim {
        lease.report(trace::released);
    }
    Ok(true)
}
