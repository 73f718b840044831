use std::time::Duration;

use fastrand::Rng;

use super::between;
use super::knobs::Knobs;
use crate::permit_id;

/// What can go wrong in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// No faults.
    Calm,
    /// Requests and replies are late or lost.
    Network,
    /// Processes pause and resume.
    Pauses,
    /// Processes crash or shut down, and others start in their place.
    Crashes,
    /// All of these and most of the other knobs; the server's clock drifts ahead and jumps back.
    Everything,
    /// Network, pauses and crashes, and the server's clock jumps ahead by more than a lease.
    Leaps,
    /// Commands take effect late, and processes pause.
    LateCommands,
    BlockedDocuments,
    PartialBatches,
    /// The driver repeats commands.
    Repetitions,
    /// Requests and replies are late or lost, and no lease expires.
    LongLeases,
    SilentConnections,
    TypedErrors,
    Operators,
    /// The TTL monitor deletes documents early.
    Sweeps,
    /// Processes of DistributedLock.MongoDB take part.
    Neighbours,
    Outages,
    Failovers,
    /// Failovers and crashes; the processes have takeover margins that cover the difference between the clocks.
    Margins,
    /// The documents of waiters are late, lost, refused or wrong.
    Lines,
    /// Processes ask for one lock again and again, and some crash. Those that wait have their turns.
    Turns,
    /// Processes ask for sets again and again, and some for single locks: all that wait have their turns.
    SetTurns,
    /// The server's clock is an hour ahead for a while.
    Steps,
    /// Each process holds a hundred locks of different expiries and more, and the server is slow.
    ManyLeases,
    /// Many calls at once in each process, whose requests become common commands, with most of the faults.
    Gathered,
    /// The server rejects commands for overload. Each process has many calls, for locks, sets or works.
    Overload,
    /// Calls for several locks, with most of the faults or with operators.
    Sets,
    /// Calls for the permits of semaphores, with most of the faults.
    Permits,
    /// Calls whose work may succeed only once, with most of the faults.
    Marks,
    /// Leases that are detached, resumed, extended and released by whoever has the handle, with most of the faults.
    Detached,
}

/// What the calls of a plan are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Locks,
    /// Sets, locks or permits.
    Sets,
    Works,
    /// Locks, sets and permits that are detached, and their handles.
    Handles,
}

/// One simulation; all of it follows from the scenario, the seed and the size of the fleet.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) processes: usize,
    pub(super) names: usize,
    /// The number of permits of each semaphore.
    pub(super) permits: u32,
    /// The number of callers in each process.
    pub(super) workers: usize,
    /// The time in which new calls begin and faults happen.
    pub(super) lasts: Duration,
    pub(super) knobs: Knobs,
    /// The number of processes in a thousand whose waiters are woken by a change stream.
    pub(super) wake_ups: u32,
    /// The number of polls in a thousand before which other tasks of the process run: half of the plans have some.
    pub(super) late_polls: u32,
    /// The longest usual hold in milliseconds; a few holds are longer.
    pub(super) usual_hold: u64,
    /// The longest pause of a worker between two calls in milliseconds.
    pub(super) rest: u64,
}

impl Plan {
    /// A plan of a few processes with many callers each, or more processes with fewer callers.
    pub(super) fn small(scenario: Scenario, seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let processes = rng.usize(2..=8);
        let plan = Self {
            scenario,
            seed,
            processes,
            names: rng.usize(1..=4),
            workers: rng.usize(1..=32 / processes),
            lasts: between(rng, 10_000, 30_000),
            knobs: Knobs::of(scenario, rng),
            permits: 0,
            wake_ups: 500,
            late_polls: if seed % 4 < 2 { 0 } else { 300 },
            usual_hold: *rng.choice(&[2, 5, 20, 200, 1000, 4000]).unwrap_or(&20),
            rest: *rng.choice(&[0, 5, 300]).unwrap_or(&5),
        };
        plan.adapted(rng)
    }

