//! The events and metrics of a hold. They are told when no mutex is held any more.

use std::sync::Arc;

use super::{How, Lease};
use crate::core::{Ended, Fault, Span};
use crate::engine::after::After;
use crate::engine::clock::duration;
use crate::engine::faults::error_of;
use crate::meter::Measure;
use crate::{LockError, LossReason, trace};

impl Lease {
    pub(super) fn report_lost(self: &Arc<Self>, reason: LossReason, after: &mut After) {
        let lease = Arc::clone(self);
        after.report(move || {
            let meter = lease.meter();
            meter.record(Measure::HoldEnds(lease.held_for()));
            meter.record(Measure::Lost(reason));
            lease.in_span(|| lease.report(|hold| trace::lost(hold, reason)));
        });
    }

    /// With the age of the lease at its renewal.
    pub(super) fn report_renewed(self: &Arc<Self>, age: Span, after: &mut After) {
        let lease = Arc::clone(self);
        after.report(move || {
            lease.meter().record(Measure::Renewed(duration(age)));
            lease.in_span(|| lease.report(trace::renewed));
        });
    }

    pub(super) fn report_end(
        self: &Arc<Self>,
        how: How,
        ended: Result<Ended, Option<Fault>>,
        after: &mut After,
    ) {
        let lease = Arc::clone(self);
        after.report(move || lease.in_span(|| tell_end(&lease, how, &ended)));
    }
}

fn tell_end(lease: &Lease, how: How, ended: &Result<Ended, Option<Fault>>) {
    lease.meter().record(Measure::HoldEnds(lease.held_for()));
    match ended {
        Ok(Ended::Released) => lease.report(trace::released),
        Ok(Ended::HandedOver) => {
            lease.meter().record(Measure::HandedOver);
            lease.report(trace::released);
        }
        Ok(Ended::Marked) => lease.report(trace::done),
        Ok(Ended::Detached) => {}
        Ok(Ended::Lost) => {
            lease.meter().record(Measure::Lost(LossReason::Gone));
            lease.report(|hold| trace::lost(hold, LossReason::Gone));
        }
        Err(fault) => {
            let error = fault.as_ref().map(error_of);
            let error = error.unwrap_or_else(|| LockError::no_reply("release", lease.options().expiry));
            match how {
                How::Mark => {
                    trace::done_failed(&lease.fields(), &error);
                    // The work may run again, so that there is no reason to keep others waiting.
                    if fault.as_ref().is_some_and(|fault| fault.kind.is_lasting()) {
                        lease.report(trace::released);
                    }
                }
                How::Release | How::Detach => trace::release_failed(lease.keys().len(), lease.name(), &error),
            }
        }
    }
}
