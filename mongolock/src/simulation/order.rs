use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mongodb::error::Error;
use tokio::time::{Instant, sleep};

use super::errors;
use super::process::number_in;
use super::server::{Command, Server};
use crate::FencingToken;
use crate::once::MarkEnd;
use crate::store::{
    AcquireReply, AcquireRequest, AfterRelease, ClaimEnd, Detachment, LeaseId, MarkReply, MarkRequest,
    RenewReply, RunningLeases,
};

/// A command on its way to the server.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) kind: Command,
    pub(super) keys: Vec<LeaseId>,
    pub(super) change: Change,
    /// What each claim asks for, in the order of the keys.
    pub(super) asks: Vec<AcquireRequest>,
    /// The expiry of each claim that is renewed, and the minimum hold of each that is released.
    pub(super) durations: HashMap<LeaseId, Duration>,
    /// The server ends the command after this time.
    pub(super) limit: Duration,
}

/// What a command does to each of its documents.
#[derive(Clone)]
pub(super) enum Change {
    Claim,
    /// One upsert for each lock; the reply does not say which of them were acquired.
    ClaimSeveral,
    /// The command changes nothing: it reads which of the locks the claims have.
    ReadClaims,
    /// The claim is replaced by its mark.
    Mark {
        token: FencingToken,
        end: MarkEnd,
    },
    /// Each claim is renewed for its expiry.
    Renew,
    Release,
    /// The lease gets the id of a handle.
    Detach(Detachment),
    /// The claim gets the running lease with the id of a handle. A command for several stops at the first lock that it does not
    /// get.
    Resume(Arc<str>, AcquireRequest),
    /// The detached lease is extended.
    Extend(Duration),
    /// The detached lease is released.
    ReleaseDetached {
        min_hold: Duration,
        takeover_margin: Duration,
    },
    /// The lease gets the id of its handle again.
    GiveBack(ClaimEnd),
    /// The command changes nothing: it reads the ids and tokens of the documents.
    ReadDocuments,
    /// The command changes nothing: it reads which locks are held.
    Look {
        takeover_margin: Duration,
    },
}

/// What the server replies.
pub(super) enum Reply {
    Claimed(AcquireReply),
    ReadClaims(HashMap<LeaseId, AcquireReply>),
    Documents(HashMap<Arc<str>, AfterRelease>),
    Marked(MarkReply),
    /// The claims that had their locks.
    Found(HashSet<LeaseId>),
    Looked(RunningLeases),
}

/// What happens to a command inside the server.
#[derive(Clone, Copy, Default)]
pub(super) struct Course {
    /// The time from the reading of the clock to the first effect.
    pub(super) delay: Duration,
    /// The number of documents after which the command ends with an error.
    pub(super) stops_after: Option<usize>,
}

impl Change {
    /// Whether it changes nothing.
    fn is_read(&self) -> bool {
        matches!(self, Self::Look { .. } | Self::ReadClaims | Self::ReadDocuments)
    }
}

impl Order {
    pub(super) fn new(kind: Command, keys: Vec<LeaseId>, change: Change, limit: Duration) -> Self {
        Self {
            kind,
            keys,
            change,
            asks: Vec::new(),
            durations: HashMap::new(),
            limit,
        }
    }

    /// The claims that a majority read does not show before it has confirmed the command.
    pub(super) fn written(&self) -> Vec<LeaseId> {
        match &self.change {
            Change::Detach(detachment) => {
                let detached = |key: &LeaseId| key.with_id(&detachment.lock_id);
                self.keys.iter().map(detached).collect()
            }
            // The read shows the same claim.
            Change::Extend(_) => Vec::new(),
            change if change.is_read() => Vec::new(),
            _ => self.keys.clone(),
        }
    }

    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.keys.iter().map(|key| &*key.name).collect();
        names.sort_unstable();
        names.join(" ")
    }
}

