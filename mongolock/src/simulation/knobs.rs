use std::time::Duration;

use fastrand::Rng;

use super::between;
use super::overload::SHORT;
use super::plan::Scenario;

/// The difference between the clocks of two members.
pub(super) const APART: Duration = Duration::from_secs(3);

/// The faults inside the server and the driver, and other clients of the documents. By default there are none.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools)]
pub(super) struct Knobs {
    /// The number of requests in a thousand that the network delays or loses.
    pub(super) network: u32,
    /// The number of commands in a thousand that take effect some time after the server has read its clock for them.
    pub(super) late_effects: u32,
    /// Whether foreign transactions block documents for seconds.
    pub(super) blocked_documents: bool,
    /// The number of commands on several documents in a thousand that stop with an error before their last document.
    pub(super) partial_batches: u32,
    /// The number of commands in a thousand that the driver repeats, so that a first copy arrives after the second one.
    pub(super) repetitions: u32,
    /// The number of requests in a thousand that get neither a reply nor an error.
    pub(super) silent_connections: u32,
    /// The number of requests in a thousand that end with one of the driver's real errors.
    pub(super) typed_errors: u32,
    /// Whether operators release locks by force and delete documents.
    pub(super) operators: bool,
    /// The time after the end of a lease at which the TTL monitor deletes the document.
    pub(super) retention: Option<Duration>,
    /// The number of processes of DistributedLock.MongoDB that acquire the same locks.
    pub(super) neighbours: usize,
    /// Whether leases last so long that only a release can end them within the simulation.
    pub(super) has_long_leases: bool,
    /// Whether the server does not reply for up to minutes.
    pub(super) outages: bool,
    /// Whether the primary changes; the clocks of the two members differ by [`APART`].
    pub(super) failovers: bool,
    /// The smallest and the greatest takeover margin of the processes.
    pub(super) takeover_margins: (Duration, Duration),
    /// The number of commands on the documents of waiters in a thousand that are late, lost or refused, or read a wrong
    /// line.
    pub(super) line_faults: u32,
    /// The longest time in milliseconds that an event of the change stream takes.
    pub(super) event_delay: u64,
    /// The number of events in a thousand that are lost.
    pub(super) lost_events: u32,
    /// The number of documents of expired waiters in front of each line at the beginning.
    pub(super) expired_waiters: usize,
    /// The number of connections in the pool of each process's client; 0 for any number.
    pub(super) connections: usize,
    /// The time in milliseconds that the server needs for each command.
    pub(super) slow_commands: u64,
    /// Whether the server's clock is an hour ahead for a while.
    pub(super) clock_an_hour_ahead: bool,
    /// The longest time for which the server rejects all commands for overload; it rejects parts of them for longer. `None`
    /// without an overload.
    pub(super) overload: Option<Duration>,
}

impl Knobs {
    pub(super) fn of(scenario: Scenario, rng: &mut Rng) -> Self {
        Self {
            // The driver's default.
            connections: 10,
            ..Self::faults(scenario, rng)
        }
    }

