use std::time::Duration;

use fastrand::Rng;

use super::between;

/// What can go wrong in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Nothing.
    Calm,
    /// Requests and replies are late or lost.
    Network,
    /// Processes stop and go on.
    Pauses,
    /// Processes crash or shut down, and others start in their place.
    Crashes,
    /// All of these, and the server's clock drifts forth and jumps back.
    Everything,
    /// All of these, and the server's clock jumps ahead by more than a lease.
    Leaps,
}

/// One simulation; all of it follows from the scenario, the seed and the size of the fleet.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) processes: usize,
    pub(super) names: usize,
    /// Callers in each process.
    pub(super) workers: usize,
    /// How long new calls begin and things go wrong.
    pub(super) lasts: Duration,
    /// Requests in a thousand to which something happens.
    pub(super) faults: u32,
    /// Processes in a thousand that get the releases pushed.
    pub(super) wake_ups: u32,
    /// The longest hold that is not one of the rare long ones.
    pub(super) usual_hold: u64,
    /// The longest rest of a worker between two calls.
    pub(super) rest: u64,
}

impl Plan {
    /// A few processes with many callers each, or the other way round.
    pub(super) fn small(scenario: Scenario, seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let processes = rng.usize(2..=8);
        Self {
            scenario,
            seed,
            processes,
            names: rng.usize(1..=4),
            workers: rng.usize(1..=32 / processes),
            lasts: between(rng, 10_000, 30_000),
            faults: scenario.faults(rng),
            wake_ups: 500,
            usual_hold: *rng.choice(&[2, 5, 20, 200, 1000, 4000]).unwrap_or(&20),
            rest: *rng.choice(&[0, 5, 300]).unwrap_or(&5),
        }
    }

    pub(super) fn large(scenario: Scenario, seed: u64) -> Self {
        Self {
            processes: 1000,
            names: 100,
            workers: 2,
            lasts: Duration::from_secs(15),
            wake_ups: 100,
            usual_hold: 500,
            rest: 1000,
            ..Self::small(scenario, seed)
        }
    }

    /// A stream of random numbers of its own for each part of the simulation, so that one does not disturb another.
    pub(super) fn rng(&self, part: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part))
    }

    /// How long the last waiters may take when nothing goes wrong any more: leases and late requests end, and
    /// then everybody who waits for a name has his turn.
    pub(super) fn patience(&self) -> Duration {
        let crowd = u32::try_from(self.processes * self.workers).unwrap_or(u32::MAX);
        Duration::from_secs(60) + Duration::from_secs(7) * crowd.min(100)
    }
}

impl Scenario {
    fn faults(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Calm => 0,
            _ => *rng.choice(&[5, 50, 300]).unwrap_or(&50),
        }
    }

    pub(super) fn has_pauses(self) -> bool {
        matches!(self, Self::Pauses | Self::Everything | Self::Leaps)
    }

    pub(super) fn has_crashes(self) -> bool {
        matches!(self, Self::Crashes | Self::Everything | Self::Leaps)
    }

    /// Whether leases last as long at the server as their holders count on them.
    pub(super) fn has_sound_clock(self) -> bool {
        self != Self::Leaps
    }

    /// The next jump of the server's clock in milliseconds, one each second.
    pub(super) fn jump(self, rng: &mut Rng) -> i64 {
        match (self, rng.u8(0..4)) {
            // Back by anything: leases last longer then.
            (Self::Everything | Self::Leaps, 0) => rng.i64(-2000..=0),
            // Forth by less than the part of a lease that holders leave out.
            (Self::Everything, _) => rng.i64(0..=5),
            (Self::Leaps, 1) => rng.i64(0..=8000),
            _ => 0,
        }
    }
}
