use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::chance;
use super::contacts::Contacts;
use crate::sync::lock;

thread_local! {
    /// The process whose task is being polled.
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// A process of the fleet: all its tasks can be paused and crashed together.
pub(super) struct Process {
    pub(super) number: usize,
    /// The state of the library's random number generator in this process.
    jitter: AtomicU64,
    /// The number of polls in a thousand before which other tasks run: the order of tasks that are ready is then random.
    late_polls: u32,
    /// The generator for the order of its tasks.
    schedule: Mutex<Rng>,
    started: Instant,
    state: Mutex<ProcessState>,
    /// Notified when the callers that wait on it have to give up.
    pub(super) give_up: Notify,
    pub(super) contacts: Arc<Contacts>,
}

struct ProcessState {
    paused: bool,
    has_crashed: bool,
    resumed: Instant,
    parked: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

/// A task of a process, which is not polled while the process is paused.
struct Gate<F> {
    process: Arc<Process>,
    future: Pin<Box<F>>,
}

/// Replaces `tokio::spawn` in the library, so that a task belongs to the process that starts it.
#[track_caller]
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match CURRENT.with_borrow(Clone::clone) {
        Some(process) => process.spawn(future),
        None => tokio::spawn(future),
    }
}

impl Process {
    pub(super) fn new(number: usize, jitter: u64, late_polls: u32) -> Arc<Self> {
        let state = ProcessState {
            paused: false,
            has_crashed: false,
            resumed: Instant::now(),
            parked: Vec::new(),
            tasks: Vec::new(),
        };
        Arc::new(Self {
            number,
            jitter: AtomicU64::new(jitter),
            late_polls,
            schedule: Mutex::new(Rng::with_seed(jitter.rotate_left(32))),
            started: state.resumed,
            state: Mutex::new(state),
            give_up: Notify::new(),
            contacts: Arc::default(),
        })
    }

    pub(super) fn spawn<F>(self: &Arc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let gate = Gate {
            process: Arc::clone(self),
            future: Box::pin(future),
        };
        let handle = tokio::spawn(gate);
        let tasks = &mut lock(&self.state).tasks;
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(handle.abort_handle());
        handle
    }

    pub(super) fn pause(&self) {
        lock(&self.state).paused = true;
    }

    /// Resumes all tasks in a random order.
    pub(super) fn resume(&self, rng: &mut Rng) {
        let mut state = lock(&self.state);
        state.paused = false;
        state.resumed = Instant::now();
        let mut parked = std::mem::take(&mut state.parked);
        drop(state);
        rng.shuffle(&mut parked);
        parked.into_iter().for_each(Waker::wake);
    }

    /// Ends all tasks at once; requests that were sent still arrive.
    pub(super) fn crash(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.has_crashed = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    pub(super) fn has_crashed(&self) -> bool {
        lock(&self.state).has_crashed
    }

    /// The time since which the process has run without a pause.
    pub(super) fn resumed(&self) -> Instant {
        lock(&self.state).resumed
    }

    /// Whether the process has been stopped within this time.
    pub(super) fn was_paused_within(&self, period: Duration) -> bool {
        let state = lock(&self.state);
        state.paused || (state.resumed != self.started && state.resumed.elapsed() < period)
    }

    /// Whether the id of a claim is one of this process.
    pub(super) fn owns(&self, lock_id: &str) -> bool {
        number_in(lock_id) == Some(self.number)
    }

    fn park(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        if state.paused {
            state.parked.push(waker.clone());
        }
        state.paused
    }

    /// Whether the next poll of a task comes after those of other tasks that are ready.
    fn polls_late(&self) -> bool {
        self.late_polls > 0 && chance(&mut lock(&self.schedule), self.late_polls)
    }
}

/// The number of the process that has this claim.
pub(super) fn number_in(lock_id: &str) -> Option<usize> {
    let (owner, _) = lock_id.split_once('#')?;
    owner.strip_prefix('p')?.parse().ok()
}

impl<F: Future> Future for Gate<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.process.park(cx.waker()) {
            return Poll::Pending;
        }
        if self.process.polls_late() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = CURRENT.replace(Some(Arc::clone(&self.process)));
        fastrand::seed(self.process.jitter.load(Relaxed));
        let polled = self.future.as_mut().poll(cx);
        self.process.jitter.store(fastrand::get_seed(), Relaxed);
        CURRENT.set(before);
        polled
    }
}
