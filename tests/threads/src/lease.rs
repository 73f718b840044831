//! The state of a lease as `lease/state.rs` keeps it, a value under a mutex, with a clock that a test sets; and the file
//! `lease/commits.rs` of the library as it is.

use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::scenarios::Steps;
use crate::sync::{Mutex, lock};

#[path = "../../../mongolock/src/lease/commits.rs"]
#[allow(dead_code)]
mod commits;

use commits::Commits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live { deadline: usize },
    Released,
}

/// A lease with the parts that its threads share.
pub(crate) struct Lease {
    state: Mutex<State>,
    /// The monotonic clock of the process.
    now: AtomicUsize,
    commits: Commits,
    changed: Changed,
}

/// The tasks that wait for a change are not a part of these tests.
struct Changed;

#[allow(clippy::unused_self)]
impl Changed {
    fn notify_waiters(&self) {}
}

impl Lease {
    pub(crate) fn with_deadline(deadline: usize) -> Self {
        Self {
            state: Mutex::new(State::Live { deadline }),
            now: AtomicUsize::new(0),
            commits: Commits::default(),
            changed: Changed,
        }
    }

    pub(crate) fn set_clock(&self, now: usize) {
        self.now.store(now, Ordering::SeqCst);
    }

    /// The clock gives no time that is earlier than one that it has given before, on whatever thread: a read that changes
    /// the value reads the newest one.
    fn now(&self) -> usize {
        self.now.fetch_add(0, Ordering::SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        match *state {
            State::Live { deadline } => deadline <= self.now(),
            State::Released => true,
        }
    }

    /// No test has a commit that marks its work as done.
    #[allow(dead_code, clippy::unused_self)]
    fn has_ended_well(&self) -> bool {
        false
    }

    /// Moves the deadline after a renewal, unless the lease is over.
    pub(crate) fn extend(&self, until: usize, steps: Steps) {
        if steps == Steps::InTheWrongOrder {
            if !self.is_over() {
                *lock(&self.state) = State::Live { deadline: until };
            }
            return;
        }
        let mut state = lock(&self.state);
        if let State::Live { deadline } = &mut *state
            && *deadline > self.now()
        {
            *deadline = (*deadline).max(until);
        }
    }

    /// Ends the lease for a release; the claim may be handed over after that unless it guards a commit.
    pub(crate) fn finish(&self) {
        *lock(&self.state) = State::Released;
    }

    #[allow(dead_code, clippy::unused_async)]
    async fn until(&self, ended: impl Fn(&Self) -> bool) {
        assert!(ended(self), "these tests do not wait");
    }
}
