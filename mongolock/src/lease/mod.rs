pub(crate) mod background_release;
pub(crate) mod copies;
pub(crate) mod given_up;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod renewer;
pub(crate) mod schedule;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::lease::copies::Copies;
use crate::queue::{Kept, Place, Turn};
use crate::sync::lock;
use crate::trace::{self, Loss};
use crate::{FencingToken, LockError};

/// The name of a lock and the id of one claim on it, as they stand in the document.
#[derive(Debug, Clone)]
pub(crate) struct ClaimKey {
    pub(crate) name: Arc<str>,
    /// `<owner>#<uuid>`: drawn for one acquisition, never used again.
    pub(crate) lock_id: Arc<str>,
}

/// What the server granted.
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    /// The last of the tokens that were reserved for holds that are handed over in this process.
    pub(crate) last_token: FencingToken,
    /// Given if a request of the claim may still take effect: its id is released late as well then.
    pub(crate) copies: Option<Arc<Copies>>,
    /// Read before the request was sent: the lease cannot have begun earlier.
    pub(crate) sent: Instant,
    /// How long from `sent` the holder may count on the lease.
    pub(crate) lasts: Duration,
}

/// The part of the options that a lease needs while it is held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    pub(crate) expiry: Duration,
    pub(crate) renew_interval: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
}

/// One hold of a lock in this process: shared by its guard, its contexts and the renewal.
///
/// A lease is live until it is released, or until its deadline passes on the monotonic clock, and it never
/// comes back: whoever sees it over makes that final.
pub(crate) struct Lease {
    pub(crate) key: ClaimKey,
    pub(crate) token: FencingToken,
    pub(crate) terms: Terms,
    /// When this hold began.
    pub(crate) acquired: Instant,
    pub(crate) engine: Arc<Engine>,
    last_token: FencingToken,
    /// When the claim was won: this hold's own beginning, or that of the first in a row that was handed over.
    claimed: Instant,
    /// Nanoseconds from `acquired`, or one of the two ends.
    deadline: AtomicU64,
    over: Notify,
    /// Kept here and not in the guard: a lease that is lost must not keep the name from this process's other callers.
    kept: Mutex<Kept>,
    copies: Option<Arc<Copies>>,
    /// A renewal was sent and not confirmed: the claim may stand longer than this process knows.
    unconfirmed: AtomicBool,
    /// Somebody has got the guard: from then on a minimum hold applies.
    delivered: AtomicBool,
    commits: Commits,
}

/// The guarded commits under a hold: what must not be forgotten when it ends.
#[derive(Default)]
struct Commits {
    /// Begun and not ended: the claim guards them.
    begun: AtomicUsize,
    /// One was dropped half-way: the server may make it at any time.
    cut_off: AtomicBool,
    made: AtomicBool,
    /// So many commits are on their way to the server, under this hold or within it: bodies are not broken off now.
    on_their_way: AtomicUsize,
}

/// A guarded commit, from before its guard to its end.
pub(crate) struct Committing<'a> {
    commits: &'a Commits,
    ended: bool,
}