    /// Adapts the plan to knobs that need more time or more locks to have an effect.
    fn adapted(self, rng: &mut Rng) -> Self {
        if self.knobs.outages {
            // Minutes long, with few callers.
            return Self {
                processes: rng.usize(1..=2),
                names: rng.usize(1..=2),
                workers: rng.usize(2..=6),
                lasts: between(rng, 150_000, 300_000),
                rest: 3000,
                ..self
            };
        }
        if self.scenario == Scenario::Turns {
            return self.in_turns(rng);
        }
        if self.scenario == Scenario::ManyLeases {
            return Self {
                processes: 1,
                names: 1000,
                workers: rng.usize(100..=150),
                lasts: between(rng, 15_000, 25_000),
                usual_hold: 10_000,
                ..self
            };
        }
        if self.scenario == Scenario::Gathered {
            return Self {
                processes: rng.usize(1..=3),
                names: rng.usize(20..=60),
                workers: rng.usize(16..=40),
                lasts: between(rng, 5000, 10_000),
                usual_hold: *rng.choice(&[2, 20, 200]).unwrap_or(&20),
                rest: *rng.choice(&[0, 20]).unwrap_or(&0),
                ..self
            };
        }
        if self.scenario == Scenario::SetTurns {
            return self.in_set_turns(rng);
        }
        if self.scenario == Scenario::Overload {
            return self.overloaded(rng);
        }
        if self.scenario.has_several_kinds() {
            return Self {
                names: rng.usize(2..=5),
                permits: rng.u32(1..=4),
                workers: self.workers.min(6),
                // The holder of a set that an operator has ended in part must hold it until it has to notice that.
                usual_hold: if self.tells_of_forced_ends() {
                    6000
                } else {
                    *rng.choice(&[2, 20, 200, 1500]).unwrap_or(&20)
                },
                ..self
            };
        }
        if self.holds_many() {
            return Self {
                processes: rng.usize(2..=4),
                names: rng.usize(4..=12),
                workers: 6,
                usual_hold: 6000,
                ..self
            };
        }
        self
    }

    /// A plan with one lock that many want: each seed shows another side of the order.
    fn in_turns(self, rng: &mut Rng) -> Self {
        let mut plan = Self {
            processes: rng.usize(2..=6),
            names: 1,
            workers: rng.usize(1..=4),
            lasts: between(rng, 4000, 8000),
            wake_ups: 1000,
            usual_hold: 5,
            rest: 0,
            ..self
        };
        match plan.seed % 6 {
            // Programs that stand in no line look at random moments beside a process that asks again at once.
            0 => (plan.processes, plan.workers, plan.knobs.neighbours) = (1, 4, 2),
            1 => plan.knobs.expired_waiters = 3,
            // No other process ends the wait behind expired waiters: those that have released the lock rest.
            2 => (plan.knobs.expired_waiters, plan.rest) = (2, 300),
            3 => {
                plan.knobs.expired_waiters = 2;
                (plan.processes, plan.workers, plan.wake_ups) = (2, 1, 0);
                (plan.usual_hold, plan.rest) = (200, 2000);
                plan.lasts *= 4;
            }
            4 => plan.knobs.lost_events = 20,
            _ => {}
        }
        plan
    }

    /// A plan with sets that many want: each seed shows another side of their order, see [`Self::set_in_turn`].
    fn in_set_turns(self, rng: &mut Rng) -> Self {
        let mut plan = Self {
            processes: rng.usize(3..=5),
            names: 3,
            permits: 1,
            workers: rng.usize(1..=4),
            lasts: between(rng, 8000, 12_000),
            wake_ups: 1000,
            usual_hold: 5,
            rest: 0,
            ..self
        };
        match plan.seed % 6 {
            2 => plan.knobs.expired_waiters = 4,
            4 => plan.knobs.lost_events = 20,
            5 => plan.wake_ups = 0,
            _ => {}
        }
        plan
    }

