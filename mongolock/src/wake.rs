//! Push instead of poll: releases in other processes wake those who wait here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::store::{Releases, Store};
use crate::sync::lock;
use crate::{LockError, fault, trace};

/// The stream of releases is closed when nobody has waited for so long: it costs the server a cursor and the client a
/// connection.
const IDLE: Duration = Duration::from_secs(5);

/// A stream that has not answered for so long hangs, and wakes nobody: it answers every second that there is nothing new.
const SILENT: Duration = Duration::from_secs(10);

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
    /// Switched off, or the server cannot or may not: poll for good.
    Unavailable,
}

/// One who waits for a lock, until dropped.
pub(crate) struct Watch {
    wake_ups: Arc<WakeUps>,
    name: Arc<str>,
    woken: Arc<Notify>,
}

impl WakeUps {
    pub(crate) fn new(store: Arc<Store>, enabled: bool) -> Self {
        let stream = if enabled {
            Stream::Closed
        } else {
            Stream::Unavailable
        };
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

    /// Has the caller woken by releases of the lock from now on; `None` where that cannot be had. Whatever happened
    /// before, the caller has to ask the server once more: it is woken for that as soon as the stream is open.
    pub(crate) fn watch(self: &Arc<Self>, name: &Arc<str>) -> Option<Watch> {
        let mut desk = lock(&self.desk);
        let woken = Arc::new(Notify::new());
        match desk.stream {
            Stream::Unavailable => return None,
            Stream::Open => woken.notify_one(),
            Stream::Closed => {}
        }
        desk.waiters.insert(Arc::clone(name), Arc::clone(&woken));
        desk.used = Instant::now();
        if desk.task.as_ref().is_none_or(JoinHandle::is_finished) {
            desk.task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
        Some(Watch {
            wake_ups: Arc::clone(self),
            name: Arc::clone(name),
            woken,
        })
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
        if desk.stream != Stream::Unavailable {
            desk.stream = stream;
        }
        desk.heard = Instant::now();
        desk.waiters.values().for_each(|woken| woken.notify_one());
    }

    /// Ends the task if nobody has waited for a while, or for good; whoever comes after an idle while starts another.
    fn close_if_idle(&self) -> bool {
        let mut desk = lock(&self.desk);
        if desk.stream == Stream::Unavailable {
            return true;
        }
        let idle = desk.waiters.is_empty() && desk.used.elapsed() >= IDLE;
        if idle {
            desk.stream = Stream::Closed;
            desk.task = None;
        }
        idle
    }

    /// For good: the stream is closed with its next answer.
    pub(crate) fn stop(&self) {
        self.turn(Stream::Unavailable);
    }
}

impl Watch {
    /// Whether releases reach the caller now.
    pub(crate) fn is_open(&self) -> bool {
        let desk = lock(&self.wake_ups.desk);
        desk.stream == Stream::Open && desk.heard.elapsed() < SILENT
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
            Err(error) if !fault::is_passing(&error) => {
                trace::wake_up_failed(&error);
                wake_ups.turn(Stream::Unavailable);
                return;
            }
            Err(error) => trace::wake_up_failed(&error),
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
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn a_stream_counts_as_open_while_it_answers() {
        let store = Store::Memory(Arc::new(MemoryStore::new()));
        let wake_ups = Arc::new(WakeUps::new(Arc::new(store), true));
        let watch = wake_ups.watch(&Arc::from("n")).unwrap();
        tokio::time::sleep(SILENT * 3).await;
        assert!(watch.is_open(), "nothing is released, and it says so");
        // From here on nothing is heard of it.
        lock(&wake_ups.desk).task.as_ref().unwrap().abort();
        assert!(watch.is_open());
        tokio::time::sleep(SILENT).await;
        assert!(!watch.is_open());
    }
}
