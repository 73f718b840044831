//! The bounds of the cases.

use std::time::Duration;

use crate::setup::{Faults, Setup};

pub(super) const NO_FAULTS: Faults = Faults {
    lost: 0,
    unclear: 0,
    blocked: 0,
    repeated: 0,
    slow: 0,
    cancelled: 0,
    crashes: 0,
    stopped_streams: 0,
    holds: 1,
};

/// Two processes with two callers each, which call once, without a stream and without faults. A waiter polls, with the longest
/// pause of the default options.
pub(super) const POLLING: Setup = Setup {
    processes: 2,
    callers: 2,
    stream: false,
    fair: false,
    expiry: Duration::from_secs(600),
    deadlines: false,
    tries: false,
    unawaited: false,
    own_events: false,
    again: false,
    faults: NO_FAULTS,
    most_free: Duration::from_millis(800),
    most_given_up: Duration::from_secs(1),
    mutant: None,
};

/// The same with a change stream, and in line: a waiter leaves a free lock to others for 50 ms at most.
pub(super) const IN_LINE: Setup = Setup {
    stream: true,
    fair: true,
    own_events: true,
    most_free: Duration::from_millis(50),
    ..POLLING
};

/// The same with one caller in each process, and these faults. A lost request has a copy after 2 s, and the release of a claim is
/// repeated after 5 s.
pub(super) const fn with(faults: Faults) -> Setup {
    Setup {
        callers: 1,
        faults,
        most_free: Duration::from_millis(5100),
        most_given_up: Duration::from_millis(5100),
        ..POLLING
    }
}

/// Callers that come again, in many processes, with all faults.
pub(super) const FLEET: Setup = Setup {
    processes: 3,
    callers: 4,
    expiry: Duration::from_secs(3),
    deadlines: true,
    tries: true,
    unawaited: true,
    again: true,
    faults: Faults {
        lost: 50,
        unclear: 50,
        blocked: 50,
        repeated: 50,
        slow: 200,
        cancelled: 100,
        crashes: 1,
        stopped_streams: 20,
        holds: 200,
    },
    most_free: Duration::from_secs(40),
    most_given_up: Duration::from_secs(10),
    ..IN_LINE
};

pub(super) const WITH_A_TRY: Setup = Setup {
    deadlines: true,
    tries: true,
    ..POLLING
};

pub(super) const LOST: Setup = with(Faults { lost: 1, ..NO_FAULTS });

pub(super) const REPEATED: Setup = with(Faults {
    repeated: 1,
    slow: 1,
    ..NO_FAULTS
});

pub(super) const LOST_AND_CANCELLED: Setup = Setup {
    processes: 1,
    callers: 2,
    ..with(Faults {
        lost: 1,
        cancelled: 1,
        ..NO_FAULTS
    })
};

pub(super) const CRASH: Setup = Setup {
    expiry: Duration::from_secs(1),
    ..with(Faults {
        crashes: 1,
        ..NO_FAULTS
    })
};

/// A stream that stops is opened again after 200 ms, and nothing was missed then.
pub(super) const STOPPED: Setup = Setup {
    most_free: Duration::from_millis(300),
    ..in_line(with(Faults {
        stopped_streams: 1,
        ..NO_FAULTS
    }))
};

/// A lease that ends is followed as soon as it is over.
pub(super) const FOLLOWED: Setup = Setup {
    most_free: Duration::from_millis(100),
    ..in_line(CRASH)
};

/// A waiter in front of another one dies.
pub(super) const DEAD: Setup = Setup {
    processes: 3,
    stream: false,
    expiry: Duration::from_secs(1),
    most_free: Duration::from_millis(800),
    faults: Faults {
        crashes: 1,
        ..NO_FAULTS
    },
    ..in_line(LOST)
};

/// A reply comes when the lease is over.
pub(super) const SHORT: Setup = Setup {
    processes: 1,
    callers: 2,
    expiry: Duration::from_secs(1),
    ..with(Faults { slow: 1, ..NO_FAULTS })
};

/// The same in line with a stream.
pub(super) const fn in_line(setup: Setup) -> Setup {
    Setup {
        stream: true,
        fair: true,
        own_events: true,
        ..setup
    }
}
