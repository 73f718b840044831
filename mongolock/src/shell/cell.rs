//! What a caller, and later its guard, knows: one cell for each call.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::core::{Ended, Ending, Event, Failure, Fault, Hold, Loss, Notice, Time};
use crate::sync::lock;

/// The state of a call and of its hold. The core's notices set it while the core's mutex is held, so its own mutex is the last one
/// that is taken.
#[derive(Default)]
pub(crate) struct Cell(Mutex<State>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) step: Step,
    wakers: Vec<Waker>,
}

#[derive(Clone, Default)]
pub(crate) enum Step {
    #[default]
    Waits,
    /// The caller has gone.
    Left,
    /// With the tokens of its locks, in the order of their names.
    Held {
        hold: Hold,
        tokens: Arc<[i64]>,
        until: Time,
    },
    Lost(Loss),
    Failed(Failure),
    Ended(Result<Ended, Option<Fault>>),
    /// What was found out about a transaction.
    Committed(Result<bool, Option<Fault>>),
}

impl Cell {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Notes what the core says. Whoever waits for it is woken later. Returns what ends a hold that nobody is there to take.
    pub(crate) fn note(&self, notice: Notice, wakers: &mut Vec<Waker>) -> Option<Event<Arc<Self>>> {
        let state = &mut *self.lock();
        let step = match (notice, &mut state.step) {
            (Notice::Held(hold, _) | Notice::HeldAll(hold, ..), Step::Left) => {
                return Some(Event::End(hold, Ending::Release, None));
            }
            (Notice::Held(hold, until), _) => Step::Held {
                tokens: token_of(hold),
                hold,
                until,
            },
            (Notice::HeldAll(hold, tokens, until), _) => Step::Held {
                hold,
                tokens: tokens.into(),
                until,
            },
            (Notice::Extended(end), Step::Held { until, .. }) => {
                *until = end;
                return None;
            }
            (Notice::Lost(loss), Step::Held { .. }) => Step::Lost(loss),
            (Notice::Extended(_) | Notice::Lost(_), _) | (_, Step::Left) => return None,
            (Notice::Ended(ended), _) => Step::Ended(ended),
            (Notice::Committed(found), _) => Step::Committed(found),
            (Notice::Failed(failure), _) => Step::Failed(failure),
        };
        state.step = step;
        wakers.append(&mut state.wakers);
        None
    }

    /// Waits until this finds in the state what it looks for.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        find: impl FnOnce(&mut Step) -> Option<T>,
    ) -> Poll<T> {
        let state = &mut *self.lock();
        if let Some(found) = find(&mut state.step) {
            return Poll::Ready(found);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Until when the hold may be relied on. What is over stays over: the clock and the end are read together.
    pub(crate) fn until(&self, now: impl FnOnce() -> Time) -> Result<Time, Loss> {
        let state = &mut *self.lock();
        match state.step {
            Step::Held { until, .. } if until > now() => Ok(until),
            Step::Lost(loss) => Err(loss),
            _ => {
                state.step = Step::Lost(Loss::Expired);
                Err(Loss::Expired)
            }
        }
    }
}

fn token_of(hold: Hold) -> Arc<[i64]> {
    match hold {
        Hold::One(_, token) => Arc::new([token]),
        Hold::Set(_) => Arc::new([]),
    }
}
