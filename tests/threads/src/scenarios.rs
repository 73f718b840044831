//! What the threads do in each test, and what must be true in every order of their steps.
// Each of the two suites uses a part of them.
#![allow(dead_code)]

use std::sync::Arc;

use loom::thread::{self, yield_now};

use crate::handed_over::HandedOver;
use crate::lease::Lease;
use crate::turn::Turns;

/// Whether threads do their steps as the library does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    AsTheyAre,
    InTheWrongOrder,
}

/// A queue whose turn a holder has.
struct Queue {
    turns: Turns,
    handed_over: HandedOver<Arc<()>>,
}

impl Queue {
    fn with_waiters(waiters: usize) -> Arc<Self> {
        let handed_over = HandedOver::new();
        for _ in 0..waiters {
            handed_over.join();
        }
        Arc::new(Self {
            turns: Turns::new(0),
            handed_over,
        })
    }

    /// The holder hands its hold over, by the steps of `Turn::hand_over`.
    fn hand_over(&self, hold: Arc<()>) {
        self.handed_over.put(hold);
        self.turns.give();
        self.handed_over.release_if_abandoned(|| self.turns.try_acquire());
    }

    /// A waiter is cancelled, by the step of `WaiterCount`.
    fn cancel(&self) {
        self.handed_over.leave(|| self.turns.try_acquire());
    }

    /// A waiter gets the turn, and takes the hold over.
    fn take(&self) -> Option<Arc<()>> {
        let _turn = loop {
            match self.turns.try_acquire() {
                Some(turn) => break turn,
                None => yield_now(),
            }
        };
        self.handed_over.leave(|| self.turns.try_acquire());
        self.handed_over.take()
    }
}

pub(crate) fn hand_over_to_a_cancelled_waiter() {
    loom::model(|| {
        let (queue, hold) = (Queue::with_waiters(1), Arc::new(()));
        let (other, handed) = (Arc::clone(&queue), Arc::clone(&hold));
        let holder = thread::spawn(move || other.hand_over(handed));
        queue.cancel();
        holder.join().unwrap();
        assert_eq!(Arc::strong_count(&hold), 1, "nobody takes or releases the hold");
        assert!(queue.handed_over.is_empty() && queue.handed_over.waiters() == 0);
    });
}

pub(crate) fn hand_over_to_one_of_two_waiters() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (queue, hold) = (Queue::with_waiters(2), Arc::new(()));
        let (first, second, handed) = (Arc::clone(&queue), Arc::clone(&queue), Arc::clone(&hold));
        let cancelled = thread::spawn(move || first.cancel());
        let holder = thread::spawn(move || second.hand_over(handed));
        let taken = queue.take();
        cancelled.join().unwrap();
        holder.join().unwrap();
        assert!(taken.is_some(), "the waiter that is left gets the hold");
        drop(taken);
        assert_eq!(Arc::strong_count(&hold), 1, "nobody takes or releases the hold");
    });
}

pub(crate) fn commit_beside_a_release(steps: Steps) {
    loom::model(move || {
        let lease = Arc::new(Lease::with_deadline(10));
        let other = Arc::clone(&lease);
        let committing = thread::spawn(move || {
            if steps == Steps::InTheWrongOrder && other.is_over() {
                return false;
            }
            let open = other.begin_commit();
            let is_sent = steps == Steps::InTheWrongOrder || !other.is_over();
            if is_sent {
                // The commit is on its way and does not end within this test.
                std::mem::forget(open);
            } else {
                open.ended(false);
            }
            is_sent
        });
        lease.finish();
        let is_handed_over = !lease.may_commit();
        let is_sent = committing.join().unwrap();
        assert!(
            !(is_sent && is_handed_over),
            "the claim of an open commit is handed over"
        );
    });
}

pub(crate) fn commit_cut_off_beside_a_release() {
    loom::model(|| {
        let lease = Arc::new(Lease::with_deadline(10));
        let other = Arc::clone(&lease);
        let cutting = thread::spawn(move || {
            let open = other.begin_commit();
            let is_sent = !other.is_over();
            if is_sent {
                // It is dropped before its end: the server may still apply it.
                drop(open);
            } else {
                open.ended(false);
            }
            is_sent
        });
        lease.finish();
        let is_handed_over = !lease.may_commit();
        let is_sent = cutting.join().unwrap();
        assert!(
            !(is_sent && is_handed_over),
            "the claim of a commit that was cut off is handed over"
        );
    });
}

pub(crate) fn renewal_beside_the_deadline(steps: Steps) {
    loom::model(move || {
        let lease = Arc::new(Lease::with_deadline(1));
        let (renewed, read) = (Arc::clone(&lease), Arc::clone(&lease));
        let renewing = thread::spawn(move || renewed.extend(10, steps));
        let reading = thread::spawn(move || (read.is_over(), read.is_over()));
        lease.set_clock(1);
        renewing.join().unwrap();
        let (first, second) = reading.join().unwrap();
        assert!(!first || second, "a lease that was over is live again");
    });
}
