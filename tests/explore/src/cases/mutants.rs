//! The cases that must fail, because each of them lacks one rule.

use std::time::Duration;

use super::Case;
use super::bounds::{
    IN_LINE, LOST, LOST_AND_CANCELLED, NO_FAULTS, POLLING, REPEATED, SHORT, WITH_A_TRY, with,
};
use crate::judge;
use crate::mutant::Mutant;
use crate::setup::{Faults, Setup};

pub(super) fn all() -> Vec<Case> {
    [without_faults(), of_requests(), of_releases()].concat()
}

/// Those that a search without faults finds.
fn without_faults() -> Vec<Case> {
    let unawaited = Setup {
        unawaited: true,
        ..POLLING
    };
    vec![
        Case::whole("2 x 2, stream and line", IN_LINE)
            .without(Mutant::ReleaseInFlightIsForgotten, judge::FREE),
        Case::whole("2 x 2, stream and line", IN_LINE).without(Mutant::NoLookAfterSubscription, judge::FREE),
        Case::whole("2 x 2, releases that are not awaited", unawaited)
            .without(Mutant::UnawaitedReleaseIsNotSent, judge::NOT_IDLE),
        Case::whole("2 x 2, polling", POLLING).without(Mutant::HandoverReusesToken, judge::TOKEN),
        Case::whole("2 x 2, a deadline and a single try", WITH_A_TRY)
            .without(Mutant::HeldBeforeFirstReply, judge::UNSAID),
    ]
}

/// Those that concern requests and their replies.
fn of_requests() -> Vec<Case> {
    let slow_twice = with(Faults { slow: 2, ..NO_FAULTS });
    let lost = Setup {
        most_free: Duration::from_secs(3),
        ..LOST
    };
    let deadlines = Setup {
        callers: 2,
        deadlines: true,
        ..slow_twice
    };
    vec![
        Case::whole("2 x 1, a lost message", lost).without(Mutant::NoCopy, judge::FREE),
        Case::whole("2 x 2, a deadline, slow twice", deadlines)
            .without(Mutant::HeldStaysValid, judge::SILENT),
        Case::whole("1 x 2, a slow command, expiry 1 s", SHORT)
            .without(Mutant::LeaseThatIsOverIsDelivered, judge::OVER),
        Case::whole("2 x 1, a slow command that the driver repeats", REPEATED)
            .without(Mutant::SlowReplyCountsAsCertain, judge::LEFT_CLAIM),
    ]
}

/// Those that concern releases and given-up claims.
fn of_releases() -> Vec<Case> {
    let slow_twice = with(Faults { slow: 2, ..NO_FAULTS });
    let slow_and_cancelled = with(Faults {
        slow: 1,
        cancelled: 1,
        ..NO_FAULTS
    });
    let fails_and_lost = with(Faults {
        unclear: 1,
        lost: 1,
        ..NO_FAULTS
    });
    let fails_and_lost = Setup {
        processes: 1,
        callers: 2,
        most_given_up: Duration::from_secs(4),
        ..fails_and_lost
    };
    vec![
        Case::whole("2 x 1, a slow command that the driver repeats", REPEATED)
            .without(Mutant::NoLateReleases, judge::LEFT_CLAIM),
        Case::whole("2 x 1, slow twice", slow_twice)
            .without(Mutant::ReplyDuringReleaseIsIgnored, judge::LEFT_CLAIM),
        Case::whole("2 x 1, a slow command and a cancelled call", slow_and_cancelled)
            .without(Mutant::CancelledClaimIsNotReleased, judge::LEFT_CLAIM),
        Case::whole("1 x 2, an unclear error and a lost message", fails_and_lost)
            .without(Mutant::TurnStaysAfterFailedRelease, judge::GIVEN_UP),
        Case::whole("1 x 2, a lost message and a cancelled call", LOST_AND_CANCELLED)
            .without(Mutant::GivenUpIdsAreNotRecognised, judge::GIVEN_UP),
    ]
}
