use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use mongodb::error::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::knobs::Knobs;
use super::order::{Course, Order, is_detachment, key_of};
use super::pool::{Connection, Pool};
use super::process::Process;
use super::server::{Command, Server};
use super::trip::{End, Trip};
use super::wake_ups::Sent;
use super::{between, chance, errors};
use crate::few::Few;
use crate::protocol::{self, Document, Ms, Name, Reply, Row, Sight, Then, Value, When};
use crate::store::{
    Admissions, DEFAULT_POOL, IndexState, LeaseId, Looked, MemoryStore, Ran, Sending, driver_error,
};
use crate::sync::lock;
use crate::task::driver_call;
use crate::{LockError, lock_id, permit_id};

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

    pub(crate) async fn run(
        &self,
        sending: Sending,
        rows: &Few<Row>,
        order: protocol::Order,
        limit: Duration,
    ) -> Ran {
        let (contacts, sent) = (&self.process.contacts, Instant::now());
        let then = &rows[0].then;
        let kind = match then {
            _ if sending.is_background => Command::Withdraw,
            Then::Claim { .. } | Then::Adopt { .. } => Command::Claim,
            Then::Renew { .. } | Then::Extend { .. } => Command::Renew,
            _ => Command::Release,
        };
        let is_claim = matches!(then, Then::Claim { .. });
        let asks = rows.iter().filter(|_| is_claim);
        let _asking: Vec<_> = asks.map(|row| contacts.asks(&row.name)).collect();
        if matches!(then, Then::End { .. } | Then::Mark { .. }) {
            rows.iter().for_each(|row| contacts.releases(&row.name));
        }
        let request = Order::of_rows(kind, rows, order, limit);
        let replies = match self.request(request).await {
            Ok(replies) => replies,
            Err(error) => {
                if is_claim && matches!(rows, Few::One(_)) && driver_error::is_blocked(&error) {
                    contacts.note_reply_without_holder(&rows[0].name);
                    contacts.replied(&rows[0].name, sent);
                }
                return Err(error.into());
            }
        };
        let replies = match self.told(sending, rows, order, limit, replies).await {
            Ok(replies) => replies,
            Err(error) => return Ok(Err(error)),
        };
        if is_claim {
            for (row, reply) in rows.iter().zip(&replies) {
                let key = key_of(row);
                self.note_reply(&key, reply, sent);
                self.server.works.replied(&key, reply);
                contacts.replied(&key.name, sent);
            }
        }
        let mut replies = replies;
        if let (Few::One(_), Then::Claim { expiry, id, .. }) = (rows, then) {
            self.forget_the_rest(&mut replies[0], id, *expiry);
        }
        let mut replies = replies.into_iter();
        Ok(Ok(rows.map(|_| Ok(replies.next().unwrap_or(Reply::UNSEEN)))))
    }

    /// The replies to several rows, of which an update tells only the number: a query finds them out.
    async fn told(
        &self,
        sending: Sending,
        rows: &Few<Row>,
        order: protocol::Order,
        limit: Duration,
        replies: Vec<Reply>,
    ) -> Result<Vec<Reply>, LockError> {
        let are_all = replies.iter().all(|reply| reply.is_applied == Some(true));
        let is_told = match rows[0].then {
            Then::Claim { .. } => false,
            Then::Rename { .. } => !is_detachment(&rows[0]),
            Then::End { .. } => are_all || !sending.tells_each,
            _ => order == protocol::Order::Each,
        };
        if matches!(rows, Few::One(_)) || is_told {
            return Ok(replies);
        }
        let is_end = matches!(rows[0].then, Then::End { .. });
        let written = |row: &Row| match row.then.new_id() {
            Some(id) => key_of(row).with_id(id),
            None => key_of(row),
        };
        let keys = rows.iter().map(written).collect();
        let mut read = self.request(Order::read(keys, !is_end, limit)).await?;
        for (row, reply) in rows.iter().zip(&mut read) {
            reply.is_applied = row.then.new_id().map(|id| reply.has(id));
            if let (None, When::Own { id, .. }, false) = (&reply.sight, &row.when, is_end) {
                reply.sight = Some(self.before(id));
            }
        }
        Ok(read)
    }

    /// If the driver has repeated a command, the server replies from its log, without what is left of the lease.
    fn forget_the_rest(&self, reply: &mut Reply, id: &str, expiry: Ms) {
        if let Some(sight) = &mut reply.sight
            && sight.has(id)
            && sight.left() == Some(expiry)
            && self.is_faulty()
        {
            sight.document.expires_at = Value::Missing;
        }
    }

    /// The document of the claim that had the lock before a write that is not confirmed.
    fn before(&self, id: &Arc<str>) -> Sight {
        let now = self.server.memory.now();
        Sight {
            document: Document {
                lock_id: Value::Text(Arc::clone(id)),
                expires_at: Value::Date(now + 1000),
                ..Document::default()
            },
            now: Some(now),
        }
    }

    /// Looks at each of these locks. That of every permit is what a query over all of them finds.
    pub(crate) async fn look(
        &self,
        looked: Looked<'_>,
        margin: Ms,
        limit: Duration,
    ) -> Result<Vec<(Name, Sight)>, LockError> {
        let names: Vec<Name> = match looked {
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
        let replies = self.request(Order::read(keys.collect(), false, limit)).await?;
        let mut seen = Vec::new();
        for (name, reply) in names.iter().zip(replies) {
            match reply.sight.as_ref().filter(|sight| !sight.is_free(margin)) {
                Some(sight) => {
                    let holder = sight.lock_id().map(|id| Arc::from(lock_id::taken_by(id)));
                    self.note_held(name, holder.as_ref(), sent);
                }
                None => contacts.note_reply_without_holder(name),
            }
            contacts.replied(name, sent);
            seen.extend(reply.sight.map(|sight| (Arc::clone(name), sight)));
        }
        Ok(seen)
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

    pub(super) async fn request(&self, order: Order) -> Result<Vec<Reply>, Error> {
        // The library's own futures must not look large because of the simulation.
        driver_call(Box::pin(self.send(order))).await
    }

    async fn send(&self, order: Order) -> Result<Vec<Reply>, Error> {
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
    ) -> JoinHandle<Result<Vec<Reply>, Error>> {
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
