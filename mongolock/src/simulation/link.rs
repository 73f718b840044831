use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use mongodb::error::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::knobs::Knobs;
use super::order::{Change, Course, Order, Reply};
use super::pool::{Connection, Pool};
use super::process::Process;
use super::server::{Command, Server};
use super::trip::{End, Trip};
use super::wake_ups::Sent;
use super::{between, chance, errors};
use crate::few::Few;
use crate::store::IndexState;
use crate::store::LeaseId;
use crate::store::Outcomes;
use crate::store::driver_error;
use crate::store::{
    AcquireReply, AcquireRequest, Admissions, ClaimItem, Claimed, DEFAULT_POOL, Looked, MarkReply,
    MarkRequest, MemoryStore, ReleaseItem, RenewReply, RunningLeases,
};
use crate::sync::lock;
use crate::task::driver_call;
use crate::{LockError, permit_id};

/// The time for which a majority read does not show a write that was not confirmed: the server writes its journal as often.
const UNCONFIRMED: Duration = Duration::from_millis(100);

/// The network between one process and the server.
pub(crate) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) process: Arc<Process>,
    pub(super) knobs: Knobs,
    /// What the library asks before each command.
    pub(crate) admissions: Arc<Admissions>,
    /// How often the driver repeats a command that the server rejects for overload.
    pub(super) driver_retries: u32,
    pool: Arc<Pool>,
    rng: Mutex<Rng>,
}

impl Link {
    pub(super) fn new(server: &Arc<Server>, process: &Arc<Process>, knobs: &Knobs, rng: Rng) -> Self {
        let mut rng = rng;
        Self {
            driver_retries: knobs.overload.map_or(0, |_| Self::driver_retries(&mut rng)),
            server: Arc::clone(server),
            process: Arc::clone(process),
            knobs: knobs.clone(),
            admissions: Admissions::new(DEFAULT_POOL),
            pool: Pool::new(knobs.connections),
            rng: Mutex::new(rng),
        }
    }

