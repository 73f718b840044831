//! Wakes the callers that the core has notified, after its mutex is released.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

thread_local!(static QUEUE: RefCell<Option<VecDeque<Waker>>> = const { RefCell::new(None) });

/// Wakes them one after the other, with those for which one of these wakes is the cause: never one inside another, because a waker may
/// drop a caller whose lock goes to the next one, and so on, until the stack is full. One that panics ends nothing else.
pub(super) fn wake(wakers: Vec<Waker>) {
    if wakers.is_empty() {
        return;
    }
    let is_inside = QUEUE.with_borrow_mut(|queue| {
        let is_inside = queue.is_some();
        queue.get_or_insert_default().extend(wakers);
        is_inside
    });
    if is_inside {
        return;
    }
    while let Some(waker) = QUEUE.with_borrow_mut(|queue| queue.as_mut().and_then(VecDeque::pop_front)) {
        // The runtime of the caller says what has gone wrong there.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
    QUEUE.set(None);
}
