//! A call that waits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cell::{Cell, Step};
use super::state::Shell;
use crate::core::{Ending, Event, Failure, Hold, Join, Waiter, Wanted};

/// A call, from its first poll on. Dropped, it leaves; a hold that it was given meanwhile ends.
pub(crate) struct Waiting {
    shell: Arc<Shell>,
    cell: Arc<Cell>,
    call: Call,
}

enum Call {
    New(Box<(Wanted, Join<()>)>),
    Waits(Option<Waiter>),
    Ended,
}

/// What a call has got.
pub(crate) struct Got {
    pub(crate) shell: Arc<Shell>,
    pub(crate) cell: Arc<Cell>,
    pub(crate) hold: Hold,
    pub(crate) tokens: Arc<[i64]>,
}

impl Shell {
    pub(crate) fn wait(self: &Arc<Self>, wanted: Wanted, join: Join<()>) -> Waiting {
        Waiting {
            shell: Arc::clone(self),
            cell: Arc::default(),
            call: Call::New(Box::new((wanted, join))),
        }
    }
}

impl Waiting {
    fn begin(&mut self) {
        let call = std::mem::replace(&mut self.call, Call::Waits(None));
        if let Call::New(call) = call {
            let (wanted, join) = *call;
            self.shell.lend_runtime();
            let join = Join {
                rules: join.rules,
                limit: join.limit,
                is_try: join.is_try,
                is_inside_hold: join.is_inside_hold,
                cell: Arc::clone(&self.cell),
            };
            self.call = Call::Waits(self.shell.apply(Event::Join(wanted, join)));
        }
    }
}

impl Future for Waiting {
    type Output = Result<Got, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Call::New(_) = self.call {
            self.begin();
        }
        let found = self.cell.poll(context, |step| match step {
            Step::Held { hold, tokens, .. } => Some(Ok((*hold, Arc::clone(tokens)))),
            Step::Failed(failure) => Some(Err(failure.clone())),
            // It was lost before it was taken: the guard says so.
            Step::Lost(_) => Some(Ok((Hold::One(crate::core::Key::NONE, 0), Arc::new([0])))),
            _ => None,
        });
        let Poll::Ready(found) = found else {
            return Poll::Pending;
        };
        self.call = Call::Ended;
        let (shell, cell) = (Arc::clone(&self.shell), Arc::clone(&self.cell));
        Poll::Ready(found.map(|(hold, tokens)| Got {
            shell,
            cell,
            hold,
            tokens,
        }))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The core takes the mutex of the cell under its own, so this one is not held then.
        let event = {
            let state = &mut *self.cell.lock();
            let event = match (&state.step, &self.call) {
                (Step::Held { hold, .. }, Call::Waits(_)) => Event::End(*hold, Ending::Release, None),
                (Step::Waits, Call::Waits(Some(waiter))) => Event::Leave(*waiter),
                _ => return,
            };
            state.step = Step::Left;
            event
        };
        self.shell.apply(event);
    }
}