impl Committing<'_> {
    /// It has been made or not, and nothing of it is left at the server.
    pub(crate) fn ended(mut self, made: bool) {
        self.ended = true;
        if made {
            self.commits.made.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.commits.cut_off.store(true, Ordering::SeqCst);
        }
        self.commits.begun.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps the bodies under a hold from being broken off for as long as it lives.
pub(crate) struct Unbroken(Arc<Lease>);

impl Drop for Unbroken {
    fn drop(&mut self) {
        self.0.commits.on_their_way.fetch_sub(1, Ordering::SeqCst);
        // Who waits for the end of the hold may look again.
        self.0.over.notify_waiters();
    }
}

const LOST: u64 = 0;
const RELEASED: u64 = 1;
const FIRST_LIVE: u64 = 2;

impl Lease {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: ClaimKey,
        grant: Grant,
        terms: Terms,
        place: Arc<Place>,
    ) -> Self {
        let lease = Self {
            key,
            token: grant.token,
            terms,
            acquired: grant.sent,
            engine,
            last_token: grant.last_token,
            claimed: grant.sent,
            deadline: AtomicU64::new(FIRST_LIVE),
            over: Notify::new(),
            kept: Mutex::new(Kept::Place { _place: place }),
            copies: grant.copies,
            unconfirmed: AtomicBool::new(false),
            delivered: AtomicBool::new(false),
            commits: Commits::default(),
        };
        let deadline = lease.encode(grant.sent + counted(grant.lasts));
        lease.deadline.store(deadline, Ordering::Release);
        lease
    }

    /// The next hold on the same claim, by another caller in this process: with a token of its own, and with what is
    /// left of the lease.
    pub(crate) fn successor(&self, deadline: Instant) -> Option<Self> {
        let token = FencingToken::new(self.token.get() + 1);
        if token > self.last_token {
            return None;
        }
        let next = Self {
            key: self.key.clone(),
            token,
            terms: self.terms,
            acquired: Instant::now(),
            engine: Arc::clone(&self.engine),
            last_token: self.last_token,
            claimed: self.claimed,
            deadline: AtomicU64::new(FIRST_LIVE),
            over: Notify::new(),
            kept: Mutex::new(Kept::Nothing),
            copies: self.copies.clone(),
            unconfirmed: AtomicBool::new(self.may_stand()),
            delivered: AtomicBool::new(false),
            commits: Commits::default(),
        };
        next.deadline.store(next.encode(deadline), Ordering::Release);
        Some(next)
    }

    pub(crate) fn claimed(&self) -> Instant {
        self.claimed
    }

    /// When the request was sent that last confirmed the lease.
    pub(crate) fn confirmed(&self) -> Instant {
        let deadline = self.deadline().unwrap_or(self.acquired);
        deadline
            .checked_sub(counted(self.terms.expiry))
            .unwrap_or(self.acquired)
    }

    /// When the holder stops counting on the lease; `None` once it is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Ordering::Acquire) {
            LOST | RELEASED => None,
            live => Some(self.decode(live)),
        }
    }

    /// Whether the lease is over, by release or by loss.
    pub(crate) fn is_over(&self) -> bool {
        loop {
            let seen = self.deadline.load(Ordering::Acquire);
            if seen < FIRST_LIVE {
                return true;
            }
            if self.decode(seen) > Instant::now() {
                return false;
            }
            // A renewal that is answered this very moment must not revive a lease that was seen to be over.
            if self.end(seen, LOST) {
                self.announce_loss(Loss::Expired);
                return true;
            }
        }
    }

    /// Whether it has ended without a release.
    pub(crate) fn is_lost(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == LOST
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_over() {
            return Duration::ZERO;
        }
        self.deadline().map_or(Duration::ZERO, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        if self.is_over() {
            Err(self.lost_error())
        } else {
            Ok(())
        }
    }

    pub(crate) fn lost_error(&self) -> LockError {
        LockError::Lost {
            name: self.key.name.to_string(),
            token: self.token,
        }
    }

    /// Resolves once the lease is over, also when nobody is there to say so.
    pub(crate) async fn until_over(&self) {
        self.until(Self::is_over).await;
    }

    /// A renewal is on its way.
    pub(crate) fn ask(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the claim may stand after the lease has run out here.
    pub(crate) fn may_stand(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Counts from the moment in which the confirmed renewal was sent.
    pub(crate) fn extend(&self, sent: Instant) {
        let extended = self.encode(sent + counted(self.terms.expiry));
        while !self.is_over() {
            let seen = self.deadline.load(Ordering::Acquire);
            // Two renewals may overlap; the one that was sent later decides.
            if seen >= extended || (seen >= FIRST_LIVE && self.end(seen, extended)) {
                self.unconfirmed.store(false, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Ends the lease because somebody else has the claim, or because nobody answers for it any more.
    pub(crate) fn lose(&self, why: Loss) {
        if self.finish(LOST) {
            self.announce_loss(why);
        }
    }

    /// Ends the lease for a release and returns the deadline it had; `None` when it was over before.
    pub(crate) fn begin_release(&self) -> Option<Instant> {
        let deadline = self
            .deadline()
            .filter(|_| !self.is_over() && self.finish(RELEASED))?;
        self.over.notify_waiters();
        Some(deadline)
    }

    /// The caller has the lease now, and keeps his turn for as long as he holds it.
    pub(crate) fn deliver(&self, turn: Turn) {
        self.delivered.store(true, Ordering::Relaxed);
        self.keep(Kept::Turn(turn));
        if self.is_over() {
            drop(self.take_kept());
        }
    }

    pub(crate) fn keep(&self, kept: Kept) {
        *lock(&self.kept) = kept;
    }

    /// What is to be given up once the server has been told.
    pub(crate) fn take_kept(&self) -> Kept {
        std::mem::replace(&mut *lock(&self.kept), Kept::Nothing)
    }

    /// A hold that nobody has got owes nobody a minimum.
    pub(crate) fn min_hold(&self) -> Duration {
        if self.delivered.load(Ordering::Relaxed) {
            self.terms.min_hold
        } else {
            Duration::ZERO
        }
    }

    /// The requests of the claim, if one of them may take effect after the claim has ended.
    pub(crate) fn copies(&self) -> Option<&Arc<Copies>> {
        self.copies.as_ref()
    }

    /// Whether the hold came from another caller in this process, without a word to the server.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.claimed < self.acquired
    }

    /// Before the caller asks whether the lease is held: whoever ends it looks for commits after that.
    pub(crate) fn begin_commit(&self) -> Committing<'_> {
        self.commits.begun.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Committing {
            commits: &self.commits,
            ended: false,
        }
    }

    /// Whether a commit that was begun under this hold may still be made.
    pub(crate) fn may_commit(&self) -> bool {
        fence(Ordering::SeqCst);
        self.commits.begun.load(Ordering::SeqCst) > 0 || self.commits.cut_off.load(Ordering::SeqCst)
    }

    pub(crate) fn unbroken(self: &Arc<Self>) -> Unbroken {
        self.commits.on_their_way.fetch_add(1, Ordering::SeqCst);
        Unbroken(Arc::clone(self))
    }

    /// Whether a body under this hold is to be broken off: not in the middle of a commit, of which nobody would know
    /// what has become of it.
    pub(crate) fn breaks_off(&self) -> bool {
        self.is_over() && self.commits.on_their_way.load(Ordering::SeqCst) == 0
    }

    /// Resolves once a body is to be broken off.
    pub(crate) async fn until_it_breaks_off(&self) {
        self.until(Self::breaks_off).await;
    }

    /// Looks again at every change, and at the deadline.
    async fn until(&self, ended: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.over.notified();
            if ended(self) {
                return;
            }
            match self.deadline() {
                Some(deadline) => drop(tokio::time::timeout_at(deadline, changed).await),
                None => changed.await,
            }
        }
    }

    /// Whether a guarded commit was made under this hold.
    pub(crate) fn has_committed(&self) -> bool {
        self.commits.made.load(Ordering::Relaxed)
    }

    /// Whether a renewal may be sent at this moment: not beyond the cap.
    pub(crate) fn is_renewable(&self, at: Instant) -> bool {
        self.terms.max_hold.is_none_or(|cap| at < self.acquired + cap)
    }

    fn finish(&self, end: u64) -> bool {
        loop {
            let seen = self.deadline.load(Ordering::Acquire);
            if seen < FIRST_LIVE {
                return false;
            }
            if self.end(seen, end) {
                return true;
            }
        }
    }

    fn end(&self, seen: u64, new: u64) -> bool {
        self.deadline
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn announce_loss(&self, why: Loss) {
        self.over.notify_waiters();
        let is_awaited = why == Loss::Expired && self.may_stand();
        let mut kept = lock(&self.kept);
        let ended = std::mem::replace(&mut *kept, Kept::Nothing);
        if is_awaited {
            // A shutdown waits until the claim is taken back. Not a moment without it: the keeper may come to take it.
            *kept = ended.without_turn();
            drop(kept);
        } else {
            drop(kept);
            drop(ended);
        }
        trace::lost(self, why);
    }

    fn encode(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.acquired).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).max(FIRST_LIVE)
    }

    fn decode(&self, live: u64) -> Instant {
        self.acquired + Duration::from_nanos(live)
    }
}

/// The part of a lease that its holder counts on.
pub(crate) fn counted(lasts: Duration) -> Duration {
    lasts.saturating_sub(margin(lasts))
}

/// How much less than the server gives that is: one percent and two milliseconds, for clocks that do not run alike and
/// for the server's times, which are whole milliseconds.
pub(crate) fn margin(lasts: Duration) -> Duration {
    lasts / 100 + Duration::from_millis(2)
}
