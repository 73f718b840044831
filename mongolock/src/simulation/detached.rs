//! The commands of detached leases on the simulated server.

use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::order::{Change, Order, Reply};
use super::server::{Command, Server};
use crate::LockError;
use crate::few::Few;
use crate::store::{
    AcquireReply, AcquireRequest, ClaimEnd, Claimed, Detachment, Extended, LeaseId, driver_error, extended,
};

impl Link {
    pub(crate) async fn detach(
        &self,
        keys: &Few<LeaseId>,
        detachment: &Detachment,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let (change, before) = (Change::Detach(detachment.clone()), keys);
        let detached = keys.map(|key| key.with_id(&detachment.lock_id));
        let request = AcquireRequest::plain(detachment.ttl);
        self.change(
            (Command::Release, keys, change),
            (&detached, before),
            request,
            limit,
        )
        .await
    }

    pub(crate) async fn resume(
        &self,
        keys: &Few<LeaseId>,
        handle_id: &Arc<str>,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let change = Change::Resume(Arc::clone(handle_id), request);
        let before = keys.map(|key| key.with_id(handle_id));
        let changed = self.change((Command::Claim, keys, change), (keys, &before), request, limit);
        changed.await
    }

    pub(crate) async fn extend(
        &self,
        keys: &Few<LeaseId>,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Extended, LockError> {
        let request = AcquireRequest {
            wants_dates: true,
            ..AcquireRequest::plain(ttl)
        };
        let change = Change::Extend(ttl);
        let replies = self
            .change((Command::Renew, keys, change), (keys, keys), request, limit)
            .await?;
        Ok(extended(&replies?))
    }

    pub(crate) async fn release_detached(
        &self,
        keys: &Few<LeaseId>,
        min_hold: Duration,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let change = Change::ReleaseDetached {
            min_hold,
            takeover_margin,
        };
        let order = Order::new(Command::Release, keys.to_vec(), change, limit);
        match self.request(order).await? {
            Reply::Found(found) => Ok(!found.is_empty()),
            _ => unreachable!("a release gets the reply to a release"),
        }
    }

    pub(crate) async fn end_many(
        &self,
        keys: &[LeaseId],
        end: &ClaimEnd,
        limit: Duration,
    ) -> Result<(), LockError> {
        match end {
            ClaimEnd::Released { min_hold } => {
                let released: Vec<_> = keys.iter().map(|key| (key.clone(), *min_hold)).collect();
                self.release_all(Command::Withdraw, &released, limit).await?;
            }
            ClaimEnd::GivenBack { .. } => {
                let change = Change::GiveBack(end.clone());
                self.request(Order::new(Command::Withdraw, keys.to_vec(), change, limit))
                    .await?;
            }
        }
        Ok(())
    }

    /// Changes the documents of these claims, and returns what they say then to the claims `read`: with the reply for a lock, and
    /// by a query for several. The claims `before` had the locks.
    async fn change(
        &self,
        (kind, keys, change): (Command, &Few<LeaseId>, Change),
        (read, before): (&Few<LeaseId>, &Few<LeaseId>),
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let name = &keys[0].name;
        let reply = self.request(Order::new(kind, keys.to_vec(), change, limit)).await;
        let reply = reply.map_err(|error| {
            if driver_error::is_blocked_update(&error) {
                driver_error::blocked(name, error)
            } else {
                error.into()
            }
        })?;
        if let Reply::Claimed(reply) = reply {
            return Ok(Ok(Few::one(reply)));
        }
        let order = Order {
            asks: read.iter().map(|_| request).collect(),
            ..Order::new(Command::Look, read.to_vec(), Change::ReadClaims, limit)
        };
        let mut found = match self.request(order).await {
            Ok(Reply::ReadClaims(found)) => found,
            Ok(_) => unreachable!("a query for claims gets its reply"),
            Err(error) => return Ok(Err(error.into())),
        };
        let mut before = before.iter();
        Ok(Ok(read.map(|key| {
            let before = before.next().map(|key| Arc::clone(&key.lock_id));
            // The claim that had the lock before a write that is not confirmed.
            found.remove(key).unwrap_or(AcquireReply::Held {
                holder: before,
                held_for: None,
                remaining: Some(Duration::from_secs(1)),
                dates: None,
            })
        })))
    }
}

impl Server {
    /// Changes the id or the end of a lease, and returns what its document says then to the claim that is to have it.
    pub(super) fn change_lease(
        &self,
        now: Duration,
        index: usize,
        key: &LeaseId,
        change: &Change,
    ) -> AcquireReply {
        let reply = match change {
            Change::Detach(detachment) => {
                let reply = self
                    .memory
                    .detach_at(now, key, detachment.tokens[index], detachment);
                if reply.is_acquired() {
                    self.passed_on(&key.with_id(&detachment.lock_id));
                }
                reply
            }
            Change::Resume(handle_id, ask) => {
                self.memory.resume_at(now, key, handle_id, *ask);
                let reply = self.memory.read_claim(now, key, *ask);
                if let AcquireReply::Acquired { last_token, .. } = &reply {
                    let last_token = last_token.get();
                    self.ledger
                        .reserve(key, last_token - (ask.tokens - 1)..=last_token);
                    self.resumed(key, last_token);
                }
                reply
            }
            Change::Extend(ttl) => self.memory.extend_at(now, key, *ttl),
            _ => unreachable!("other commands are not about detached leases"),
        };
        self.observe(&key.name);
        reply
    }

    /// Releases a detached lease or gives one back, and returns whether it was there.
    pub(super) fn end_lease(&self, now: Duration, key: &LeaseId, change: &Change) -> bool {
        let had_lock = match change {
            Change::ReleaseDetached {
                min_hold,
                takeover_margin,
            } => self
                .memory
                .release_taken_at(now, key, *min_hold, *takeover_margin),
            Change::GiveBack(end @ ClaimEnd::GivenBack { lock_id, .. }) => {
                let had_lock = self.memory.end_at(now, key, end);
                if had_lock {
                    self.passed_on(&key.with_id(lock_id));
                }
                had_lock
            }
            _ => unreachable!("other commands end no detached lease"),
        };
        self.observe(&key.name);
        had_lock
    }
}
