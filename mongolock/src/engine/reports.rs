//! The events for what the core reports.

use std::sync::Arc;

use super::clock::duration;
use super::faults::error_of;
use super::lease::{How, Lease};
use crate::core::{self, Ended, Failed, Fault, Lane, MS, Span};
use crate::{LockError, LossReason, permit_id, trace};

/// What is reported to the program's subscriber and recorder, when no mutex is held any more.
pub(super) enum Report {
    Core(core::Report<Arc<Lease>>),
    Lost(Arc<Lease>, LossReason),
    /// With the age of the lease at its renewal.
    Renewed(Arc<Lease>, Span),
    Ended(Arc<Lease>, How, Result<Ended, Option<Fault>>),
    WakeUpFailed(LockError),
}

impl Report {
    pub(super) fn tell(&self) {
        match self {
            Self::Core(report) => tell(report),
            Self::Lost(lease, reason) => lease.tell_lost(*reason),
            Self::Renewed(lease, age) => lease.tell_renewed(*age),
            Self::Ended(lease, how, ended) => lease.in_span(|| lease.tell_end(*how, ended)),
            Self::WakeUpFailed(error) => trace::wake_up_failed(error),
        }
    }
}

fn tell(report: &core::Report<Arc<Lease>>) {
    match report {
        core::Report::Failed(failed) => match &failed.cell {
            Some(lease) => lease.in_span(|| report_failed(failed)),
            None => report_failed(failed),
        },
        core::Report::Split(number, fault) => trace::split(*number, &error_of(fault)),
        core::Report::Waiting(lease, name, left, pause) => {
            let left = left.map(|left| duration(left.saturating_mul(MS)));
            lease.in_span(|| trace::waiting(shown(name), left, duration(*pause)));
        }
        core::Report::CloseToBoundary(name, length) => {
            trace::close_to_boundary(shown(name), duration(length.saturating_mul(MS)));
        }
        core::Report::PermitsDiffer(name, permits, seen) => {
            trace::permits_differ(shown(name), *permits, seen.saturating_add(1));
        }
    }
}

/// A command has failed that is repeated. What is not repeated is reported at its end.
fn report_failed(failed: &Failed<Arc<Lease>>) {
    let (name, error) = (shown(&failed.name), error_of(&failed.fault));
    let Some(pause) = failed.pause.map(duration) else {
        return;
    };
    match (failed.lane, &failed.cell) {
        (Lane::Claims, _) => trace::retrying(name, &error, pause),
        (Lane::Looks, _) => trace::look_failed(failed.number, name, &error, pause),
        (Lane::Renewals, _) => trace::renewal_failed(failed.number, name, &error),
        (Lane::Ends, Some(lease)) => match lease.how_it_ends() {
            Some(How::Mark) => trace::done_retrying(&lease.fields(), &error, pause),
            Some(How::Detach) => trace::detach_retrying(&lease.fields(), &error, pause),
            Some(How::Release) | None => {}
        },
        (Lane::Ends, None) => {}
    }
}

/// The name of a semaphore without what its room has behind it.
pub(super) fn shown(name: &str) -> &str {
    permit_id::shown(name).trim_end_matches('\u{1f}')
}
