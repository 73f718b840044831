//! The faults of the soak, in an order that follows from a seed.
//!
//! Some of them last: a process is stopped while other faults happen. After a row of faults there is a quiet time.

use std::time::Duration;

use fastrand::Rng;

use mongolock_tests::{Direction, Fault as Message, Proxy};
use rustix::process::Signal;
use tokio::time::sleep;

use super::EXPIRY;
use super::fleet::Fleet;
use crate::clock;
use crate::setting::Setting;

/// The number of faults between two quiet times.
const ROW: usize = 12;
/// The length of a quiet time.
pub(crate) const QUIET: Duration = Duration::from_secs(16);
/// How late messages are.
const LATE: Duration = Duration::from_secs(3);
/// How long the fault waits for a process to hold the lock.
const AIM: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    /// The process that holds the lock is killed, and another one takes its place.
    KillHolder,
    /// A process that waits is killed, and another one takes its place.
    KillWaiter,
    /// A process is stopped for 0.1 to 3 s.
    Stop,
    /// All connections of one process are cut.
    Cut,
    /// The events of one process arrive 3 s late.
    LateEvents,
    /// All replies to one process arrive 3 s late.
    LateReplies,
    /// Clients of DistributedLock.MongoDB ask for the lock as well.
    Foreign,
    /// The primary steps down.
    StepDown,
}

impl Kind {
    pub(crate) const ALL: [(Self, &'static str, usize); 8] = [
        (Self::KillHolder, "holder killed", 3),
        (Self::KillWaiter, "waiter killed", 2),
        (Self::Stop, "process stopped", 5),
        (Self::Cut, "connections cut", 2),
        (Self::LateEvents, "events 3 s late", 1),
        (Self::LateReplies, "replies 3 s late", 1),
        (Self::Foreign, ".NET among them", 1),
        (Self::StepDown, "primary stepped down", 2),
    ];

    pub(crate) fn title(self) -> &'static str {
        let all = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        all.map_or("", |(_, title, _)| title)
    }
}

/// A fault that has happened.
#[derive(Clone)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The place of the process that it has hit; the foreign clients have a place as well.
    pub(crate) place: Option<usize>,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

impl Fault {
    /// Until when the fault explains that the lock is free. A process that is killed or stopped can have acquired the lock
    /// just then, and so can one that does not get its replies: the lock is free when that lease has ended.
    pub(crate) fn explains_until(&self) -> Duration {
        match self.kind {
            Kind::KillHolder | Kind::KillWaiter | Kind::Cut => self.begun + EXPIRY,
            Kind::Stop => self.ended.min(self.begun + EXPIRY),
            Kind::LateReplies => self.ended + EXPIRY,
            // The driver looks for the new primary every 500 ms.
            Kind::StepDown => self.ended + Duration::from_secs(1),
            Kind::LateEvents | Kind::Foreign => self.begun,
        }
    }

    /// Whether the fault explains only a free time that has begun before it or with it: if somebody else holds the lock
    /// afterwards, the process that was hit did not.
    pub(crate) fn explains_once(&self) -> bool {
        matches!(
            self.kind,
            Kind::KillHolder | Kind::KillWaiter | Kind::Cut | Kind::Stop
        )
    }
}

/// The places that faults of some kinds hit.
#[derive(Clone, Copy)]
pub(crate) struct Targets {
    /// The process behind the proxy.
    pub(crate) far: usize,
    pub(crate) foreign: usize,
}

/// Whom and what the faults hit.
pub(crate) struct Faults<'a, 'b> {
    pub(crate) setting: &'a Setting,
    pub(crate) fleet: &'b mut Fleet<'a>,
    pub(crate) proxy: Option<&'a Proxy>,
    pub(crate) targets: Targets,
    random: Rng,
    /// The kinds that come next, drawn without putting back.
    kinds: Vec<Kind>,
    /// The faults that last, by their number, with the times at which they end.
    lasting: Vec<(Duration, usize)>,
    happened: Vec<Fault>,
}

impl<'a, 'b> Faults<'a, 'b> {
    pub(crate) fn new(
        setting: &'a Setting,
        fleet: &'b mut Fleet<'a>,
        proxy: Option<&'a Proxy>,
        targets: Targets,
        seed: u64,
    ) -> Self {
        Self {
            setting,
            fleet,
            proxy,
            targets,
            random: Rng::with_seed(seed),
            kinds: Vec::new(),
            lasting: Vec::new(),
            happened: Vec::new(),
        }
    }

    /// Lets faults happen for this time; all of them have ended afterwards.
    pub(crate) async fn happen(mut self, time: Duration) -> anyhow::Result<Vec<Fault>> {
        let end = clock::now() + time;
        let mut row = 0;
        while clock::now() < end {
            let pause = Duration::from_millis(self.random.u64(300..2_500));
            self.pass((clock::now() + pause).min(end)).await?;
            self.next().await?;
            row += 1;
            if row == ROW {
                row = 0;
                self.end_all().await?;
                self.pass((clock::now() + QUIET).min(end)).await?;
            }
        }
        self.end_all().await?;
        Ok(self.happened)
    }

    /// Waits until this time, and ends the faults that end before.
    async fn pass(&mut self, until: Duration) -> anyhow::Result<()> {
        while let Some(index) = self
            .first_to_end()
            .filter(|index| self.lasting[*index].0 <= until)
        {
            let (at, number) = self.lasting.swap_remove(index);
            sleep(at.saturating_sub(clock::now())).await;
            self.end(number).await?;
        }
        sleep(until.saturating_sub(clock::now())).await;
        Ok(())
    }