    /// A plan with many calls for locks of which most are free, and holds that last longer than leases; some seeds have sets or
    /// works in place of single locks.
    fn overloaded(self, rng: &mut Rng) -> Self {
        let plan = Self {
            processes: rng.usize(1..=2),
            names: rng.usize(30..=60),
            workers: rng.usize(20..=40),
            lasts: between(rng, 15_000, 30_000),
            usual_hold: 10_000,
            rest: *rng.choice(&[0, 300]).unwrap_or(&0),
            ..self
        };
        match plan.kind_of_calls() {
            Kind::Locks | Kind::Handles => plan,
            Kind::Sets | Kind::Works => Self {
                names: rng.usize(4..=8),
                workers: 6,
                usual_hold: *rng.choice(&[20, 1500, 10_000]).unwrap_or(&20),
                ..plan
            },
        }
    }

    /// What the calls are for.
    pub(super) fn kind_of_calls(&self) -> Kind {
        match (self.scenario, self.seed % 6) {
            (Scenario::Sets | Scenario::SetTurns | Scenario::Permits, _) | (Scenario::Overload, 4) => {
                Kind::Sets
            }
            (Scenario::Marks, _) | (Scenario::Overload, 5) => Kind::Works,
            (Scenario::Detached, _) => Kind::Handles,
            _ => Kind::Locks,
        }
    }

    /// The names that a call of this process wants in [`Scenario::SetTurns`], in any order: two of a chain of three, one name
    /// of a set that others want, or a set that all want.
    pub(super) fn set_in_turn(&self, process: usize, rng: &mut Rng) -> Vec<usize> {
        let mut names = match self.seed % 6 {
            1 => vec![process % 3, (process + 1) % 3],
            3 if process % 2 == 1 => vec![usize::from(self.seed / 6 % 2 == 1)],
            _ => vec![0, 1],
        };
        rng.shuffle(&mut names);
        names
    }

    pub(super) fn large(scenario: Scenario, processes: usize, seed: u64) -> Self {
        Self {
            processes,
            names: 100,
            workers: 1,
            lasts: Duration::from_secs(5),
            wake_ups: 100,
            usual_hold: 500,
            rest: 1000,
            ..Self::small(scenario, seed)
        }
    }

    /// The time that is added to the expiry of all locks.
    pub(super) fn least_expiry(&self) -> Duration {
        if self.knobs.has_long_leases {
            Duration::from_secs(600)
        } else if self.scenario == Scenario::Failovers {
            Duration::from_secs(15)
        } else if self.scenario == Scenario::Overload {
            // So many rejected renewals that one of them succeeds.
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn has_crashes(&self) -> bool {
        self.scenario.has_crashes() && !self.knobs.has_long_leases && self.knobs.expired_waiters == 0
    }

    pub(super) fn has_pauses(&self) -> bool {
        // A process that is paused learns nothing.
        self.scenario.has_pauses() && !self.tells_of_forced_ends()
    }

    /// Whether every holder learns at its next renewal that an operator has ended its lease.
    pub(super) fn tells_of_forced_ends(&self) -> bool {
        self.scenario == Scenario::Operators || self.scenario == Scenario::Sets && self.knobs.operators
    }

    /// A random document.
    pub(super) fn document(&self, rng: &mut Rng) -> String {
        let name = rng.usize(0..self.names).to_string();
        if self.scenario == Scenario::Permits {
            return permit_id::new(&name, rng.u32(0..self.permits)).to_string();
        }
        name
    }

    /// Whether each process holds several locks of one expiry at a time, which it renews together.
    pub(super) fn holds_many(&self) -> bool {
        matches!(
            self.scenario,
            Scenario::BlockedDocuments | Scenario::PartialBatches
        )
    }

    /// Whether a minimum hold lasts as long as it shall: no margin covers the end of a lease that was released.
    pub(super) fn keeps_min_holds(&self) -> bool {
        self.scenario.has_sound_clock() && !self.knobs.failovers
    }

    /// Whether a holder keeps its lock until it releases it.
    pub(super) fn keeps_holds(&self) -> bool {
        use Scenario::{BlockedDocuments, Calm, Failovers, ManyLeases, Neighbours, Overload, Sweeps};
        matches!(
            self.scenario,
            BlockedDocuments | Calm | Failovers | ManyLeases | Neighbours | Overload | Sweeps
        )
    }

    /// The next jump of the server's clock in milliseconds, one each second.
    pub(super) fn jump(&self, rng: &mut Rng) -> i64 {
        use Scenario::{Everything, Leaps};
        match (self.scenario, rng.u8(0..4)) {
            // Tokens can fall if a document is deleted and the clock goes back.
            (Everything, 0) if self.knobs.deletes_documents() => 0,
            // A jump back can be of any length, because leases last longer after it. Only an acquire request that has read
            // the clock before and takes effect later can end one early, which the ledger allows.
            (Everything | Leaps, 0) => rng.i64(-2000..=0),
            // A jump ahead is shorter than the part of a lease that holders do not rely on.
            (Everything, _) => rng.i64(0..=5),
            (Leaps, 1) => rng.i64(0..=8000),
            _ => 0,
        }
    }

    /// A random number generator of its own for each part of the simulation, so that one part does not disturb another.
    pub(super) fn rng(&self, part: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part))
    }

