//! Wake-ups instead of polling: releases in other processes wake the waiters of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::store::driver_error;
use crate::store::{Releases, Store};
use crate::sync::lock;
use crate::timing::{STREAM_IDLE, STREAM_SILENT, STREAM_UNAVAILABLE};
use crate::{LockError, trace};

/// Wakes the waiters for a lock when another process releases it. One change stream serves the whole provider, and it is
/// open only while there are waiters. A wake-up is a hint: a waiter that is woken sends an acquire request, and one that
/// is not woken sends it later.
pub(crate) struct ReleaseNotifier {
    store: Arc<Store>,
    state: Mutex<State>,
}

struct State {
    /// What wakes the waiter of a name.
    waiters: BTreeMap<Arc<str>, Arc<Notify>>,
    stream: StreamState,
    /// The task that opens and reads the stream.
    task: Option<JoinHandle<()>>,
    /// The time of the stream's last reply, with or without a release.
    last_reply: Instant,
    /// The time at which a waiter last came or left.
    last_used: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamState {
    Closed,
    Open,
    /// The server has no change streams or does not allow them; the stream is not opened again before this time.
    Unavailable(Instant),
    /// Wake-ups are switched off, or the provider is shut down; the stream is never opened again.
    Off,
}

/// The registration of one waiter, until it is dropped.
pub(crate) struct Subscription {
    notifier: Arc<ReleaseNotifier>,
    name: Arc<str>,
    woken: Arc<Notify>,
}

impl ReleaseNotifier {
    pub(crate) fn new(store: Arc<Store>, enabled: bool) -> Self {
        let stream = if enabled {
            StreamState::Closed
        } else {
            StreamState::Off
        };
        let state = State {
            waiters: BTreeMap::new(),
            stream,
            task: None,
            last_reply: Instant::now(),
            last_used: Instant::now(),
        };
        Self {
            store,
            state: Mutex::new(state),
        }
    }

    /// Registers the caller for wake-ups by releases of the lock; `None` if wake-ups are switched off. A release before
    /// the stream is open is not seen, so the caller is woken once as soon as it is open, to send another request.
    pub(crate) fn subscribe(self: &Arc<Self>, name: &Arc<str>) -> Option<Subscription> {
        let mut state = lock(&self.state);
        let woken = Arc::new(Notify::new());
        match state.stream {
            StreamState::Off => return None,
            StreamState::Open => woken.notify_one(),
            StreamState::Closed | StreamState::Unavailable(_) => {}
        }
        state.waiters.insert(Arc::clone(name), Arc::clone(&woken));
        state.last_used = Instant::now();
        self.ensure_running(&mut state);
        Some(Subscription {
            notifier: Arc::clone(self),
            name: Arc::clone(name),
            woken,
        })
    }

    /// Starts the task that opens the stream, unless it runs or the stream is not available at this time.
    fn ensure_running(self: &Arc<Self>, state: &mut State) {
        let may_open = match state.stream {
            StreamState::Closed | StreamState::Open => true,
            StreamState::Unavailable(until) => until <= Instant::now(),
            StreamState::Off => false,
        };
        if may_open && state.task.as_ref().is_none_or(JoinHandle::is_finished) {
            state.task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// Whether releases wake the waiters at present.
    pub(crate) fn is_open(&self) -> bool {
        let state = lock(&self.state);
        state.stream == StreamState::Open && state.last_reply.elapsed() < STREAM_SILENT
    }

    /// Whether there is no waiter and no open stream.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiters.is_empty() && state.stream != StreamState::Open
    }

    fn note_reply(&self) {
        lock(&self.state).last_reply = Instant::now();
    }

    fn wake(&self, name: &str) {
        if let Some(woken) = lock(&self.state).waiters.get(name) {
            woken.notify_one();
        }
    }

    /// Changes the state of the stream and wakes all waiters: releases before the change may not have been seen.
    fn set_stream(&self, stream: StreamState) {
        let mut state = lock(&self.state);
        if state.stream != StreamState::Off {
            state.stream = stream;
        }
        state.last_reply = Instant::now();
        state.waiters.values().for_each(|woken| woken.notify_one());
    }

    /// Notes that the stream could not be opened, and returns whether the task tries again soon.
    fn retries_after(&self, error: &LockError) -> bool {
        trace::wake_up_failed(error);
        let is_unavailable = driver_error::is_unavailable_stream(error);
        if is_unavailable {
            // The pause varies by a fifth, so that many processes do not try again at the same time.
            let pause = STREAM_UNAVAILABLE.mul_f64(0.8 + 0.4 * fastrand::f64());
            self.set_stream(StreamState::Unavailable(Instant::now() + pause));
        }
        !is_unavailable
    }

    /// Closes the stream if there was no waiter for a while, and returns whether the task ends; the next waiter starts
    /// another one.
    fn close_if_idle(&self) -> bool {
        let mut state = lock(&self.state);
        if state.stream == StreamState::Off {
            return true;
        }
        let idle = state.waiters.is_empty() && state.last_used.elapsed() >= STREAM_IDLE;
        if idle {
            state.stream = StreamState::Closed;
            state.task = None;
        }
        idle
    }

    /// Switches wake-ups off permanently; the stream is closed after its next reply.
    pub(crate) fn stop(&self) {
        self.set_stream(StreamState::Off);
    }
}

impl Subscription {
    /// Tries to open an unavailable stream again if its time has come. It is called at each poll, so that no task has to
    /// exist during the pause.
    pub(crate) fn retry(&self) {
        self.notifier.ensure_running(&mut lock(&self.notifier.state));
    }

