//! The network between one process and the server, and what happens to a command in it.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use mongodb::error::Error;
use tokio::time::sleep;

use super::errors::NOT_PRIMARY;
use super::plan::Knob::{self, *};
use super::world::{World, whole};
use super::{chance, choice, errors, millis};
use crate::LockError;
use crate::protocol::Ms;

/// The time within which the engine sends a command without a reply again, and once more after an error.
const SILENCE: Duration = Duration::from_secs(8);
const AFTER_ERROR: Duration = Duration::from_secs(2);

pub(super) struct Line {
    pub(super) world: Arc<World>,
    pub(super) number: usize,
    /// The network of an operator has no faults, so that the results of forced releases are known.
    has_faults: bool,
    is_dead: AtomicBool,
    paused_until: AtomicI64,
    /// The time until which faults may still have an effect.
    trouble_until: AtomicI64,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// The way of a command through the network.
struct Trip {
    there: Duration,
    back: Duration,
    /// The time that the server takes after it has read its clock.
    hangs: Duration,
    /// The number of rows that are applied.
    rows: usize,
    /// The time after which the command arrives once more.
    again: Option<Duration>,
}

/// The result of a command for its process.
enum Fate {
    Reply,
    /// It was applied, and there is no reply.
    Silent,
    /// It was applied, and still ends with an error.
    Failed(Error),
    /// It was not applied, and there is no reply.
    Lost,
    /// It was not applied, and ends with an error.
    Refused(Error),
}

impl Line {
    pub(super) fn new(world: &Arc<World>, number: usize, has_faults: bool) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            number,
            has_faults,
            is_dead: AtomicBool::new(false),
            paused_until: AtomicI64::new(0),
            trouble_until: AtomicI64::new(i64::MIN),
        })
    }

    /// Nothing is sent or delivered any more.
    pub(super) fn dies(&self) {
        self.is_dead.store(true, Relaxed);
    }

    /// Nothing is sent or delivered for this time.
    pub(super) fn pauses(&self, lasts: Duration) {
        self.paused_until.store(self.world.now() + whole(lasts), Relaxed);
        self.has_trouble(lasts + SILENCE);
    }

    /// A fault may have an effect for this time.
    pub(super) fn has_trouble(&self, lasts: Duration) {
        self.trouble_until
            .fetch_max(self.world.now() + whole(lasts), Relaxed);
    }

    /// The time at which the effect of the last fault has ended.
    pub(super) fn trouble_until(&self) -> i64 {
        self.trouble_until.load(Relaxed)
    }

    /// Waits until the process is not paused. A crashed process waits for ever.
    pub(super) async fn runs(&self) {
        loop {
            if self.is_dead.load(Relaxed) {
                return pending().await;
            }
            let left = self.paused_until.load(Relaxed) - self.world.now();
            let Ok(left) = u64::try_from(left) else { return };
            if left == 0 {
                return;
            }
            sleep(Duration::from_millis(left)).await;
        }
    }

    /// Whether there are faults for this process now.
    pub(super) fn may_fail(&self) -> bool {
        self.has_faults && !self.world.is_over()
    }

    /// Sends a command of this number of rows. The server runs it with the time of its clock and the number of rows to apply.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        rows: usize,
        command: impl Fn(&World, Ms, usize) -> T + Send + 'static,
    ) -> Result<T, LockError> {
        self.runs().await;
        let mut trip = self.usual_trip();
        let fault = if self.may_fail() {
            self.fault(&mut trip, rows)
        } else {
            None
        };
        let fate = match fault {
            Some((fate, what)) => {
                let is_refused = matches!(fate, Fate::Refused(_));
                self.has_trouble(if is_refused { AFTER_ERROR } else { SILENCE });
                self.world.note(|| format!("  {} a command {what}", self.number));
                fate
            }
            None => Fate::Reply,
        };
        let (back, elections) = (trip.back, self.world.elections.load(Relaxed));
        let reply = if let Fate::Lost | Fate::Refused(_) = fate {
            sleep(trip.there).await;
            None
        } else {
            tokio::spawn(arrive(Arc::clone(&self.world), trip, command))
                .await
                .ok()
        };
        let ended = match (fate, reply) {
            (Fate::Reply, Some(reply)) => Ok(reply),
            (Fate::Failed(error) | Fate::Refused(error), _) => Err(error),
            _ => return pending().await,
        };
        sleep(back).await;
        self.runs().await;
        if self.has_faults && elections != self.world.elections.load(Relaxed) {
            self.has_trouble(SILENCE);
            return Err(errors::not_confirmed().into());
        }
        Ok(ended?)
    }

    fn usual_trip(&self) -> Trip {
        Trip {
            there: millis(1..=self.world.plan.trip),
            back: millis(0..=self.world.plan.trip),
            hangs: Duration::ZERO,
            rows: usize::MAX,
            again: None,
        }
    }

    /// Chooses the fault of a command.
    fn fault(&self, trip: &mut Trip, rows: usize) -> Option<(Fate, &'static str)> {
        let (world, happens) = (&self.world, |knob: Knob| chance(self.world.plan.knob(knob)));
        let left = world.without_primary();
        if !left.is_zero() {
            return Some(without_primary(trip, left));
        }
        if chance(world.rejected.load(Relaxed)) {
            return Some((Fate::Refused(errors::command(errors::OVERLOADED)), "is rejected"));
        }
        if happens(Late) {
            // A deleted document leaves no token, and a delayed command would begin with the token of its own time.
            let part = if fastrand::bool() || world.plan.has(Sweeps) {
                &mut trip.there
            } else {
                &mut trip.hangs
            };
            *part = millis(500..=60_000);
            let fate = if fastrand::bool() {
                Fate::Silent
            } else {
                Fate::Reply
            };
            return Some((fate, "is late"));
        }
        if rows > 1 && happens(Parts) {
            trip.rows = fastrand::usize(0..rows);
            let error = choice(&[errors::command(errors::OUT_OF_TIME), errors::broken_connection()]);
            return Some((Fate::Failed(error), "ends in its middle"));
        }
        if happens(Errors) {
            return Some(if fastrand::bool() {
                (Fate::Refused(errors::nothing_done()), "fails")
            } else {
                (Fate::Failed(errors::not_confirmed()), "is applied and fails")
            });
        }
        happens(Network).then(|| bad_network(trip, world.plan.has(Long)))
    }
}

