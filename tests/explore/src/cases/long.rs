//! The searches with greater bounds. Those that do not end look at eight million situations.

use std::time::Duration;

use super::Case;
use super::bounds::{CRASH, IN_LINE, NO_FAULTS, POLLING, in_line, with};
use crate::setup::{Faults, Setup};

const MILLIONS: usize = 8;

pub(super) fn all() -> Vec<Case> {
    [without_faults(), with_one_fault(), with_more_faults()].concat()
}

fn without_faults() -> Vec<Case> {
    let twice = Faults {
        holds: 2,
        ..NO_FAULTS
    };
    let polling = Setup {
        faults: twice,
        ..POLLING
    };
    let in_line = Setup {
        faults: twice,
        ..IN_LINE
    };
    let stream = Setup {
        fair: false,
        ..IN_LINE
    };
    vec![
        Case::first(
            "2 x 2, stream and line, two pauses while it is held",
            MILLIONS,
            in_line,
        ),
        Case::whole("2 x 2, polling, two pauses while the lock is held", polling).long(),
        Case::whole("2 x 2, stream without a line", stream).long(),
    ]
}

/// Two processes with two callers each.
fn two(faults: Faults) -> Setup {
    Setup {
        callers: 2,
        ..with(faults)
    }
}

fn with_one_fault() -> Vec<Case> {
    let n = NO_FAULTS;
    let lost = two(Faults { lost: 1, ..n });
    let slow = two(Faults { slow: 1, ..n });
    let deadlines = Setup {
        deadlines: true,
        ..slow
    };
    vec![
        Case::first("2 x 2, stream and line, a lost message", MILLIONS, in_line(lost)),
        Case::first("2 x 2, a slow command", MILLIONS, slow),
        Case::first("2 x 2, a deadline, a slow command", MILLIONS, deadlines),
        Case::whole("2 x 2, a cancelled call", two(Faults { cancelled: 1, ..n })).long(),
        Case::whole("2 x 2, a lost message", lost).long(),
        Case::whole("2 x 2, an unclear error", two(Faults { unclear: 1, ..n })).long(),
        Case::whole("2 x 2, a blocked document", two(Faults { blocked: 1, ..n })).long(),
    ]
}

fn with_more_faults() -> Vec<Case> {
    let n = NO_FAULTS;
    let repeated = with(Faults {
        slow: 2,
        repeated: 1,
        ..n
    });
    // A command that is slow three times takes effect after 6 s.
    let cancelled = Setup {
        most_free: Duration::from_millis(6100),
        ..with(Faults {
            slow: 3,
            cancelled: 1,
            ..n
        })
    };
    let crash = Setup {
        callers: 2,
        faults: Faults {
            crashes: 1,
            slow: 1,
            ..n
        },
        ..CRASH
    };
    vec![
        Case::first("2 x 1, slow twice, a repeated command", MILLIONS, repeated),
        Case::first("2 x 1, slow three times, a cancelled call", MILLIONS, cancelled),
        Case::first("2 x 2, a crash, slow once, expiry 1 s", MILLIONS, crash),
    ]
}