impl Server {
    /// Runs a command as the server does: it reads the clock on arrival, goes through the documents in their order,
    /// waits for those that are blocked, and stops at once when its limit or the member's time as the primary is over.
    pub(super) async fn run(&self, order: &Order, course: Course) -> Result<Reply, Error> {
        let (now, term) = (self.memory.now(), self.term());
        let arrived = Instant::now();
        let by = arrived + order.limit;
        if !self.is_primary() {
            return Err(errors::command(errors::NOT_PRIMARY));
        }
        if !course.delay.is_zero() {
            sleep(course.delay.min(order.limit)).await;
        }
        let mut keys: Vec<(usize, &LeaseId)> = order.keys.iter().enumerate().collect();
        // A renewal has a statement for each expiry, and a release one for each minimum hold.
        keys.sort_by_key(|(_, key)| (order.durations.get(key), &key.name));
        if matches!(order.change, Change::Detach(_)) {
            keys.reverse();
        }
        let (mut found, mut running, mut read) = (HashSet::new(), RunningLeases::new(), HashMap::new());
        let mut documents = HashMap::new();
        for (done, (index, key)) in keys.into_iter().enumerate() {
            let is_late = course.delay >= order.limit && done == 0;
            let stops = course.stops_after == Some(done);
            // A read does not wait for the transactions of others.
            let is_read = order.change.is_read();
            if is_late || stops || !(is_read || self.blocks.wait(&key.name, by).await) {
                return Err(errors::command(errors::OUT_OF_TIME));
            }
            if self.term() != term {
                return Err(errors::command(errors::STEPPED_DOWN));
            }
            match &order.change {
                Change::Claim => return Ok(Reply::Claimed(self.claim(now, key, order.asks[index]))),
                Change::ClaimSeveral => drop(self.claim(now, key, order.asks[index])),
                Change::ReadClaims => {
                    if self.is_confirmed(key) {
                        let reply = self.memory.read_claim(now, key, order.asks[index]);
                        read.insert(key.clone(), reply);
                    }
                }
                Change::ReadDocuments => {
                    let document = self.memory.after_release(now, &key.name);
                    documents.extend(document.map(|document| (Arc::clone(&key.name), document)));
                }
                Change::Mark { token, end } => {
                    let request = MarkRequest {
                        key: key.clone(),
                        token: *token,
                        end: *end,
                    };
                    return Ok(Reply::Marked(self.mark(now, &request)));
                }
                Change::Look { takeover_margin } => {
                    let lease = self.memory.running_lease(now, &key.name, *takeover_margin);
                    running.extend(lease.map(|lease| (Arc::clone(&key.name), lease)));
                }
                Change::Renew => {
                    if self.renew(now, key, order.durations[key]) {
                        found.insert(key.clone());
                    }
                }
                Change::Release => {
                    if self.release(now, key, order.durations[key]) {
                        found.insert(key.clone());
                    }
                }
                Change::ReleaseDetached { .. } | Change::GiveBack(_) => {
                    if self.end_lease(now, key, &order.change) {
                        found.insert(key.clone());
                    }
                }
                Change::Detach(_) | Change::Resume(..) | Change::Extend(_) => {
                    let reply = self.change_lease(now, index, key, &order.change);
                    if order.keys.len() == 1 {
                        return Ok(Reply::Claimed(reply));
                    }
                    if matches!(order.change, Change::Resume(..) | Change::Extend(_)) && !reply.is_acquired()
                    {
                        break;
                    }
                }
            }
        }
        match &order.change {
            Change::Look { .. } => Ok(Reply::Looked(running)),
            Change::ReadClaims => Ok(Reply::ReadClaims(read)),
            Change::ReadDocuments => Ok(Reply::Documents(documents)),
            _ => Ok(Reply::Found(found)),
        }
    }

    fn renew(&self, now: Duration, key: &LeaseId, expiry: Duration) -> bool {
        let reply = self.memory.renew_at(now, &[(key.clone(), expiry)]);
        let has_lock = matches!(reply, RenewReply::All);
        if has_lock {
            self.check_renewal(now, key, expiry);
            self.observe(&key.name);
        }
        has_lock
    }

    fn release(&self, now: Duration, key: &LeaseId, min_hold: Duration) -> bool {
        let lease = self.memory.lease_of(&key.name, Duration::ZERO);
        let had_lock = self.memory.release_at(now, key, min_hold);
        self.observe(&key.name);
        if had_lock {
            self.trace(|| format!("{} is released by {:?}", key.name, number_in(&key.lock_id)));
            let by = number_in(&key.lock_id);
            let is_in_line = by.is_some_and(|number| self.is_in_line(&key.name, number));
            self.turns.released(&key.name, by, is_in_line);
            let granted = self.granted_at(key).filter(|_| lease.is_some());
            if let Some(breach) = self.works.released(key, granted, self.memory.date_now()) {
                self.ledger.breach(breach);
            }
        }
        had_lock
    }

    fn mark(&self, now: Duration, request: &MarkRequest) -> MarkReply {
        let reply = self.memory.mark_at(now, request);
        self.observe(&request.key.name);
        self.works.marked(&request.key, reply, request.end);
        reply
    }
}
