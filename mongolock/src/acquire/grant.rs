//! What the replies to a claim say: another claim has a lock, or the claim has become a lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::Held;
use super::request::Shared;
use super::target::Target;
use crate::FencingToken;
use crate::lease::{Grant, Lease, Member, QueueSlot, SetGrant, without_margin};
use crate::queue::Holder;
use crate::store::{AcquireReply, Dates};

impl Shared {
    /// A lock that another claim has. It is the one that the call has waited for, if that has the same holder still.
    pub(super) fn held(&self, sent: Instant, replies: &[AcquireReply]) -> Option<Held> {
        let now = Instant::now();
        let held = |(index, reply): (usize, &AcquireReply)| match reply {
            AcquireReply::Acquired { .. } => None,
            AcquireReply::Held {
                holder,
                held_for,
                remaining,
                dates,
            } => Some(Held {
                index,
                holder: Holder::new(now, holder.clone(), *held_for, *remaining),
                request: now - sent,
                dates: *dates,
            }),
        };
        let replies = || replies.iter().enumerate();
        if let Some((place, lock_id)) = self.target.awaited() {
            let same = replies().nth(place).and_then(held);
            let same = same.filter(|held| held.holder.lock_id() == Some(lock_id));
            if same.is_some() {
                return same;
            }
        }
        replies().find_map(held)
    }

    /// The lease of a claim that has all its locks since before `sent`, each of them with this number of tokens.
    pub(super) fn lease(
        &self,
        tokens: i64,
        replies: &[AcquireReply],
        sent: Instant,
        lasts: Duration,
    ) -> Lease {
        if let Target::Set { first, .. } = self.target {
            return self.lease_of_set(first, tokens, replies, sent, lasts);
        }
        let (token, last_token, dates) = granted(tokens, &replies[0]);
        let once = dates.and_then(|dates| Some(self.options.once?.grant(dates.acquired_at, dates.now)));
        let grant = Grant {
            token,
            last_token,
            copies: self.copies[0].if_unsettled(),
            sent,
            lasts,
            semaphore: self.target.semaphore(),
            once,
        };
        let (key, entry) = (self.keys[0].clone(), Arc::clone(&self.entries[0]));
        Lease::new(key, grant, Arc::clone(&self.options), entry)
    }

    fn lease_of_set(
        &self,
        first: usize,
        tokens: i64,
        replies: &[AcquireReply],
        sent: Instant,
        lasts: Duration,
    ) -> Lease {
        let members = replies.iter().enumerate().map(|(index, reply)| {
            let (token, last_token, _) = granted(tokens, reply);
            Member::new(self.keys[index].clone(), (token, last_token), &self.copies[index])
        });
        let entries = self.entries.iter().map(|entry| QueueSlot::Entry {
            entry: Arc::clone(entry),
        });
        let grant = SetGrant {
            members: members.collect(),
            first,
            acquired: sent,
            deadline: sent + without_margin(lasts),
            slot: QueueSlot::Several(entries.collect()),
        };
        Lease::of_set(grant, Arc::clone(&self.options))
    }
}

/// The first and the last token of a claim that has its lock, and what a once-only lease needs of the server's clock.
fn granted(tokens: i64, reply: &AcquireReply) -> (FencingToken, FencingToken, Option<Dates>) {
    match reply {
        AcquireReply::Acquired {
            last_token, dates, ..
        } => (
            FencingToken::new(last_token.get() - (tokens - 1)),
            *last_token,
            *dates,
        ),
        AcquireReply::Held { .. } => unreachable!("every lock of the claim is acquired"),
    }
}
