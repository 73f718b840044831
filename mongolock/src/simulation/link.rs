use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::{broadcast, oneshot};
use tokio::time::{sleep, timeout};

use super::process::Process;
use super::server::{Command, Server};
use super::{between, chance};
use crate::LockError;
use crate::store::IndexState;
use crate::store::LeaseId;
use crate::store::{Answer, Ask, MemoryStore, Standing};
use crate::sync::lock;

/// What one process has of the network to the server.
pub(crate) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) process: Arc<Process>,
    /// Requests in a thousand to which something happens.
    faults: u32,
    rng: Mutex<Rng>,
}

/// What becomes of one request.
struct Trip {
    /// Until it is on its way: the last chance of a pause or a crash.
    packed: Duration,
    /// Until the server has it; never, if it is lost.
    there: Option<Duration>,
    back: Duration,
    /// The sender gets an error instead of the reply after this time.
    broken: Option<Duration>,
}

impl Link {
    pub(super) fn new(server: &Arc<Server>, process: &Arc<Process>, faults: u32, rng: Rng) -> Self {
        Self {
            server: Arc::clone(server),
            process: Arc::clone(process),
            faults,
            rng: Mutex::new(rng),
        }
    }

    /// The server as an operator sees it: nothing happens to his requests.
    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.server.memory
    }

    pub(crate) async fn claim(&self, key: &LeaseId, ask: Ask) -> Result<Answer, LockError> {
        let own = key.clone();
        let mut answer = self
            .request(Command::Claim, std::slice::from_ref(key), move |server| {
                server.claim(&own, ask)
            })
            .await?;
        // The driver has repeated the command: the server answers from its log, without computed fields.
        if let Answer::Mine { remaining, .. } = &mut answer
            && *remaining == Some(ask.expiry)
            && self.is_faulty()
        {
            *remaining = None;
        }
        Ok(answer)
    }

    pub(crate) async fn renew(&self, keys: &[LeaseId], expiry: Duration) -> Result<Standing, LockError> {
        let own = keys.to_vec();
        self.request(Command::Renew, keys, move |server| {
            server.memory.renew(&own, expiry)
        })
        .await
    }

    pub(crate) async fn release(&self, key: &LeaseId, min_hold: Duration) -> Result<bool, LockError> {
        let own = key.clone();
        let release = move |server: &Server| server.memory.release(&own, min_hold);
        self.request(Command::Release, std::slice::from_ref(key), release)
            .await
    }

    pub(crate) async fn release_many(&self, keys: &[LeaseId], min_hold: Duration) -> Result<(), LockError> {
        let own = keys.to_vec();
        let release = move |server: &Server| {
            for key in &own {
                server.memory.release(key, min_hold);
            }
        };
        self.request(Command::Withdraw, keys, release).await
    }

    pub(crate) async fn watch(self: &Arc<Self>) -> Result<Hints, LockError> {
        if self.is_faulty() {
            sleep(self.between(0, 3000)).await;
            return Err(broken_connection());
        }
        Ok(Hints {
            releases: self.server.memory.listen(),
            link: Arc::clone(self),
        })
    }

    /// A look may hang for ever, behind an index build that does not end.
    pub(crate) async fn ensure_index(&self) -> IndexState {
        if self.is_faulty() {
            std::future::pending::<()>().await;
        }
        IndexState::Ready
    }

    async fn request<T: Send + 'static>(
        &self,
        command: Command,
        keys: &[LeaseId],
        execute: impl FnOnce(&Server) -> T + Send + 'static,
    ) -> Result<T, LockError> {
        let trip = self.trip();
        sleep(trip.packed).await;
        let (reply, replied) = oneshot::channel();
        if let Some(there) = trip.there {
            let (server, number, keys) = (Arc::clone(&self.server), self.process.number, keys.to_vec());
            // Not a task of the process: what is on its way arrives, whatever becomes of the sender.
            tokio::spawn(async move {
                sleep(there).await;
                server.count(command, number, &keys);
                let result = execute(&server);
                sleep(trip.back).await;
                let _ = reply.send(result);
            });
        }
        match trip.broken {
            None => replied.await.map_err(|_| broken_connection()),
            Some(after) => {
                sleep(after).await;
                Err(broken_connection())
            }
        }
    }

    fn trip(&self) -> Trip {
        let faulty = self.is_faulty();
        let rng = &mut *lock(&self.rng);
        let mut trip = Trip {
            packed: between(rng, 0, 1),
            there: Some(between(rng, 0, 2)),
            back: between(rng, 0, 2),
            broken: None,
        };
        if faulty {
            trip.spoil(rng);
        }
        if self.server.silent.load(Relaxed) {
            trip.there = None;
        }
        trip
    }

    fn is_faulty(&self) -> bool {
        !self.server.calm.load(Relaxed) && chance(&mut lock(&self.rng), self.faults)
    }

    fn between(&self, min: u64, max: u64) -> Duration {
        between(&mut lock(&self.rng), min, max)
    }
}

impl Trip {
    fn spoil(&mut self, rng: &mut Rng) {
        let slow = if rng.bool() { 400 } else { 12_000 };
        match rng.u8(0..6) {
            0 => self.packed = between(rng, 0, slow),
            1 => self.there = Some(between(rng, 0, slow)),
            2 => self.back = between(rng, 0, slow),
            3 => {
                self.there = None;
                self.broken = Some(between(rng, 0, slow));
            }
            // The reply is lost, or the request arrives when the sender has given it up.
            _ => {
                self.there = Some(between(rng, 0, slow));
                self.broken = Some(between(rng, 0, slow));
            }
        }
    }
}

/// The stream of releases as one process gets it.
pub(crate) struct Hints {
    releases: broadcast::Receiver<Arc<str>>,
    link: Arc<Link>,
}

impl Hints {
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<str>>, LockError> {
        let heard = timeout(Duration::from_secs(1), self.releases.recv()).await;
        if !self.link.is_faulty() {
            return Ok(heard.ok().and_then(Result::ok));
        }
        sleep(self.link.between(0, 1000)).await;
        match self.link.between(0, 2).as_millis() {
            0 => Err(broken_connection()),
            1 => Ok(None),
            _ => Ok(heard.ok().and_then(Result::ok)),
        }
    }
}

fn broken_connection() -> LockError {
    LockError::Mongo(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
}