    async fn end_all(&mut self) -> anyhow::Result<()> {
        let last = self.lasting.iter().map(|(at, _)| *at).max();
        self.pass(last.unwrap_or_default()).await
    }

    fn first_to_end(&self) -> Option<usize> {
        (0..self.lasting.len()).min_by_key(|index| self.lasting[*index].0)
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        let kind = self.draw();
        match kind {
            Kind::KillHolder | Kind::KillWaiter => self.kill(kind).await,
            Kind::Stop => self.stop().await,
            Kind::Cut | Kind::LateEvents | Kind::LateReplies => {
                self.disturb(kind);
                Ok(())
            }
            Kind::Foreign => self.let_foreign_in().await,
            Kind::StepDown => self.step_down().await,
        }
    }

    fn draw(&mut self) -> Kind {
        if self.kinds.is_empty() {
            let all = Kind::ALL.into_iter();
            self.kinds
                .extend(all.flat_map(|(kind, _, times)| std::iter::repeat_n(kind, times)));
            self.random.shuffle(&mut self.kinds);
        }
        self.kinds.pop().unwrap_or(Kind::Stop)
    }

    /// A random process with the defaults of the soak that no fault has hit at present.
    fn victim(&mut self) -> Option<usize> {
        let is_hit = |place: &usize| {
            let mut lasting = self.lasting.iter();
            lasting.any(|(_, number)| self.happened[*number].place == Some(*place))
        };
        let mut running = self.fleet.running();
        running.retain(|place| *place != self.targets.foreign && !is_hit(place));
        self.random.choice(running)
    }

    async fn kill(&mut self, kind: Kind) -> anyhow::Result<()> {
        let Some(mut place) = self.victim() else {
            return Ok(());
        };
        if kind == Kind::KillHolder {
            self.fleet.until_holds(place, AIM).await?;
        } else {
            for _ in 0..10 {
                if Some(place) != self.fleet.holder() {
                    break;
                }
                place = self.victim().unwrap_or(place);
            }
        }
        let begun = clock::now();
        self.fleet.kill(place).await?;
        self.note(kind, Some(place), begun);
        self.fleet.start(place).await
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(place) = self.victim() else {
            return Ok(());
        };
        if self.random.bool() {
            self.fleet.until_holds(place, AIM).await?;
        }
        let begun = clock::now();
        self.fleet.signal(place, Signal::STOP)?;
        let time = Duration::from_millis(self.random.u64(100..3_000));
        self.lasts(Kind::Stop, Some(place), begun, time);
        Ok(())
    }

    fn disturb(&mut self, kind: Kind) {
        let far = self.targets.far;
        let delays = |kind| matches!(kind, Kind::LateEvents | Kind::LateReplies);
        let is_delayed = self
            .lasting
            .iter()
            .any(|(_, number)| delays(self.happened[*number].kind));
        let Some(proxy) = self.proxy.filter(|_| !(delays(kind) && is_delayed)) else {
            return;
        };
        let begun = clock::now();
        match kind {
            Kind::Cut => {
                proxy.reset_connections();
                self.note(kind, Some(far), begun);
            }
            Kind::LateEvents => {
                proxy.inject(Message::delay_reply(LATE).command("getMore").times(3));
                self.lasts(kind, Some(far), begun, LATE * 4);
            }
            _ => {
                proxy.set_delay(Direction::ToClient, LATE);
                self.lasts(kind, Some(far), begun, LATE);
            }
        }
    }

    async fn let_foreign_in(&mut self) -> anyhow::Result<()> {
        let place = self.targets.foreign;
        if self.fleet.running().contains(&place) {
            return Ok(());
        }
        let begun = clock::now();
        self.fleet.start(place).await?;
        let time = Duration::from_millis(self.random.u64(4_000..10_000));
        self.lasts(Kind::Foreign, Some(place), begun, time);
        Ok(())
    }

    async fn step_down(&mut self) -> anyhow::Result<()> {
        let Some(server) = self.setting.own_server() else {
            return Ok(());
        };
        let begun = clock::now();
        server.step_down().await?;
        self.note(Kind::StepDown, None, begun);
        Ok(())
    }

    async fn end(&mut self, number: usize) -> anyhow::Result<()> {
        let Fault { kind, place, .. } = self.happened[number];
        match (kind, place, self.proxy) {
            (Kind::Stop, Some(place), _) => self.fleet.signal(place, Signal::CONT)?,
            (Kind::Foreign, Some(place), _) => self.fleet.end(place).await?,
            (Kind::LateEvents, _, Some(proxy)) => proxy.clear_faults(),
            (Kind::LateReplies, _, Some(proxy)) => proxy.set_delay(Direction::ToClient, Duration::ZERO),
            _ => {}
        }
        self.happened[number].ended = clock::now();
        Ok(())
    }

    fn lasts(&mut self, kind: Kind, place: Option<usize>, begun: Duration, time: Duration) {
        self.lasting.push((begun + time, self.happened.len()));
        self.note(kind, place, begun);
    }

    fn note(&mut self, kind: Kind, place: Option<usize>, begun: Duration) {
        self.happened.push(Fault {
            kind,
            place,
            begun,
            ended: clock::now(),
        });
    }
}
