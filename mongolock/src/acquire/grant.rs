//! What the replies to a claim say: another claim has a lock, or the claim has become a lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::Held;
use super::request::Shared;
use crate::FencingToken;
use crate::lease::{Grant, Lease, Part, QueueSlot, without_margin};
use crate::queue::Holder;
use crate::store::AcquireReply;

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
        let mut replies = replies.iter();
        let mut once = None;
        let parts = self.copies.map(|copies| match replies.next() {
            Some(AcquireReply::Acquired {
                last_token, dates, ..
            }) => {
                once = dates.and_then(|dates| Some(self.options.once?.grant(dates.acquired_at, dates.now)));
                Part {
                    token: FencingToken::new(last_token.get() - (tokens - 1)),
                    last_token: *last_token,
                    copies: copies.if_unsettled(),
                }
            }
            Some(AcquireReply::Held { .. }) | None => unreachable!("every lock of the claim is acquired"),
        });
        let back = self.target.detached().map(|_| Box::new(self.target.end()));
        let grant = Grant {
            back,
            keys: self.keys.clone(),
            parts,
            title: self.target.title(),
            acquired: sent,
            deadline: sent + without_margin(lasts),
            once,
            slots: self.entries.map(|entry| QueueSlot::Entry {
                entry: Arc::clone(entry),
            }),
        };
        Lease::new(grant, Arc::clone(&self.options))
    }
}
