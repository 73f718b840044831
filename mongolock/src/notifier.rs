//! Push instead of poll: releases in other processes wake those who wait here.

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

/// Wakes those who wait for a lock when somebody releases it, by one stream of the store's releases for the whole
/// provider, open only while somebody waits. A wake-up is a hint: who is woken asks the server, and who is not asks it
/// later.
pub(crate) struct WakeUps {
    store: Arc<Store>,
    desk: Mutex<Desk>,
}

struct Desk {
    waiters: BTreeMap<Arc<str>, Arc<Notify>>,
    stream: Stream,
    task: Option<JoinHandle<()>>,
    /// When the stream last answered, be it that there is nothing new.
    heard: Instant,
    /// When somebody last began or ended to wait.
    used: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Closed,
    Open,
    /// The server has no change streams, or does not allow them: not opened again before this time.
    Unavailable(Instant),
    /// Switched off, or shut down: never opened again.
    Off,
}

/// One who waits for a lock, until dropped.
pub(crate) struct Watch {
    wake_ups: Arc<WakeUps>,
    name: Arc<str>,
    woken: Arc<Notify>,
}

impl WakeUps {
    pub(crate) fn new(store: Arc<Store>, enabled: bool) -> Self {
        let stream = if enabled { Stream::Closed } else { Stream::Off };
        let desk = Desk {
            waiters: BTreeMap::new(),
            stream,
            task: None,
            heard: Instant::now(),
            used: Instant::now(),
        };
        Self {
            store,
            desk: Mutex::new(desk),
        }
    }

    /// Has the caller woken by releases of the lock from now on; `None` where wake-ups are switched off. Whatever happened
    /// before, the caller has to ask the server once more: it is woken for that as soon as the stream is open.
    pub(crate) fn watch(self: &Arc<Self>, name: &Arc<str>) -> Option<Watch> {
        let mut desk = lock(&self.desk);
        let woken = Arc::new(Notify::new());
        match desk.stream {
            Stream::Off => return None,
            Stream::Open => woken.notify_one(),
            Stream::Closed | Stream::Unavailable(_) => {}
        }
        desk.waiters.insert(Arc::clone(name), Arc::clone(&woken));
        desk.used = Instant::now();
        self.ensure_running(&mut desk);
        Some(Watch {
            wake_ups: Arc::clone(self),
            name: Arc::clone(name),
            woken,
        })
    }

    /// Starts the task that opens the stream, unless there is one or the time for it has not come.
    fn ensure_running(self: &Arc<Self>, desk: &mut Desk) {
        let may_open = match desk.stream {
            Stream::Closed | Stream::Open => true,
            Stream::Unavailable(until) => until <= Instant::now(),
            Stream::Off => false,
        };
        if may_open && desk.task.as_ref().is_none_or(JoinHandle::is_finished) {
            desk.task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// Whether nobody waits and no stream is open.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let desk = lock(&self.desk);
        desk.waiters.is_empty() && desk.stream != Stream::Open
    }

    fn heard(&self) {
        lock(&self.desk).heard = Instant::now();
    }

    fn wake(&self, name: &str) {
        if let Some(woken) = lock(&self.desk).waiters.get(name) {
            woken.notify_one();
        }
    }

    /// Everybody looks again: what happened while the stream was in another state was not seen.
    fn turn(&self, stream: Stream) {
        let mut desk = lock(&self.desk);
        if desk.stream != Stream::Off {
            desk.stream = stream;
        }
        desk.heard = Instant::now();
        desk.waiters.values().for_each(|woken| woken.notify_one());
    }

    /// Notes that the stream could not be opened; returns whether the task goes on and tries again soon.
    fn retries_after(&self, error: &LockError) -> bool {
        trace::wake_up_failed(error);
        let is_unavailable = driver_error::is_unavailable_stream(error);
        if is_unavailable {
            // A fifth more or less, so that a fleet does not try again together.
            let pause = STREAM_UNAVAILABLE.mul_f64(0.8 + 0.4 * fastrand::f64());
            self.turn(Stream::Unavailable(Instant::now() + pause));
        }
        !is_unavailable
    }

    /// Ends the task if nobody has waited for a while, or for good; whoever comes after an idle while starts another.
    fn close_if_idle(&self) -> bool {
        let mut desk = lock(&self.desk);
        if desk.stream == Stream::Off {
            return true;
        }
        let idle = desk.waiters.is_empty() && desk.used.elapsed() >= STREAM_IDLE;
        if idle {
            desk.stream = Stream::Closed;
            desk.task = None;
        }
        idle
    }

    /// For good: the stream is closed with its next answer.
    pub(crate) fn stop(&self) {
        self.turn(Stream::Off);
    }
}

impl Watch {
    /// Tries to open a stream again that was unavailable, if it is time for that. Called at each poll, so that no task has
    /// to live through the pause.
    pub(crate) fn retry(&self) {
        self.wake_ups.ensure_running(&mut lock(&self.wake_ups.desk));
    }

