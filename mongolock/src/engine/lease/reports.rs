//! The events and metrics of a hold.

use super::{How, Lease};
use crate::core::{Ended, Fault, Span};
use crate::engine::clock::duration;
use crate::engine::faults::error_of;
use crate::{LockError, LossReason, trace};

impl Lease {
    pub(in crate::engine) fn tell_lost(&self, reason: LossReason) {
        self.meter().hold_ends(self.held_for());
        self.meter().lost(reason);
        self.in_span(|| self.report(|hold| trace::lost(hold, reason)));
    }

    pub(in crate::engine) fn tell_renewed(&self, age: Span) {
        self.meter().renewed(duration(age));
        self.in_span(|| self.report(trace::renewed));
    }

    pub(in crate::engine) fn tell_end(&self, how: How, ended: &Result<Ended, Option<Fault>>) {
        self.meter().hold_ends(self.held_for());
        match ended {
            Ok(Ended::Released) => self.report(trace::released),
            Ok(Ended::HandedOver) => {
                self.meter().handed_over();
                self.report(trace::released);
            }
            Ok(Ended::Marked) => self.report(trace::done),
            Ok(Ended::Detached) => {}
            Ok(Ended::Lost) => {
                self.meter().lost(LossReason::Gone);
                self.report(|hold| trace::lost(hold, LossReason::Gone));
            }
            Err(fault) => {
                let error = fault.as_ref().map(error_of);
                let error = error.unwrap_or_else(|| LockError::no_reply("release", self.options().expiry));
                match how {
                    How::Mark => {
                        trace::done_failed(&self.fields(), &error);
                        // The work may run again, so that there is no reason to keep others waiting.
                        if fault.as_ref().is_some_and(|fault| fault.kind.is_lasting()) {
                            self.report(trace::released);
                        }
                    }
                    How::Release | How::Detach => {
                        trace::release_failed(self.keys().len(), self.name(), &error);
                    }
                }
            }
        }
    }
}
