use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::engine::Engine;
use crate::lease::{ClaimKey, Grant, Lease, Terms, counted};
use crate::queue::{Kept, Place};
use crate::store::{Answer, Ask};
use crate::withdrawal::Withdrawal;
use crate::{FencingToken, LockError, LockGuard, fault, trace};

/// The server gives up a command after this time.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Tokens reserved when others wait in this process: one for each hold that can be handed over.
const HANDOVERS: i64 = 1000;

/// One try to acquire a lock, with an id that is its own.
///
/// As long as it is not known what the server made of it, dropping the claim withdraws it: that is how a cancelled
/// wait, a lost reply or a task that ends with its runtime leave nothing behind.
pub(crate) struct Claim {
    engine: Arc<Engine>,
    key: ClaimKey,
    terms: Terms,
    place: Arc<Place>,
    /// Asked for with every request of this claim: the answer to a repeated one is read with the same number.
    tokens: i64,
    may_stand: bool,
}

/// How one request ended. A claim that goes on to the next request comes back.
pub(crate) enum Attempt {
    Won(LockGuard),
    /// Held by another for as long as the server says.
    Held(Claim, Option<Duration>),
    /// Won, but the answer came when the lease was over: a claim with a new id has to go on.
    TooLate,
    /// No answer in time: the request goes on without its caller, and its claim withdraws itself.
    Unanswered,
    Failed(Claim, LockError),
}

impl Claim {
    pub(crate) fn new(engine: &Arc<Engine>, name: &Arc<str>, terms: Terms, place: &Arc<Place>) -> Self {
        let lock_id = format!("{}#{}", engine.owner, Uuid::new_v4());
        Self {
            engine: Arc::clone(engine),
            key: ClaimKey {
                name: Arc::clone(name),
                lock_id: lock_id.into(),
            },
            terms,
            place: Arc::clone(place),
            tokens: 1,
            may_stand: false,
        }
    }

    /// Sends one request on a task of its own, so that it runs to its end whatever becomes of the caller. What it
    /// returns is never lost: both a guard and a claim clean up when nobody takes them.
    pub(crate) fn send(self) -> JoinHandle<Attempt> {
        crate::task::spawn(self.attempt().in_current_span())
    }

    async fn attempt(mut self) -> Attempt {
        if !self.may_stand && self.place.others_wait() {
            self.tokens = HANDOVERS;
        }
        let ask = Ask {
            expiry: self.terms.expiry,
            tokens: self.tokens,
        };
        let stood = std::mem::replace(&mut self.may_stand, true);
        let sent = Instant::now();
        match self.engine.store.claim(&self.key, ask, COMMAND_LIMIT).await {
            Ok(Answer::Mine {
                last_token,
                remaining,
            }) => {
                let token = FencingToken::new(last_token.get() - (self.tokens - 1));
                let lasts = remaining.map_or(self.terms.expiry, |left| left.min(self.terms.expiry));
                self.won(Grant {
                    token,
                    last_token,
                    haunted: stood,
                    sent,
                    lasts,
                })
            }
            Ok(Answer::Other { remaining }) => {
                self.may_stand = stood;
                Attempt::Held(self, remaining)
            }
            Err(error) => {
                self.may_stand = stood || !fault::did_nothing(&error);
                Attempt::Failed(self, error)
            }
        }
    }

    /// A win counts only before its deadline: a repeated command can be answered from the server's log, when
    /// somebody else has the lock already.
    fn won(mut self, grant: Grant) -> Attempt {
        if self.engine.is_closed() || Instant::now() >= grant.sent + counted(grant.lasts) {
            return Attempt::TooLate;
        }
        self.may_stand = false;
        let engine = Arc::clone(&self.engine);
        let lease = Lease::new(
            engine,
            self.key.clone(),
            grant,
            self.terms,
            Arc::clone(&self.place),
        );
        trace::acquired(&lease);
        Attempt::Won(LockGuard::new(Arc::new(lease)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.may_stand {
            return;
        }
        let expiry = self.terms.expiry;
        let kept = Kept::Place {
            _place: Arc::clone(&self.place),
        };
        self.engine.keeper.withdraw(vec![
            Withdrawal::new(self.key.clone(), Duration::ZERO, expiry, kept),
            Withdrawal::late(self.key.clone(), expiry),
        ]);
    }
}