    /// The time in which the last waiters end when there are no more faults: leases and late requests end, and then all
    /// waiters for a name acquire the lock in turn.
    pub(super) fn patience(&self) -> Duration {
        let crowd = u32::try_from(self.processes * self.workers).unwrap_or(u32::MAX);
        Duration::from_secs(200) + Duration::from_secs(7) * crowd.min(100)
    }
}

impl Scenario {
    pub(super) const ALL: [Self; 30] = [
        Self::Calm,
        Self::Network,
        Self::Pauses,
        Self::Crashes,
        Self::Everything,
        Self::Leaps,
        Self::LateCommands,
        Self::BlockedDocuments,
        Self::PartialBatches,
        Self::Repetitions,
        Self::LongLeases,
        Self::SilentConnections,
        Self::TypedErrors,
        Self::Operators,
        Self::Sweeps,
        Self::Neighbours,
        Self::Outages,
        Self::Failovers,
        Self::Margins,
        Self::Lines,
        Self::Turns,
        Self::SetTurns,
        Self::Steps,
        Self::ManyLeases,
        Self::Gathered,
        Self::Overload,
        Self::Sets,
        Self::Permits,
        Self::Marks,
        Self::Detached,
    ];

    pub(super) fn has_pauses(self) -> bool {
        matches!(
            self,
            Self::Pauses
                | Self::Everything
                | Self::Leaps
                | Self::LateCommands
                | Self::Sets
                | Self::Permits
                | Self::Marks
                | Self::Detached
        )
    }

    pub(super) fn has_crashes(self) -> bool {
        matches!(
            self,
            Self::Crashes
                | Self::Everything
                | Self::Leaps
                | Self::Margins
                | Self::Turns
                | Self::Sets
                | Self::Permits
                | Self::Marks
                | Self::Detached
        )
    }

    /// Whether callers ask again and again and give up never, so that each process must have its turns.
    pub(super) fn has_turns(self) -> bool {
        matches!(self, Self::Turns | Self::SetTurns)
    }

    /// Whether the calls are for several locks, for permits, for work that may succeed only once, or for handles.
    pub(super) fn has_several_kinds(self) -> bool {
        matches!(self, Self::Sets | Self::Permits | Self::Marks | Self::Detached)
    }

    /// Whether a few seeds show too little: a set, a permit or a mark meets only a part of the faults of a seed, each of six seeds
    /// has another kind of turns or of overload, and mutations of the others were found by the fifth seed or the sixth.
    pub(super) fn has_more_to_see(self) -> bool {
        self.has_several_kinds()
            || matches!(self, Self::Turns | Self::SetTurns | Self::Overload)
            || matches!(
                self,
                Self::Network | Self::Repetitions | Self::LongLeases | Self::Sweeps
            )
    }

    /// Whether locks stay taken at the server for as long as their holders rely on them.
    pub(super) fn has_sound_clock(self) -> bool {
        !matches!(self, Self::Leaps | Self::Failovers | Self::Steps)
    }
}
