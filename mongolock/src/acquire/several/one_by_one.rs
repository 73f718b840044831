//! The locks of a set, acquired one after the other in the order of their names.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::AcquireSeveral;
use super::turns::note_held;
use crate::acquire::Acquire;
use crate::acquire::call::Search;
use crate::lease::Hold;
use crate::opaque::boxed;
use crate::options::Options;
use crate::{Busy, LockError, task};

impl AcquireSeveral<'_> {
    /// Acquires the locks one after the other, each as a single lock, unless the whole set is handed over while the call
    /// waits for the first; `None` if one was lost in the meantime, and all of them are given back.
    pub(super) async fn one_by_one(&self) -> Result<Option<Hold>, LockError> {
        let mut holds: Vec<Hold> = Vec::with_capacity(self.names.len());
        for index in 0..self.names.len() {
            self.awaited.store(index, Relaxed);
            // The minimum and the maximum hold begin when the caller has all locks.
            let options = Arc::new(Options {
                min_hold: Duration::ZERO,
                max_hold: None,
                ..Options::clone(self.call.options)
            });
            let acquire = self.part(index, &options);
            let hold = tokio::select! {
                biased;
                acquired = boxed(acquire.acquire()) => acquired.map_err(|error| self.in_set(error))?,
                () = first_end(&holds) => return Ok(None),
            };
            if hold.lease().is_set_of(&self.set) {
                note_held(&hold, &self.join());
                hold.lease().measure(self.call.meter.as_ref());
                return Ok(Some(hold));
            }
            holds.push(hold);
        }
        let first = self.call.engine.queues.join(self.names[0].text());
        first.budget().restart_row(Instant::now(), first.waiting());
        let hold = Hold::joined(holds, self.first, self.call.options, self.call.meter.as_ref());
        Ok(hold.filter(|hold| !hold.lease().is_over()))
    }

    /// The error of one of the locks as that of the whole call.
    fn in_set(&self, error: LockError) -> LockError {
        match Busy::from_error(error) {
            Ok(busy) => LockError::timeout(busy, self.call.begun.elapsed()),
            Err(other) => other,
        }
    }

    /// The acquisition of one of the locks, which does not count as a call of its own.
    fn part<'b>(&'b self, index: usize, options: &'b Arc<Options>) -> Acquire<'b> {
        let call = self.call.part(&self.names[index], options);
        Acquire::of_part(call, (index == 0).then(|| (self.set(), self.first)))
    }
}

/// Resolves when one of the leases is over.
async fn first_end(holds: &[Hold]) {
    task::any(holds.iter().map(|hold| boxed(hold.lease().until_over()))).await;
}
