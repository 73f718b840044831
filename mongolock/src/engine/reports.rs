//! The events for what the core reports.

use std::sync::Arc;

use super::clock::duration;
use super::faults::error_of;
use super::lease::{How, Lease};
use crate::core::{Failed, Lane, MS, Report};
use crate::{permit_id, trace};

pub(super) fn report(report: Report<Arc<Lease>>) {
    match report {
        Report::Failed(failed) => match &failed.cell {
            Some(lease) => lease.in_span(|| report_failed(&failed)),
            None => report_failed(&failed),
        },
        Report::Split(number, fault) => trace::split(number, &error_of(&fault)),
        Report::Waiting(lease, name, left, pause) => {
            let left = left.map(|left| duration(left.saturating_mul(MS)));
            lease.in_span(|| trace::waiting(shown(&name), left, duration(pause)));
        }
        Report::CloseToBoundary(name, length) => {
            trace::close_to_boundary(shown(&name), duration(length.saturating_mul(MS)));
        }
        Report::PermitsDiffer(name, permits, seen) => {
            trace::permits_differ(shown(&name), permits, seen.saturating_add(1));
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