fn without_primary(trip: &mut Trip, left: Duration) -> (Fate, &'static str) {
    match fastrand::u8(0..3) {
        0 => (Fate::Refused(errors::command(NOT_PRIMARY)), "finds no primary"),
        1 => (Fate::Refused(errors::no_server()), "finds no server"),
        _ => {
            trip.there += left;
            (Fate::Reply, "waits for the next primary")
        }
    }
}

fn bad_network(trip: &mut Trip, is_long: bool) -> (Fate, &'static str) {
    match fastrand::u8(0..5) {
        0 => return (Fate::Lost, "is lost"),
        1 => return (Fate::Silent, "loses its reply"),
        2 => trip.there = millis(20..=3000),
        3 => trip.back = millis(20..=3000),
        // A late claim would begin a long lease that no process knows about.
        _ if is_long => return (Fate::Lost, "is lost"),
        _ => trip.again = Some(millis(1..=10_000)),
    }
    (Fate::Reply, "is slow or doubled")
}

/// The command arrives, also if its process has given it up.
async fn arrive<T: Send + 'static>(
    world: Arc<World>,
    trip: Trip,
    command: impl Fn(&World, Ms, usize) -> T + Send + 'static,
) -> T {
    sleep(trip.there).await;
    let now = world.memory.now();
    if !trip.hangs.is_zero() {
        sleep(trip.hangs).await;
    }
    let reply = command(&world, now, trip.rows);
    if let Some(again) = trip.again {
        tokio::spawn(async move {
            sleep(again).await;
            command(&world, world.memory.now(), usize::MAX);
        });
    }
    reply
}
