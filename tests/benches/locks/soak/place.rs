//! A place of the soak: a process of a kind, and the faults that hit it. Another process takes the place of one that was killed
//! or has ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use mongolock_tests::{Actor, Direction, Fault as Message, History, Proxy, monotonic_now};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::EXPIRY;
use super::job::Soaking;
use crate::child::{self, Job};
use crate::queue::Client;
use crate::setting::Access;

/// How late messages are.
const LATE: Duration = Duration::from_secs(3);
/// How long a fault waits for its process to hold the lock.
const AIM: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    /// A process is killed, most often while it holds the lock.
    Kill,
    /// A process is stopped for 0.1 to 3 s.
    Stop,
    /// All connections of a process are cut.
    Cut,
    /// The events of a process arrive 3 s late.
    LateEvents,
    /// All replies to a process arrive 3 s late.
    LateReplies,
    /// A process ends in its own way; another one begins some seconds later.
    Leave,
    /// The primary steps down.
    StepDown,
}

/// A fault that has happened.
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The title of the place that it has hit.
    pub(crate) place: &'static str,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

impl Fault {
    /// Until when the fault explains that the lock is free. A process that is killed or stopped can have acquired the lock
    /// just then, and so can one that does not get its replies: the lock is free when that lease has ended.
    pub(crate) fn explains_until(&self) -> Duration {
        match self.kind {
            Kind::Kill | Kind::Cut => self.begun + EXPIRY,
            Kind::Stop => self.ended.min(self.begun + EXPIRY),
            Kind::LateReplies => self.ended + EXPIRY,
            // The driver looks for the new primary every 500 ms.
            Kind::StepDown => self.ended + Duration::from_secs(1),
            Kind::LateEvents | Kind::Leave => self.begun,
        }
    }

    /// Whether the fault explains only a free time that has begun before it or with it: if another process holds the lock
    /// afterwards, the process that was hit did not.
    pub(crate) fn explains_once(&self) -> bool {
        matches!(self.kind, Kind::Kill | Kind::Cut | Kind::Stop)
    }
}

/// A process of a kind.
pub(crate) struct Place {
    pub(crate) title: &'static str,
    pub(crate) client: Client,
    pub(crate) access: Access,
    /// The proxy that the process is behind.
    pub(crate) proxy: Option<Proxy>,
    /// The kinds of its faults; a kind may be there several times.
    pub(crate) kinds: &'static [Kind],
}

/// What the processes of a place have done, and what has hit them.
#[derive(Default)]
pub(crate) struct Lives {
    /// The number of each process in the history, and when it began and ended.
    pub(crate) all: Vec<(usize, Duration, Duration)>,
    pub(crate) history: History,
    pub(crate) faults: Vec<Fault>,
}

impl Place {
    /// Runs processes until this time. The counter numbers the processes of all places.
    pub(crate) async fn live(
        self,
        number: &AtomicUsize,
        mut random: Rng,
        until: Duration,
    ) -> anyhow::Result<Lives> {
        let mut lives = Lives::default();
        while monotonic_now() < until {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let soaking = Soaking {
                owner: format!("soak-{number}"),
                client: self.client,
                expiry: EXPIRY,
            };
            let mut process = child::start(&self.access, Job::Soak(soaking)).await?;
            let begun = monotonic_now();
            process.send("go").await;
            let last = self
                .hit(&mut process, &mut random, until, &mut lives.faults)
                .await;
            if last != Kind::Kill {
                process.send("end").await;
            }
            let ended = monotonic_now();
            process.end().await;
            process.tell_as(number, &mut lives.history);
            lives.all.push((number, begun, ended));
            if last == Kind::Leave {
                sleep(Duration::from_secs(random.u64(1..10))).await;
            }
        }
        Ok(lives)
    }

    /// Lets faults happen to a process until one of them ends it, or this time has come; returns the last one.
    async fn hit(
        &self,
        process: &mut Actor,
        random: &mut Rng,
        until: Duration,
        faults: &mut Vec<Fault>,
    ) -> Kind {
        loop {
            sleep(Duration::from_millis(random.u64(4_000..30_000))).await;
            let kind = self.kinds[random.usize(..self.kinds.len())];
            if monotonic_now() >= until {
                return Kind::Leave;
            }
            if matches!(kind, Kind::Kill | Kind::Stop) && random.u8(..3) > 0 {
                let mut acquired = process.acquired();
                acquired.mark_unchanged();
                let _ = timeout(AIM, acquired.changed()).await;
            }
            let begun = monotonic_now();
            match (kind, &self.proxy) {
                (Kind::Kill, _) => process.signal(Signal::KILL),
                (Kind::Stop, _) => {
                    process.signal(Signal::STOP);
                    sleep(Duration::from_millis(random.u64(100..3_000))).await;
                    process.signal(Signal::CONT);
                }
                (Kind::Cut, Some(proxy)) => proxy.reset_connections(),
                (Kind::LateEvents, Some(proxy)) => {
                    proxy.inject(Message::delay_reply(LATE).command("getMore").times(3));
                    sleep(LATE * 4).await;
                    proxy.clear_faults();
                }
                (Kind::LateReplies, Some(proxy)) => {
                    proxy.set_delay(Direction::ToClient, LATE);
                    sleep(LATE).await;
                    proxy.set_delay(Direction::ToClient, Duration::ZERO);
                }
                _ => {}
            }
            faults.push(Fault {
                kind,
                place: self.title,
                begun,
                ended: monotonic_now(),
            });
            if matches!(kind, Kind::Kill | Kind::Leave) {
                return kind;
            }
        }
    }
}
