//! Reports for operators: events, and the metrics of holds.

use std::sync::Arc;

use super::clock::duration;
use super::faults::error_of;
use super::state::{How, Lease};
use crate::core::{self, EndResult, Ended, FailedCommand, FaultKind, Lane, MS, Time};
use crate::meter::Measure;
use crate::{LockError, LossReason, permit_id, trace};

/// A report for operators. It is made when no mutex is held, because the program's subscriber may block.
pub(super) enum EngineReport {
    Core(core::Report<Arc<Lease>>),
    /// With the age of the lease at its renewal.
    Renewed(Arc<Lease>, core::Span),
    /// With the time of the loss.
    Lost(Arc<Lease>, Time, LossReason),
    /// With the time of the end.
    Ended(Arc<Lease>, Time, How, EndResult),
}

impl EngineReport {
    /// Reports it: an event of a call or a hold is in its span.
    pub(super) fn tell(&self) {
        match self {
            Self::Core(core::Report::Failed(failed)) => {
                let _entered = failed.cell.as_ref().map(|lease| lease.span.enter());
                report_failed(failed);
            }
            Self::Core(core::Report::Waiting(lease, name, left, pause)) => {
                let left = left.map(|left| duration(left.saturating_mul(MS)));
                lease
                    .span
                    .in_scope(|| trace::waiting(permit_id::shown(name), left, duration(*pause)));
            }
            Self::Core(core::Report::PermitsDiffer(name, permits, seen)) => {
                trace::permits_differ(permit_id::shown(name), *permits, seen.saturating_add(1));
            }
            Self::Renewed(lease, age) => lease.meter.record(Measure::Renewed(duration(*age))),
            Self::Lost(lease, at, reason) => lease.span.in_scope(|| report_lost(lease, *at, *reason)),
            Self::Ended(lease, at, how, ended) => lease.span.in_scope(|| report_end(lease, *at, *how, ended)),
        }
    }
}

/// Reports a failed command that is repeated. A command that is not repeated is reported at its end.
fn report_failed(failed: &FailedCommand<Arc<Lease>>) {
    let Some(pause) = failed.pause.map(duration) else {
        return;
    };
    let (name, error) = (permit_id::shown(&failed.name), error_of(&failed.fault));
    let retrying = |request: &str| trace::retrying(request, failed.number, name, &error, pause);
    let how = failed.cell.as_ref().and_then(|lease| lease.how_it_ends());
    match (failed.lane, how) {
        (Lane::Claims, _) => retrying("acquire"),
        (Lane::Looks, _) => retrying("look"),
        (Lane::Renewals, _) => trace::renewal_failed(failed.number, name, &error),
        (Lane::Ends, Some(how @ (How::Mark | How::Detach))) => retrying(how.as_str()),
        (Lane::Ends, _) => {}
    }
}

fn report_lost(lease: &Lease, at: Time, reason: LossReason) {
    lease.meter.record(Measure::HoldEnds(lease.held_until(at)));
    lease.meter.record(Measure::Lost(reason));
    lease.report(|hold| trace::lost(hold, reason));
}

fn report_end(lease: &Lease, at: Time, how: How, ended: &EndResult) {
    if matches!(ended, Ok(Ended::Lost)) {
        return report_lost(lease, at, LossReason::Gone);
    }
    lease.meter.record(Measure::HoldEnds(lease.held_until(at)));
    let released = |how: &str| lease.report(|hold| trace::released(hold, how, None));
    match ended {
        Ok(Ended::Marked) => released("done"),
        Ok(Ended::Detached) => {}
        Ok(ended) => {
            if *ended == Ended::HandedOver {
                lease.meter.record(Measure::HandedOver);
            }
            released("released");
        }
        Err(fault) => {
            let no_reply = || LockError::no_reply(how.as_str(), lease.about.options.expiry);
            let error = fault.as_ref().map_or_else(no_reply, error_of);
            trace::release_failed(how.as_str(), lease.keys().len(), lease.name(), &error);
            // The work may run again anyway, so other callers need not wait.
            let is_refused = matches!(fault, Some(fault) if fault.kind == FaultKind::Refused);
            if how == How::Mark && is_refused {
                released("released");
            }
        }
    }
}