    #[expect(clippy::too_many_lines, reason = "one table: a row for each scenario")]
    fn faults(scenario: Scenario, rng: &mut Rng) -> Self {
        let network = *rng.choice(&[5, 50, 300]).unwrap_or(&50);
        let often = *rng.choice(&[20, 100, 300]).unwrap_or(&100);
        let none = Self::default();
        // See `deletes_documents`.
        let deletes = rng.bool();
        match scenario {
            Scenario::Calm => none,
            Scenario::Turns | Scenario::SetTurns => Self {
                event_delay: 4,
                ..none
            },
            Scenario::Network | Scenario::Pauses | Scenario::Crashes | Scenario::Leaps => {
                Self { network, ..none }
            }
            Scenario::LateCommands => Self {
                late_effects: often,
                ..none
            },
            Scenario::BlockedDocuments => Self {
                blocked_documents: true,
                ..none
            },
            Scenario::PartialBatches => Self {
                partial_batches: often,
                has_long_leases: rng.bool(),
                ..none
            },
            Scenario::Repetitions => Self {
                repetitions: often,
                has_long_leases: true,
                ..none
            },
            Scenario::LongLeases => Self {
                network,
                has_long_leases: true,
                ..none
            },
            Scenario::SilentConnections => Self {
                silent_connections: *rng.choice(&[2, 10, 50]).unwrap_or(&10),
                has_long_leases: rng.bool(),
                ..none
            },
            Scenario::TypedErrors => Self {
                typed_errors: often,
                has_long_leases: rng.bool(),
                ..none
            },
            Scenario::Operators => Self {
                operators: true,
                late_effects: if rng.bool() { often } else { 0 },
                ..none
            },
            Scenario::Sweeps => Self {
                retention: Some(Duration::from_millis(rng.u64(0..=2000))),
                ..none
            },
            Scenario::Neighbours => Self {
                neighbours: rng.usize(1..=3),
                ..none
            },
            Scenario::Outages => Self {
                outages: true,
                ..none
            },
            Scenario::Failovers => Self {
                failovers: true,
                ..none
            },
            Scenario::Margins => {
                let least = APART + between(rng, 0, 1000);
                Self {
                    failovers: true,
                    takeover_margins: (least, least + between(rng, 0, 5000)),
                    ..none
                }
            }
            Scenario::Lines => Self {
                line_faults: *rng.choice(&[50, 300, 1000]).unwrap_or(&300),
                network: rng.u32(0..50),
                ..none
            },
            Scenario::ManyLeases => Self {
                slow_commands: *rng.choice(&[50, 80]).unwrap_or(&50),
                ..none
            },
            // An operator takes locks away whose releases go together.
            Scenario::Gathered if rng.u8(0..3) == 0 => Self {
                slow_commands: 10,
                operators: true,
                ..none
            },
            Scenario::Gathered => Self {
                typed_errors: *rng.choice(&[0, 100, 300]).unwrap_or(&0),
                slow_commands: *rng.choice(&[3, 10, 30]).unwrap_or(&10),
                has_long_leases: rng.bool(),
                failovers: false,
                ..Self::mixed(rng)
            },
            Scenario::Steps => Self {
                clock_an_hour_ahead: true,
                ..none
            },
            Scenario::Overload => Self {
                overload: Some(if rng.u8(0..3) == 0 {
                    Duration::from_secs(20)
                } else {
                    SHORT
                }),
                ..none
            },
            Scenario::Sets if rng.u8(0..3) == 0 => Self {
                operators: true,
                late_effects: if rng.bool() { often } else { 0 },
                ..none
            },
            // An operator takes locks away whose marks are requested. Late effects keep documents from being deleted.
            Scenario::Marks if rng.u8(0..3) == 0 => Self {
                operators: true,
                network: 300,
                late_effects: 50,
                ..none
            },
            Scenario::Sets | Scenario::Permits | Scenario::Marks | Scenario::Detached => Self::mixed(rng),
            Scenario::Everything => Self {
                network,
                late_effects: if deletes { 0 } else { rng.u32(0..50) },
                blocked_documents: !deletes && rng.bool(),
                partial_batches: rng.u32(0..50),
                repetitions: rng.u32(0..50),
                silent_connections: rng.u32(0..10),
                typed_errors: rng.u32(0..50),
                line_faults: rng.u32(0..300),
                operators: deletes || rng.bool(),
                retention: deletes.then_some(Duration::from_secs(2)),
                neighbours: usize::from(deletes && rng.bool()),
                ..none
            },
        }
    }

    /// Most of the faults, each of them in some of the seeds.
    fn mixed(rng: &mut Rng) -> Self {
        let mut often = |rates: &[u32]| *rng.choice(rates).unwrap_or(&0);
        Self {
            network: often(&[0, 50, 300, 300]),
            late_effects: often(&[0, 0, 50, 200]),
            partial_batches: often(&[0, 100]),
            repetitions: often(&[0, 0, 50]),
            silent_connections: often(&[0, 0, 10]),
            typed_errors: often(&[0, 0, 50]),
            line_faults: often(&[0, 300]),
            blocked_documents: often(&[0, 0, 1]) > 0,
            failovers: often(&[0, 0, 1]) > 0,
            has_long_leases: often(&[0, 0, 1]) > 0,
            ..Self::default()
        }
    }

    /// Whether documents are deleted. That must not happen while an acquire request waits in the server: it would get a
    /// token by the time at which it began, which may be smaller than that of the deleted document.
    pub(super) fn deletes_documents(&self) -> bool {
        let deletes = self.operators || self.retention.is_some() || self.neighbours > 0;
        deletes && self.late_effects == 0 && !self.blocked_documents
    }
}