    /// Whether releases reach the caller now.
    pub(crate) fn is_open(&self) -> bool {
        let desk = lock(&self.wake_ups.desk);
        desk.stream == Stream::Open && desk.heard.elapsed() < STREAM_SILENT
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut desk = lock(&self.wake_ups.desk);
        // A later watch of the same name has taken the place.
        if desk
            .waiters
            .get(&self.name)
            .is_some_and(|woken| Arc::ptr_eq(woken, &self.woken))
        {
            desk.waiters.remove(&self.name);
        }
        desk.used = Instant::now();
    }
}

async fn run(wake_ups: Arc<WakeUps>) {
    let pauses = Duration::from_millis(100)..=Duration::from_secs(10);
    let mut backoff = Backoff::new(pauses.clone());
    loop {
        match wake_ups.store.watch().await {
            Ok(releases) => {
                wake_ups.turn(Stream::Open);
                let opened = Instant::now();
                match follow(&wake_ups, releases).await {
                    Ok(()) => return,
                    Err(error) => trace::wake_up_failed(&error),
                }
                wake_ups.turn(Stream::Closed);
                if opened.elapsed() > *pauses.end() {
                    backoff = Backoff::new(pauses.clone());
                }
            }
            Err(error) if !wake_ups.retries_after(&error) => return,
            Err(_) => {}
        }
        if wake_ups.close_if_idle() {
            return;
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Passes releases on until nobody waits any more.
async fn follow(wake_ups: &WakeUps, mut releases: Releases) -> Result<(), LockError> {
    loop {
        let name = releases.next().await?;
        wake_ups.heard();
        if let Some(name) = name {
            wake_ups.wake(&name);
        }
        if wake_ups.close_if_idle() {
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

    fn in_memory() -> Arc<WakeUps> {
        let store = Store::Memory(Arc::new(MemoryStore::new()));
        Arc::new(WakeUps::new(Arc::new(store), true))
    }

    fn watch(wake_ups: &Arc<WakeUps>) -> Watch {
        wake_ups.watch(&Arc::from("n")).expect("it is switched on")
    }

    /// As the server answers it.
    fn command_error(code: i32) -> LockError {
        let reply = MapDeserializer::<_, serde::de::value::Error>::new([("code", code)].into_iter());
        let error = CommandError::deserialize(reply).unwrap();
        LockError::Mongo(ErrorKind::Command(error).into())
    }

    /// A waiter polls for so long; returns whether the stream is open then.
    async fn opens_within(watch: &Watch, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !watch.is_open() && Instant::now() < end {
            watch.retry();
            tokio::time::sleep(Duration::from_millis(800)).await;
        }
        watch.is_open()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_after_minutes() {
        for code in [13, 40573] {
            let wake_ups = in_memory();
            assert!(!wake_ups.retries_after(&command_error(code)));
            let waiter = watch(&wake_ups);
            assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3 / 4).await);
            assert!(opens_within(&waiter, STREAM_UNAVAILABLE / 2).await);
        }
    }

    /// Nobody waits when the time has come.
    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_for_the_next_waiter() {
        let wake_ups = in_memory();
        wake_ups.retries_after(&command_error(13));
        drop(watch(&wake_ups));
        tokio::time::sleep(STREAM_UNAVAILABLE * 2).await;
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
        let waiter = watch(&wake_ups);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(waiter.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_error_is_tried_again_soon() {
        let (wake_ups, connection) = (in_memory(), std::io::Error::other("cut"));
        let others = [20, 40, 136, 280, 8000].map(command_error);
        for error in others.into_iter().chain([LockError::Mongo(connection.into())]) {
            assert!(wake_ups.retries_after(&error), "{error}");
            assert_eq!(lock(&wake_ups.desk).stream, Stream::Closed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stopped_stays_off() {
        let wake_ups = in_memory();
        let waiter = watch(&wake_ups);
        wake_ups.stop();
        wake_ups.retries_after(&command_error(13));
        assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
        assert!(wake_ups.watch(&Arc::from("n")).is_none());
        let off = Arc::new(WakeUps::new(Arc::clone(&wake_ups.store), false));
        tokio::time::sleep(STREAM_UNAVAILABLE * 3).await;
        assert!(off.watch(&Arc::from("n")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_counts_as_open_while_it_answers() {
        let wake_ups = in_memory();
        let watch = watch(&wake_ups);
        tokio::time::sleep(STREAM_SILENT * 3).await;
        assert!(watch.is_open(), "nothing is released, and it says so");
        // From here on nothing is heard of it.
        lock(&wake_ups.desk).task.as_ref().unwrap().abort();
        assert!(watch.is_open());
        tokio::time::sleep(STREAM_SILENT).await;
        assert!(!watch.is_open());
    }
}
