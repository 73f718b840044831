use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use mongodb::error::{Error, ErrorKind};

use super::knobs::Knobs;
use super::order::{Course, Order};
use super::{between, chance, errors};
use crate::store::driver_error;

/// What happens to one request.
pub(super) struct Trip {
    /// The time until it is sent, in which a pause or a crash of the process can still stop it.
    pub(super) packed: Duration,
    /// The time until the server receives it; `None` if it is lost.
    pub(super) there: Option<Duration>,
    /// The time until the sender receives the reply.
    pub(super) back: Duration,
    /// What the sender gets instead of the reply.
    pub(super) end: Option<End>,
    pub(super) course: Course,
    /// The time until the server receives the first copy of a request that the driver has repeated; its reply is lost.
    pub(super) first_copy: Option<Duration>,
}

pub(super) enum End {
    Error(Duration, Error),
    /// Neither a reply nor an error.
    Silence,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Its text says how far the driver had come.
            Self::Error(after, error) if matches!(*error.kind, ErrorKind::ServerSelection { .. }) => {
                write!(f, "after {after:?} no server")
            }
            Self::Error(after, error) => write!(f, "after {after:?} {}", error.kind),
            Self::Silence => f.write_str("no reply"),
        }
    }
}

impl Trip {
    pub(super) fn healthy(rng: &mut Rng) -> Self {
        Self {
            packed: between(rng, 0, 1),
            there: Some(between(rng, 0, 2)),
            back: between(rng, 0, 2),
            end: None,
            course: Course::default(),
            first_copy: None,
        }
    }

    /// Adds the faults of the knobs.
    pub(super) fn spoil(&mut self, knobs: &Knobs, order: &Order, rng: &mut Rng) {
        if chance(rng, knobs.network) {
            self.delay_or_lose(rng);
        }
        if chance(rng, knobs.late_effects) {
            // The delay is usually within the limit, because only then the command takes effect at all.
            let longest = if rng.bool() {
                order.limit
            } else {
                Duration::from_secs(6)
            };
            self.course.delay = longest.mul_f64(rng.f64());
        }
        if order.keys.len() > 1 && chance(rng, knobs.partial_batches) {
            self.stop_half_way(order.keys.len(), rng);
        }
        if chance(rng, knobs.repetitions) {
            self.repeat(rng);
        }
        if chance(rng, knobs.silent_connections) {
            self.end = Some(End::Silence);
            if rng.bool() {
                self.there = None;
            }
        }
        if chance(rng, knobs.typed_errors) {
            self.fail(order, rng);
        }
    }

    fn delay_or_lose(&mut self, rng: &mut Rng) {
        let slow = slowness(rng);
        match rng.u8(0..6) {
            0 => self.packed = between(rng, 0, slow),
            1 => self.there = Some(between(rng, 0, slow)),
            2 => self.back = between(rng, 0, slow),
            3 => {
                self.there = None;
                self.end = Some(End::Error(between(rng, 0, slow), errors::broken_connection()));
            }
            // The reply is lost, or the request arrives after the sender has given it up.
            _ => {
                self.there = Some(between(rng, 0, slow));
                self.end = Some(End::Error(between(rng, 0, slow), errors::broken_connection()));
            }
        }
    }

    /// Stops the command before its last documents; the reply is an error, or is lost with its connection.
    fn stop_half_way(&mut self, documents: usize, rng: &mut Rng) {
        self.course.stops_after = Some(rng.usize(0..documents));
        if rng.bool() {
            self.end = Some(End::Error(between(rng, 5, 500), errors::broken_connection()));
        }
    }

    /// Repeats the request as the driver does, after an attempt that took at least half a second.
    fn repeat(&mut self, rng: &mut Rng) {
        self.there = Some(between(rng, 500, 600));
        self.first_copy = Some(between(rng, 0, 9000));
    }

    fn fail(&mut self, order: &Order, rng: &mut Rng) {
        let is_claim = order.is_one_claim();
        let fault = if is_claim && chance(rng, 30) {
            errors::refusal()
        } else {
            errors::draw(rng)
        };
        if !fault.is_executed {
            self.there = None;
        }
        // The driver reports the error of its first attempt if it cannot send a second one.
        if driver_error::was_not_applied(&fault.error.clone().into()) {
            self.first_copy = None;
        }
        self.end = Some(End::Error(between(rng, 5, 50), fault.error));
    }
}

fn slowness(rng: &mut Rng) -> u64 {
    if rng.bool() { 400 } else { 12_000 }
}
