//! The events for the reports of the core.

use std::sync::Arc;

use super::clock::duration;
use super::faults::error_of;
use super::state::{How, Lease};
use crate::core::{Failed, Lane, MS, Report};
use crate::{permit_id, trace};

pub(super) fn report(report: Report<Arc<Lease>>) {
    match report {
        Report::Failed(failed) => match &failed.cell {
            Some(lease) => lease.span.in_scope(|| report_failed(&failed)),
            None => report_failed(&failed),
        },
        Report::Waiting(lease, name, left, pause) => {
            let left = left.map(|left| duration(left.saturating_mul(MS)));
            lease
                .span
                .in_scope(|| trace::waiting(shown(&name), left, duration(pause)));
        }
        Report::PermitsDiffer(name, permits, seen) => {
            trace::permits_differ(shown(&name), permits, seen.saturating_add(1));
        }
    }
}

/// Reports a failed command that is repeated. A command that is not repeated is reported at its end.
fn report_failed(failed: &Failed<Arc<Lease>>) {
    let (name, error) = (shown(&failed.name), error_of(&failed.fault));
    let Some(pause) = failed.pause.map(duration) else {
        return;
    };
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

/// The name of a semaphore without the separator at the end of its room's name.
pub(super) fn shown(name: &str) -> &str {
    permit_id::shown(name).trim_end_matches('\u{1f}')
}
