//! Whether a call may fail as it does.

use crate::core::{CallFailure, Cause, OncePolicy};
use crate::process::{Phase, Waits};
use crate::setup::Wants;
use crate::world::{Handle, World};

impl World<'_> {
    /// Whether the lease is there, and only this process resumes it.
    fn has_come_back(&self, number: usize) -> bool {
        let resumes = |process: usize| {
            let mut callers = 0..self.processes[process].callers.len();
            callers.any(|caller| self.setup.caller(process, caller).wants == Wants::Lease)
        };
        let is_there = |handle: &Handle| handle.is_delivered && !handle.is_taken && self.is_there(handle);
        let mut others = (0..self.processes.len()).filter(|other| *other != number);
        self.handle.as_ref().is_some_and(is_there) && !others.any(resumes)
    }

    fn has_refused_nothing(&self) -> bool {
        let (most, left) = (&self.setup.faults, &self.left);
        (most.refused, most.refused_rows) == (left.refused, left.refused_rows)
    }

    /// A call ends without what it wants.
    pub(crate) fn judge_failure(
        &mut self,
        number: usize,
        caller: usize,
        waits: &Waits,
        failure: &CallFailure,
    ) {
        let options = self.setup.caller(number, caller);
        let is_period_over = match options.once {
            Some(OncePolicy::PerPeriod(_)) => {
                self.setup.faults.slow > 0 || !self.is_of_period(options, waits.begun, self.ms())
            }
            _ => false,
        };
        // A hold that ends while a transaction is under way is kept until that ends.
        let holds_any = self.processes[number].holds().next().is_some() || self.transactions_of(number);
        let has_holder = failure.seen.is_some() || holds_any;
        let breach = match failure.cause {
            Cause::Busy | Cause::Done if !has_holder => "busy or done, and the error does not say by whom",
            Cause::Busy if waits.was_free && !self.is_deceived(number, &waits.names) => {
                "busy, and the lock was free from begin to end"
            }
            Cause::Busy if !waits.has_heard && !holds_any => "busy, and nothing has said so",
            Cause::Done if !waits.was_marked || !waits.has_heard => "done, and nothing has said so",
            Cause::Gone if waits.was_free => "gone, and the lease was there from begin to end",
            Cause::Gone if self.has_come_back(number) => "gone, and its own process has given the lease back",
            Cause::Timeout if waits.deadline.is_none_or(|deadline| deadline > self.now) => {
                "a timeout too early"
            }
            Cause::PeriodOver if !is_period_over => "a period is called over that is not",
            Cause::Refused if self.has_refused_nothing() => "refused, and the server has refused nothing",
            Cause::ShutDown if self.processes[number].phase == Phase::Open => {
                "shut down, and nobody has asked for it"
            }
            _ => return,
        };
        self.judge.fails(breach);
    }
}
