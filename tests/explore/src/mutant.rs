//! Rules that can be taken out: the explorer must notice each of them.
//!
//! The files of the library stay as they are. The glue withholds a call or a result of theirs, or leaves a rule of a shell out.

use std::fmt::{self, Display, Formatter};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    NoLateReleases,
    SlowReplyCountsAsCertain,
    ReplyDuringReleaseIsIgnored,
    CancelledClaimIsNotReleased,
    NoCopy,
    TurnStaysAfterFailedRelease,
    HeldStaysValid,
    ReleaseInFlightIsForgotten,
    NoLookAfterSubscription,
    UnawaitedReleaseIsNotSent,
    HandoverReusesToken,
    LeaseThatIsOverIsDelivered,
    HeldBeforeFirstReply,
    GivenUpIdsAreNotRecognised,
}

impl Display for Mutant {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoLateReleases => "no late releases",
            Self::SlowReplyCountsAsCertain => "a slow reply counts as certain",
            Self::ReplyDuringReleaseIsIgnored => "a reply during a release is ignored",
            Self::CancelledClaimIsNotReleased => "a cancelled claim in flight is not released",
            Self::NoCopy => "no copy of an overdue request",
            Self::TurnStaysAfterFailedRelease => "the turn stays after a failed release",
            Self::HeldStaysValid => "\"held\" stays valid without a reply",
            Self::ReleaseInFlightIsForgotten => "a release seen during a request is forgotten",
            Self::NoLookAfterSubscription => "no request after a new subscription",
            Self::UnawaitedReleaseIsNotSent => "a release that is not awaited is never sent",
            Self::HandoverReusesToken => "a hand-over reuses the token",
            Self::LeaseThatIsOverIsDelivered => "a lease that is over is delivered",
            Self::HeldBeforeFirstReply => "\"held\" before the first reply",
            Self::GivenUpIdsAreNotRecognised => "given-up ids are not recognised",
        })
    }
}