    /// The server for the view of an operator, whose requests have no faults.
    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.server.memory
    }

    pub(crate) async fn claim(
        &self,
        keys: &Few<LeaseId>,
        ask: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        match keys {
            Few::One([key]) => Ok(Ok(Few::one(self.claim_one(key, ask, limit).await?))),
            Few::Several(keys) => {
                let item = |key: &LeaseId| ClaimItem {
                    key: key.clone(),
                    request: ask,
                };
                let items: Vec<ClaimItem> = keys.iter().map(item).collect();
                Ok(self.claim_items(&items, limit).await?.map(Few::from))
            }
        }
    }

    async fn claim_one(
        &self,
        key: &LeaseId,
        ask: AcquireRequest,
        limit: Duration,
    ) -> Result<AcquireReply, LockError> {
        let contacts = &self.process.contacts;
        let _asking = contacts.asks(&key.name);
        let sent = Instant::now();
        let order = Order {
            asks: vec![ask],
            ..Order::new(Command::Claim, vec![key.clone()], Change::Claim, limit)
        };
        let mut answer = match self.request(order).await {
            Ok(Reply::Claimed(answer)) => answer,
            Ok(_) => unreachable!("an acquire request gets the reply to an acquire request"),
            Err(error) if driver_error::is_blocked(&error) => {
                contacts.note_reply_without_holder(&key.name);
                contacts.replied(&key.name, sent);
                return Err(driver_error::blocked(&key.name, error));
            }
            Err(error) => return Err(error.into()),
        };
        self.note_reply(key, &answer, sent);
        self.server.works.replied(key, &answer);
        contacts.replied(&key.name, sent);
        // If the driver has repeated the command, the server replies from its log, without computed fields.
        if let AcquireReply::Acquired { remaining, .. } = &mut answer
            && *remaining == Some(ask.expiry)
            && self.is_faulty()
        {
            *remaining = None;
        }
        Ok(answer)
    }

    /// Claims the locks with one command, whose upserts the server runs one after the other, and reads with a second one
    /// which of them the claims have.
    async fn claim_items(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Result<Vec<AcquireReply>, LockError>, LockError> {
        let (contacts, sent) = (&self.process.contacts, Instant::now());
        let keys: Vec<LeaseId> = items.iter().map(|item| item.key.clone()).collect();
        let _asking: Vec<_> = keys.iter().map(|key| contacts.asks(&key.name)).collect();
        let order = |kind, change| Order {
            asks: items.iter().map(|item| item.request).collect(),
            ..Order::new(kind, keys.clone(), change, limit)
        };
        if let Err(error) = self.request(order(Command::Claim, Change::ClaimSeveral)).await {
            if driver_error::is_blocked_update(&error) {
                return Err(driver_error::blocked(&keys[0].name, error));
            }
            return Err(error.into());
        }
        let mut read = match self.request(order(Command::Look, Change::ReadClaims)).await {
            Ok(Reply::ReadClaims(read)) => read,
            Ok(_) => unreachable!("a query for claims gets its reply"),
            Err(error) => return Ok(Err(error.into())),
        };
        let mut replies = Vec::with_capacity(keys.len());
        for key in &keys {
            let reply = read.remove(key).unwrap_or(AcquireReply::HELD);
            self.note_reply(key, &reply, sent);
            contacts.replied(&key.name, sent);
            replies.push(reply);
        }
        Ok(Ok(replies))
    }

    pub(crate) async fn claim_each(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Outcomes<AcquireReply>, LockError> {
        let replies = self.claim_items(items, limit).await?;
        for (item, reply) in items.iter().zip(replies.iter().flatten()) {
            self.server.works.replied(&item.key, reply);
        }
        Ok(replies.map(|replies| replies.into_iter().map(Ok).collect()))
    }

    pub(crate) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        self.process.contacts.releases(&request.key.name);
        let (token, end) = (request.token, request.end);
        let (keys, change) = (vec![request.key.clone()], Change::Mark { token, end });
        let order = Order::new(Command::Release, keys, change, limit);
        match self.request(order).await? {
            Reply::Marked(reply) => Ok(reply),
            _ => unreachable!("a mark gets the reply to a mark"),
        }
    }

    /// Looks at each of these locks. That of every permit is what a query over all of them finds.
    pub(crate) async fn look(
        &self,
        looked: Looked<'_>,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        let names: Vec<Arc<str>> = match looked {
            Looked::Names(names) => names.to_vec(),
            Looked::Permits { semaphore, permits } => (0..permits)
                .map(|number| permit_id::new(semaphore, number))
                .collect(),
        };
        let (contacts, sent) = (&self.process.contacts, Instant::now());
        let _asking: Vec<_> = names.iter().map(|name| contacts.asks(name)).collect();
        let no_id: Arc<str> = Arc::from("");
        let keys = names.iter().map(|name| LeaseId {
            name: Arc::clone(name),
            lock_id: Arc::clone(&no_id),
        });
        let change = Change::Look { takeover_margin };
        let order = Order::new(Command::Look, keys.collect(), change, limit);
        let Reply::Looked(running) = self.request(order).await? else {
            unreachable!("a look is answered by what it saw");
        };
        for name in &names {
            match running.get(name) {
                Some(lease) => self.note_held(name, lease.holder.as_ref(), sent),
                None => contacts.note_reply_without_holder(name),
            }
            contacts.replied(name, sent);
        }
        Ok(running)
    }

    pub(crate) async fn renew(
        &self,
        claims: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let keys = claims.iter().map(|(key, _)| key.clone()).collect();
        let order = Order {
            durations: claims.iter().cloned().collect(),
            ..Order::new(Command::Renew, keys, Change::Renew, limit)
        };
        match self.request(order).await? {
            Reply::Found(found) if found.len() == claims.len() => Ok(RenewReply::All),
            Reply::Found(found) => Ok(RenewReply::Only(found)),
            _ => unreachable!("a renewal gets the reply to a renewal"),
        }
    }

    pub(crate) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let released: Vec<_> = keys.iter().map(|key| (key.clone(), min_hold)).collect();
        Ok(self.release_all(Command::Release, &released, limit).await? == keys.len())
    }

    pub(crate) async fn release_each(
        &self,
        items: &[ReleaseItem],
        limit: Duration,
    ) -> Result<Outcomes<bool>, LockError> {
        let released = items.iter().map(|item| (item.key.clone(), item.min_hold));
        let begun = Instant::now();
        let number = self
            .release_all(Command::Release, &released.collect::<Vec<_>>(), limit)
            .await?;
        if number == items.len() {
            return Ok(Ok(items.iter().map(|_| Ok(true)).collect()));
        }
        let keys = items.iter().map(|item| item.key.clone()).collect();
        let order = Order::new(Command::Look, keys, Change::ReadDocuments, limit);
        let found = match self.request(order).await {
            Ok(Reply::Documents(found)) => found,
            Ok(_) => unreachable!("a query for documents gets its reply"),
            Err(error) => return Ok(Err(error.into())),
        };
        let outcome = |item: &ReleaseItem| item.outcome(found.get(&item.key.name), begun.elapsed());
        Ok(Ok(items.iter().map(outcome).collect()))
    }

    /// The number of claims that had their locks.
    pub(super) async fn release_all(
        &self,
        kind: Command,
        released: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<usize, LockError> {
        let keys: Vec<LeaseId> = released.iter().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.process.contacts.releases(&key.name);
        }
        let order = Order {
            durations: released.iter().cloned().collect(),
            ..Order::new(kind, keys, Change::Release, limit)
        };
        match self.request(order).await? {
            Reply::Found(found) => Ok(found.len()),
            _ => unreachable!("a release gets the reply to a release"),
        }
    }

    /// Checks the index; the check may hang forever, as behind an index build that does not end.
    pub(crate) async fn ensure_index(&self) -> IndexState {
        if self.is_faulty() {
            pending::<()>().await;
        }
        IndexState::Ready
    }

    pub(super) fn rng(&self) -> MutexGuard<'_, Rng> {
        lock(&self.rng)
    }

    pub(super) async fn request(&self, order: Order) -> Result<Reply, Error> {
        // The library's own futures must not look large because of the simulation.
        driver_call(Box::pin(self.send(order))).await
    }

    async fn send(&self, order: Order) -> Result<Reply, Error> {
        // A request that is dropped before it has a connection is never sent.
        let mut connection = Some(self.pool.check_out().await);
        let trip = self.trip(&order);
        let number = self.process.contacts.sent();
        let sent = Sent::new(&self.process, &order);
        let noted = self.noted(&order);
        if let Err(rejection) = self.admitted(&mut connection).await {
            self.server.note(|| {
                format!(
                    "{:?} of {} for {} is rejected",
                    order.kind,
                    self.process.number,
                    order.names()
                )
            });
            if let Some(noted) = noted {
                noted.ended(true);
            }
            self.process.contacts.ended(number, false);
            sent.ended(false);
            return Err(rejection);
        }
        if let Some(end) = &trip.end {
            self.server.note(|| {
                let (kind, name) = (order.kind, order.names());
                format!("{kind:?} of {} for {name} gets {end}", self.process.number)
            });
        }
        if matches!(&trip.end, Some(End::Error(_, error)) if errors::is_not_confirmed(error)) {
            let until = Instant::now() + UNCONFIRMED;
            self.server.unconfirmed(&order.written(), until);
        }
        sleep(trip.packed).await;
        if let Some(there) = trip.first_copy {
            drop(self.deliver(order.clone(), there, Course::default(), Duration::ZERO));
        }
        let delivered = trip
            .there
            .map(|there| self.deliver(order, there, trip.course, trip.back));
        let reply = match (trip.end, delivered) {
            (Some(End::Error(after, error)), _) => {
                sleep(after).await;
                Err(error)
            }
            (None, Some(reply)) => reply.await.unwrap_or_else(|_| Err(errors::broken_connection())),
            (Some(End::Silence), _) | (None, None) => pending().await,
        };
        if let Some(noted) = noted {
            noted.ended(false);
        }
        self.process.contacts.ended(number, reply.is_ok());
        sent.ended(reply.is_ok());
        reply
    }

    /// Delivers a request on a task that does not belong to the process: a sent request arrives even if its process
    /// crashes.
    fn deliver(
        &self,
        order: Order,
        there: Duration,
        course: Course,
        back: Duration,
    ) -> JoinHandle<Result<Reply, Error>> {
        let (server, number) = (Arc::clone(&self.server), self.process.number);
        tokio::spawn(async move {
            sleep(there).await;
            server.count(&order, number);
            let reply = server.run(&order, course).await;
            sleep(back).await;
            reply
        })
    }

    fn trip(&self, order: &Order) -> Trip {
        let rng = &mut *lock(&self.rng);
        let mut trip = Trip::healthy(rng);
        if !self.server.calm.load(Relaxed) {
            trip.spoil(&self.knobs, order, rng);
        }
        trip.back += Duration::from_millis(self.knobs.slow_commands);
        if self.server.silent.load(Relaxed) {
            trip.there = None;
            trip.end = Some(if self.server.refuses.load(Relaxed) {
                End::Error(between(rng, 0, 50), errors::no_server())
            } else {
                End::Silence
            });
        }
        trip
    }

    /// A connection of the process to the server.
    pub(super) async fn connection(&self) -> Connection {
        self.pool.check_out().await
    }

    pub(super) fn is_faulty(&self) -> bool {
        !self.server.calm.load(Relaxed) && chance(&mut lock(&self.rng), self.knobs.network)
    }

    pub(super) fn between(&self, min: u64, max: u64) -> Duration {
        between(&mut lock(&self.rng), min, max)
    }
}
