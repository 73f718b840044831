//! The server: the lock's document with its rules, and the documents of the waiters in their order.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::bson::DateTime;
use crate::id::{Id, Token};
use crate::network::{Body, Event, Running};
use crate::store::{AcquireReply, Waiter};
use crate::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// The claim that has the lock, or had it last.
    pub(crate) holder: Option<Id>,
    /// The end of its lease. The lock is free from then on.
    pub(crate) expires: Instant,
    pub(crate) token: Token,
    /// The waiters in the order of their places.
    pub(crate) line: Vec<Waiter>,
    /// The number of places that were taken.
    places: i64,
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.holder.hash(state);
        // When a lease ended long ago does not matter.
        self.is_free().hash(state);
        self.remaining().hash(state);
        self.line.hash(state);
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            holder: None,
            expires: Instant::BEGINNING,
            token: Token(0),
            line: Vec::new(),
            places: 0,
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.expires <= Instant::now()
    }

    fn remaining(&self) -> Duration {
        self.expires.saturating_duration_since(Instant::now())
    }

    /// Applies a command, and returns the reply and the event that follow.
    pub(crate) fn apply(&mut self, command: Body) -> (Body, Option<Event>) {
        match command {
            Body::Claim {
                id, tokens, expiry, ..
            } => self.claim(id, tokens, expiry),
            Body::Release(id) => {
                let had_claim = self.holder == Some(id);
                if had_claim {
                    (self.holder, self.expires) = (None, Instant::now());
                }
                let event = had_claim.then_some(Event::Released);
                (Body::Released(Ok(had_claim)), event)
            }
            _ => {
                let running = Running {
                    holder: self.holder,
                    remaining: self.remaining(),
                };
                (Body::Looked(Ok((!self.is_free()).then_some(running))), None)
            }
        }
    }

    fn claim(&mut self, id: Id, tokens: i64, expiry: Duration) -> (Body, Option<Event>) {
        let mut event = None;
        if self.is_free() {
            self.holder = Some(id);
            self.expires = Instant::now() + expiry;
            self.token = Token(self.token.0 + tokens);
            event = Some(Event::Acquired(id));
        }
        let remaining = self.remaining();
        let reply = if self.holder == Some(id) {
            AcquireReply::Acquired {
                last_token: self.token,
                remaining,
            }
        } else {
            AcquireReply::Held {
                holder: self.holder,
                remaining,
            }
        };
        (Body::Claimed(Ok(reply)), event)
    }

    /// Writes the document of a waiter: in its place if it keeps it and has one, and at the end otherwise.
    pub(crate) fn place(&mut self, provider: &str, time_slot: Duration, keeps_place: bool) {
        let is_own = |waiter: &Waiter| &*waiter.provider == provider;
        if keeps_place && let Some(own) = self.line.iter_mut().find(|waiter| is_own(waiter)) {
            own.time_slot = time_slot;
            return;
        }
        self.leave(provider);
        self.places += 1;
        self.line.push(Waiter {
            provider: provider.into(),
            at: DateTime::from_millis(self.places),
            time_slot,
        });
    }

    pub(crate) fn leave(&mut self, provider: &str) {
        self.line.retain(|waiter| &*waiter.provider != provider);
    }
}