    /// Whether releases wake the caller at present.
    pub(crate) fn is_open(&self) -> bool {
        self.notifier.is_open()
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = lock(&self.notifier.state);
        // A later subscription of the same name may have replaced this one.
        if state
            .waiters
            .get(&self.name)
            .is_some_and(|woken| Arc::ptr_eq(woken, &self.woken))
        {
            state.waiters.remove(&self.name);
        }
        state.last_used = Instant::now();
    }
}

async fn run(notifier: Arc<ReleaseNotifier>) {
    let pauses = Duration::from_millis(100)..=Duration::from_secs(10);
    let mut backoff = Backoff::new(pauses.clone());
    loop {
        match notifier.store.watch().await {
            Ok(releases) => {
                notifier.set_stream(StreamState::Open);
                let opened = Instant::now();
                match follow(&notifier, releases).await {
                    Ok(()) => return,
                    Err(error) => trace::wake_up_failed(&error),
                }
                notifier.set_stream(StreamState::Closed);
                if opened.elapsed() > *pauses.end() {
                    backoff = Backoff::new(pauses.clone());
                }
            }
            Err(error) if !notifier.retries_after(&error) => return,
            Err(_) => {}
        }
        if notifier.close_if_idle() {
            return;
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Wakes waiters when an open stream reports releases, until no waiter is left.
async fn follow(notifier: &ReleaseNotifier, mut releases: Releases) -> Result<(), LockError> {
    loop {
        let name = releases.next().await?;
        notifier.note_reply();
        if let Some(name) = name {
            notifier.wake(&name);
        }
        if notifier.close_if_idle() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use mongodb::error::{CommandError, ErrorKind};
    use serde::Deserialize;
    use serde::de::value::MapDeserializer;

    use super::*;
    use crate::store::MemoryStore;

    fn in_memory() -> Arc<ReleaseNotifier> {
        let store = Store::Memory(Arc::new(MemoryStore::new()));
        Arc::new(ReleaseNotifier::new(Arc::new(store), true))
    }

    fn subscribe(notifier: &Arc<ReleaseNotifier>) -> Subscription {
        notifier
            .subscribe(&Arc::from("n"))
            .expect("wake-ups are switched on")
    }

    /// A command error with this code, as the server sends it.
    fn command_error(code: i32) -> LockError {
        let reply = MapDeserializer::<_, serde::de::value::Error>::new([("code", code)].into_iter());
        let error = CommandError::deserialize(reply).unwrap();
        LockError::Mongo(ErrorKind::Command(error).into())
    }

    /// Polls as a waiter does for this time, and returns whether the stream is open then.
    async fn opens_within(subscription: &Subscription, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !subscription.is_open() && Instant::now() < end {
            subscription.retry();
            tokio::time::sleep(Duration::from_millis(800)).await;
        }
        subscription.is_open()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_after_minutes() {
        for code in [13, 40573] {
            let notifier = in_memory();
            assert!(!notifier.retries_after(&command_error(code)));
            let waiter = subscribe(&notifier);
            assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3 / 4).await);
            assert!(opens_within(&waiter, STREAM_UNAVAILABLE / 2).await);
        }
    }

    /// No waiter is registered when the pause ends, and no task exists until the next waiter registers.
    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_for_the_next_waiter() {
        let notifier = in_memory();
        notifier.retries_after(&command_error(13));
        drop(subscribe(&notifier));
        tokio::time::sleep(STREAM_UNAVAILABLE * 2).await;
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
        let waiter = subscribe(&notifier);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(waiter.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn after_any_other_error_the_stream_is_opened_again_soon() {
        let (notifier, connection) = (in_memory(), std::io::Error::other("cut"));
        let others = [20, 40, 136, 280, 8000].map(command_error);
        for error in others.into_iter().chain([LockError::Mongo(connection.into())]) {
            assert!(notifier.retries_after(&error), "{error}");
            assert_eq!(lock(&notifier.state).stream, StreamState::Closed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_notifier_never_opens_a_stream() {
        let notifier = in_memory();
        let waiter = subscribe(&notifier);
        notifier.stop();
        notifier.retries_after(&command_error(13));
        assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
        assert!(notifier.subscribe(&Arc::from("n")).is_none());
        let off = Arc::new(ReleaseNotifier::new(Arc::clone(&notifier.store), false));
        tokio::time::sleep(STREAM_UNAVAILABLE * 3).await;
        assert!(off.subscribe(&Arc::from("n")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_replies_no_longer_counts_as_open() {
        let notifier = in_memory();
        let subscription = subscribe(&notifier);
        tokio::time::sleep(STREAM_SILENT * 3).await;
        assert!(subscription.is_open(), "replies without a release count");
        // There are no replies from here on.
        lock(&notifier.state).task.as_ref().unwrap().abort();
        assert!(subscription.is_open());
        tokio::time::sleep(STREAM_SILENT).await;
        assert!(!subscription.is_open());
    }
}
