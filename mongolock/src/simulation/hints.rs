//! The change stream as one process receives it.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::pool::Connection;
use super::wake_ups::heard;
use super::{chance, errors};
use crate::LockError;
use crate::store::{HolderChange, StreamFilter};

impl Link {
    pub(crate) async fn watch(self: &Arc<Self>) -> Result<Hints, LockError> {
        let mut connection = Some(self.connection().await);
        self.admitted(&mut connection).await?;
        if self.server.silent.load(Relaxed) {
            pending::<()>().await;
        }
        if self.is_faulty() {
            sleep(self.between(0, 3000)).await;
            return Err(errors::broken_connection().into());
        }
        Ok(Hints {
            releases: self.server.memory.listen(),
            batch: VecDeque::new(),
            link: Arc::clone(self),
            _connection: connection,
        })
    }
}

/// The stream of events as one process receives it.
pub(crate) struct Hints {
    releases: broadcast::Receiver<HolderChange>,
    /// The events of the last reply that were not read yet, in a scene.
    batch: VecDeque<HolderChange>,
    link: Arc<Link>,
    /// The stream keeps a connection for as long as it is open.
    _connection: Option<Connection>,
}

impl Hints {
    /// Has the stream report other locks, which may fail.
    pub(crate) fn switch(&self) -> Result<(), LockError> {
        if self.link.is_faulty() {
            return Err(errors::broken_connection().into());
        }
        Ok(())
    }

    /// The next event that this filter admits, as the server applies it.
    pub(crate) async fn next(&mut self, filter: &StreamFilter) -> Result<Option<HolderChange>, LockError> {
        if self.link.knobs.way.is_some() {
            return Ok(self.next_of_batch(filter).await);
        }
        let event = timeout(Duration::from_secs(1), self.releases.recv()).await;
        let mut event = event.ok().and_then(Result::ok);
        if self.link.is_faulty() {
            sleep(self.link.between(0, 1000)).await;
            match self.link.between(0, 2).as_millis() {
                0 => return Err(errors::broken_connection().into()),
                1 => event = None,
                _ => {}
            }
        }
        if event.is_some() && self.link.knobs.event_delay > 0 {
            sleep(self.link.between(0, self.link.knobs.event_delay)).await;
            if chance(&mut self.link.rng(), self.link.knobs.lost_events) {
                event = None;
            }
        }
        if let Some(HolderChange::Acquired { name, .. }) = &event {
            self.link.process.contacts.heard_of(name);
        }
        let event = event.filter(|event| filter.admits(event.name()));
        if let Some(event) = &event {
            heard(&self.link.server, &self.link.process, event);
        }
        Ok(event)
    }

    /// The next event in a scene. A stream gets all events in one reply that have happened since the last one, and asks for
    /// another reply only after it has read them.
    async fn next_of_batch(&mut self, filter: &StreamFilter) -> Option<HolderChange> {
        if self.batch.is_empty() {
            self.link.server.traffic.stream_replies.fetch_add(1, Relaxed);
            sleep(self.link.message(0)).await;
            let first = timeout(Duration::from_secs(1), self.releases.recv()).await;
            self.batch.extend(first.ok().and_then(Result::ok));
            while let Ok(event) = self.releases.try_recv() {
                self.batch.push_back(event);
            }
            self.batch.retain(|event| filter.admits(event.name()));
            sleep(self.link.message(0)).await;
        }
        self.batch.pop_front()
    }
}
