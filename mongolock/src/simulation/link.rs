use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use mongodb::error::Error;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::knobs::Knobs;
use super::order::{Change, Course, Order, Reply};
use super::pool::{Connection, Pool};
use super::process::Process;
use super::server::{Command, Server};
use super::trip::{End, Trip};
use super::wake_ups::{Sent, heard};
use super::{between, chance, errors};
use crate::few::Few;
use crate::store::IndexState;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::store::{
    AcquireReply, AcquireRequest, Admissions, Claimed, DEFAULT_POOL, LockEvent, Looked, MarkReply,
    MarkRequest, MemoryStore, RenewReply, RunningLeases, StreamFilter,
};
use crate::sync::lock;
use crate::task::driver_call;
use crate::timing::{NO_REPLY, RELEASE_LIMIT};
use crate::{LockError, slot};

/// The time for which a call may wait for an unused claim of its own process while no release of it is sent: commands without a
/// reply may keep all places of repeated releases until they are given up.
const UNUSED_CLAIM_LIMIT: Duration = RELEASE_LIMIT
    .saturating_add(NO_REPLY)
    .saturating_add(Duration::from_millis(500));

/// The network between one process and the server.
pub(crate) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) process: Arc<Process>,
    pub(super) knobs: Knobs,
    /// What the library asks before each command.
    pub(crate) admissions: Arc<Admissions>,
    pool: Arc<Pool>,
    rng: Mutex<Rng>,
}

