//! The events and metrics of a hold. They are reported when no mutex is held.

use std::sync::Arc;

use crate::core::{Ended, Span};
use crate::engine::after::After;
use crate::engine::clock::duration;
use crate::engine::faults::error_of;
use crate::engine::state::{How, Lease, Outcome};
use crate::meter::Measure;
use crate::{LockError, LossReason, trace};

impl Lease {
    pub(super) fn report_lost(self: &Arc<Self>, reason: LossReason, after: &mut After) {
        let lease = Arc::clone(self);
        after.report(move || {
            let meter = &lease.meter;
            meter.record(Measure::HoldEnds(lease.held_for()));
            meter.record(Measure::Lost(reason));
            lease
                .span
                .in_scope(|| lease.report(|hold| trace::lost(hold, reason)));
        });
    }

    /// With the age of the lease at its renewal.
    pub(super) fn report_renewed(self: &Arc<Self>, age: Span, after: &mut After) {
        let lease = Arc::clone(self);
        after.report(move || lease.meter.record(Measure::Renewed(duration(age))));
    }

    pub(super) fn report_end(self: &Arc<Self>, how: How, ended: Outcome, after: &mut After) {
        let lease = Arc::clone(self);
        after.report(move || lease.span.in_scope(|| tell_end(&lease, how, &ended)));
    }
}

fn tell_end(lease: &Lease, how: How, ended: &Outcome) {
    lease.meter.record(Measure::HoldEnds(lease.held_for()));
    let released = |how: &str| lease.report(|hold| trace::released(hold, how, None));
    match ended {
        Ok(Ended::Released) => released("released"),
        Ok(Ended::HandedOver) => {
            lease.meter.record(Measure::HandedOver);
            released("released");
        }
        Ok(Ended::Marked) => released("done"),
        Ok(Ended::Detached) => {}
        Ok(Ended::Lost) => {
            lease.meter.record(Measure::Lost(LossReason::Gone));
            lease.report(|hold| trace::lost(hold, LossReason::Gone));
        }
        Err(fault) => {
            let error = fault.as_ref().map(error_of);
            let error =
                error.unwrap_or_else(|| LockError::no_reply(how.as_str(), lease.about.options.expiry));
            trace::release_failed(how.as_str(), lease.keys().len(), lease.name(), &error);
            // The work may run again anyway, so other callers need not wait.
            if how == How::Mark && fault.as_ref().is_some_and(|fault| fault.kind.is_lasting()) {
                released("released");
            }
        }
    }
}
