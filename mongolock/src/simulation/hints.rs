//! The change stream as one process receives it.

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
use crate::protocol::News;
use crate::store::StreamFilter;

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
            link: Arc::clone(self),
            _connection: connection,
        })
    }
}

/// The stream of events as one process receives it.
pub(crate) struct Hints {
    releases: broadcast::Receiver<News>,
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
    pub(crate) async fn next(&mut self, filter: &StreamFilter) -> Result<Option<News>, LockError> {
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
        if let Some(news) = event.as_ref().filter(|news| news.holder().is_some()) {
            self.link.process.contacts.heard_of(&news.name);
        }
        let event = event.filter(|event| filter.admits(&event.name));
        if let Some(event) = &event {
            heard(&self.link.server, &self.link.process, event);
        }
        Ok(event)
    }
}