impl Link {
    pub(super) fn new(server: &Arc<Server>, process: &Arc<Process>, knobs: &Knobs, rng: Rng) -> Self {
        Self {
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
            Few::Several(keys) => Ok(Ok(self.claim_several(keys, ask, limit).await?.into())),
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
            kind: Command::Claim,
            keys: vec![key.clone()],
            change: Change::Claim(ask),
            expiries: HashMap::new(),
            limit,
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
    async fn claim_several(
        &self,
        keys: &[LeaseId],
        ask: AcquireRequest,
        limit: Duration,
    ) -> Result<Vec<AcquireReply>, LockError> {
        let (contacts, sent) = (&self.process.contacts, Instant::now());
        let _asking: Vec<_> = keys.iter().map(|key| contacts.asks(&key.name)).collect();
        let order = |kind, change| Order {
            kind,
            keys: keys.to_vec(),
            change,
            expiries: HashMap::new(),
            limit,
        };
        if let Err(error) = self
            .request(order(Command::Claim, Change::ClaimSeveral(ask)))
            .await
        {
            if driver_error::is_blocked_update(&error) {
                return Err(driver_error::blocked(&keys[0].name, error));
            }
            return Err(error.into());
        }
        let Reply::ReadClaims(mut read) = self
            .request(order(Command::Look, Change::ReadClaims(ask)))
            .await?
        else {
            unreachable!("a query for claims gets its reply");
        };
        let mut replies = Vec::with_capacity(keys.len());
        for key in keys {
            let reply = read.remove(&key.name).unwrap_or(AcquireReply::HELD);
            self.note_reply(key, &reply, sent);
            contacts.replied(&key.name, sent);
            replies.push(reply);
        }
        Ok(replies)
    }

    pub(crate) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        self.process.contacts.releases(&request.key.name);
        let order = Order {
            kind: Command::Release,
            keys: vec![request.key.clone()],
            change: Change::Mark {
                token: request.token,
                end: request.end,
            },
            expiries: HashMap::new(),
            limit,
        };
        match self.request(order).await? {
            Reply::Marked(reply) => Ok(reply),
            _ => unreachable!("a mark gets the reply to a mark"),
        }
    }

    fn note_reply(&self, key: &LeaseId, answer: &AcquireReply, sent: Instant) {
        self.process.contacts.wake_ups.replied(key, answer);
        match answer {
            AcquireReply::Acquired { .. } => self.process.contacts.note_reply_without_holder(&key.name),
            AcquireReply::Held { holder, .. } => self.note_held(&key.name, holder.as_ref(), sent),
        }
    }

    fn note_held(&self, name: &Arc<str>, holder: Option<&Arc<str>>, sent: Instant) {
        let contacts = &self.process.contacts;
        let Some(id) = holder.filter(|id| self.is_own_unused_claim(id)) else {
            return contacts.note_held(name);
        };
        // A process that is paused sends no release.
        let was_paused = self.process.was_paused_within(UNUSED_CLAIM_LIMIT);
        if contacts.note_own_unused_claim(name, id, sent, UNUSED_CLAIM_LIMIT) && !was_paused {
            let number = self.process.number;
            self.server.ledger.breach(format!(
                "{number} waits for {name}, which is held by its own unused claim {id}"
            ));
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
            Looked::Permits { semaphore, permits } => {
                (0..permits).map(|number| slot::id(semaphore, number)).collect()
            }
        };
        let (contacts, sent) = (&self.process.contacts, Instant::now());
        let _asking: Vec<_> = names.iter().map(|name| contacts.asks(name)).collect();
        let no_id: Arc<str> = Arc::from("");
        let keys = names.iter().map(|name| LeaseId {
            name: Arc::clone(name),
            lock_id: Arc::clone(&no_id),
        });
        let order = Order {
            kind: Command::Look,
            keys: keys.collect(),
            change: Change::Look { takeover_margin },
            expiries: HashMap::new(),
            limit,
        };
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

    /// Whether this is a claim of this process that no live lease uses.
    fn is_own_unused_claim(&self, lock_id: &str) -> bool {
        self.process.owns(lock_id) && !self.server.ledger.is_live_claim(lock_id)
    }

    pub(crate) async fn renew(
        &self,
        claims: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let order = Order {
            kind: Command::Renew,
            keys: claims.iter().map(|(key, _)| key.clone()).collect(),
            change: Change::Renew,
            expiries: claims.iter().cloned().collect(),
            limit,
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
        match self.release_all(Command::Release, keys, min_hold, limit).await? {
            Reply::Found(found) => Ok(found.len() == keys.len()),
            _ => unreachable!("a release gets the reply to a release"),
        }
    }

    pub(crate) async fn release_many(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<(), LockError> {
        self.release_all(Command::Withdraw, keys, min_hold, limit).await?;
        Ok(())
    }

    async fn release_all(
        &self,
        kind: Command,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<Reply, LockError> {
        for key in keys {
            self.process.contacts.releases(&key.name);
        }
        let order = Order {
            kind,
            keys: keys.to_vec(),
            change: Change::Release { min_hold },
            expiries: HashMap::new(),
            limit,
        };
        Ok(self.request(order).await?)
    }

    pub(crate) async fn watch(self: &Arc<Self>) -> Result<Hints, LockError> {
        let connection = self.pool.check_out().await;
        if self.server.silent.load(Relaxed) {
            pending::<()>().await;
        }
        if self.is_faulty() {
            sleep(self.between(0, 3000)).await;
            return Err(errors::broken_connection().into());
        }
        Ok(Hints {
            releases: self.server.memory.listen(),
            batch: VecDeque::new(),
            link: Arc::clone(self),
            _connection: connection,
        })
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

    async fn request(&self, order: Order) -> Result<Reply, Error> {
        driver_call(self.send(order)).await
    }

    async fn send(&self, order: Order) -> Result<Reply, Error> {
        // A request that is dropped before it has a connection is never sent.
        let _connection = self.pool.check_out().await;
        let trip = self.trip(&order);
        let number = self.process.contacts.sent();
        let sent = Sent::new(&self.process, &order);
        if let Some(end) = &trip.end {
            self.server.note(|| {
                let (kind, name) = (order.kind, order.names());
                format!("{kind:?} of {} for {name} gets {end}", self.process.number)
            });
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
        let mut trip = match self.knobs.way {
            Some(way) => Trip::on(way, rng),
            None => Trip::healthy(rng),
        };
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

    fn is_faulty(&self) -> bool {
        !self.server.calm.load(Relaxed) && chance(&mut lock(&self.rng), self.knobs.network)
    }

    pub(super) fn between(&self, min: u64, max: u64) -> Duration {
        between(&mut lock(&self.rng), min, max)
    }

    /// The time of a message in one direction: on the way of a scene, or up to this number of milliseconds.
    pub(super) fn message(&self, longest: u64) -> Duration {
        match self.knobs.way {
            Some(way) => way.draw(&mut self.rng()),
            None => self.between(0, longest),
        }
    }
}

/// The stream of events as one process receives it.
pub(crate) struct Hints {
    releases: broadcast::Receiver<LockEvent>,
    /// The events of the last reply that were not read yet, in a scene.
    batch: VecDeque<LockEvent>,
    link: Arc<Link>,
    /// The stream keeps a connection for as long as it is open.
    _connection: Connection,
}

impl Hints {
    /// Has the stream report other locks, which may fail.
    pub(crate) fn switch(&self) -> Result<(), LockError> {
        if self.link.is_faulty() {
            return Err(errors::broken_connection().into());
        }
        Ok(())
    }

    /// The next event that this filter admits, as the server applies it.
    pub(crate) async fn next(&mut self, filter: &StreamFilter) -> Result<Option<LockEvent>, LockError> {
        if self.link.knobs.way.is_some() {
            return Ok(self.next_of_batch(filter).await);
        }
        let event = timeout(Duration::from_secs(1), self.releases.recv()).await;
        let mut event = event.ok().and_then(Result::ok);
        if self.link.is_faulty() {
            sleep(self.link.between(0, 1000)).await;
            match self.link.between(0, 2).as_millis() {
                0 => return Err(errors::broken_connection().into()),
                1 => event = None,
                _ => {}
            }
        }
        if event.is_some() && self.link.knobs.event_delay > 0 {
            sleep(self.link.between(0, self.link.knobs.event_delay)).await;
            if chance(&mut self.link.rng(), self.link.knobs.lost_events) {
                event = None;
            }
        }
        if let Some(LockEvent::Acquired { name, .. }) = &event {
            self.link.process.contacts.heard_of(name);
        }
        let event = event.filter(|event| filter.admits(event.name()));
        if let Some(event) = &event {
            heard(&self.link.server, &self.link.process, event);
        }
        Ok(event)
    }

    /// The next event in a scene. A stream gets all events in one reply that have happened since the last one, and asks for
    /// another reply only after it has read them.
    async fn next_of_batch(&mut self, filter: &StreamFilter) -> Option<LockEvent> {
        if self.batch.is_empty() {
            self.link.server.traffic.stream_replies.fetch_add(1, Relaxed);
            sleep(self.link.message(0)).await;
            let first = timeout(Duration::from_secs(1), self.releases.recv()).await;
            self.batch.extend(first.ok().and_then(Result::ok));
            while let Ok(event) = self.releases.try_recv() {
                self.batch.push_back(event);
            }
            self.batch.retain(|event| filter.admits(event.name()));
            sleep(self.link.message(0)).await;
        }
        self.batch.pop_front()
    }
}
