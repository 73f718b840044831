//! The task that reads the changes of documents, and sends them as events.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Weak};

use mongodb::bson::DateTime;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::event::{LockEvent, LockEventKind};
use super::known::Known;
use crate::engine::Engine;
use crate::error::meaning::Meaning;
use crate::store::{Begin, DocumentStream, Store, StreamFilter, TakenOrDamaged};
use crate::timing::{EVENTS_LOOK, EVENTS_REOPEN, EVENTS_TOGETHER, HISTORY_PAUSE};
use crate::{LockError, LockFilter, task};

/// The selection of a stream of events.
pub(super) struct Plan {
    pub(super) filter: LockFilter,
    /// The time at which it begins; `None` for now.
    pub(super) since: Option<DateTime>,
    /// Whether it ends when it has read the events up to its beginning.
    pub(super) ends_at_present: bool,
}

impl Plan {
    pub(super) fn new(filter: LockFilter) -> Self {
        Self {
            filter,
            since: None,
            ends_at_present: false,
        }
    }

    /// The point at which the first stream begins.
    fn begin(&self) -> Begin {
        self.since.map_or(Begin::Now, Begin::at)
    }

    /// Whether reads of the locks are not enough.
    fn needs_stream(&self) -> bool {
        self.since.is_some() || self.ends_at_present
    }

    fn check(&self) -> Result<(), LockError> {
        let filter = &self.filter;
        let state = filter.state.map(|state| ("state", format!("{state:?}")));
        match state.or(filter.limit.map(|limit| ("limit", limit.to_string()))) {
            Some((option, value)) => Err(LockError::InvalidOption {
                option,
                value,
                bound: "none for events".to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// The channel of the events. An error ends the stream; `None` ends it without a reason.
pub(super) type Events = Sender<Result<LockEvent, Option<LockError>>>;

/// Starts the task that sends the events. A task is needed because a request of the driver must not be dropped before
/// its end.
pub(super) fn start(plan: Plan, engine: &Weak<Engine>, store: Arc<Store>, events: Events) {
    let reader = Reader {
        known: Known::new(),
        complete: plan.since.is_none().then(Instant::now),
        last: plan.since,
        plan,
        engine: Weak::clone(engine),
        store,
        events: events.clone(),
        has_begun: false,
        is_live: false,
        no_look_before: Instant::now(),
    };
    task::spawn(report(events, reader.read()));
}

/// Sends the reason for which a task has ended.
async fn report(events: Events, task: impl Future<Output = Result<(), LockError>>) {
    let end = task.await.err().filter(|error| !error.is_closed());
    // It fails if the reader was dropped.
    let _ = events.send(Err(end)).await;
}

/// Whether opening the stream again is useless.
fn is_final(error: &LockError) -> bool {
    error.is_closed() || error.is_without_streams()
}

/// The task that sends the events of locks.
struct Reader {
    plan: Plan,
    engine: Weak<Engine>,
    store: Arc<Store>,
    events: Events,
    known: Known,
    /// Whether the server has sent a reply of the stream.
    has_begun: bool,
    /// Whether the stream has reached the present: past events are sent before the results of a query.
    is_live: bool,
    /// The last time at which the stream had reached the present, so that no event was missed; `None` before the first
    /// time.
    complete: Option<Instant>,
    /// The time of the last change. It may be long ago, because the reader of the events may be slow.
    last: Option<DateTime>,
    /// No query for ended leases is sent before this time.
    no_look_before: Instant,
}

impl Reader {
    async fn read(mut self) -> Result<(), LockError> {
        self.plan.check()?;
        let mut stream = match self.open(self.plan.begin()).await {
            Ok(stream) => stream,
            Err(error) if error.is_without_streams() && !self.plan.needs_stream() => {
                return self.look().await;
            }
            Err(error) => return Err(error),
        };
        // The stream was opened before the read, so that no change after it is missed.
        if self.plan.since.is_none() {
            self.read_present().await?;
        }
        while !self.events.is_closed() {
            let Err(error) = self.follow(&mut stream).await else {
                return Ok(());
            };
            let is_lost = error.meaning() == Meaning::HistoryLost;
            if is_final(&error) || is_lost && !self.has_begun {
                return Err(error);
            }
            // In the past the collection may have been dropped several times.
            let is_ended = error.meaning() == Meaning::StreamEnded;
            sleep(if is_ended { HISTORY_PAUSE } else { EVENTS_REOPEN }).await;
            if is_lost {
                match self.bridge().await {
                    Ok(next) => stream = next,
                    Err(error) if is_final(&error) => return Err(error),
                    // The stream will report again that its history is lost.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    async fn open(&self, begin: Begin) -> Result<DocumentStream, LockError> {
        self.store
            .document_changes(&self.plan.filter, begin, self.plan.ends_at_present)
            .await
    }

    /// Sends the events of a stream up to its end, or until the reader is dropped.
    async fn follow(&mut self, stream: &mut DocumentStream) -> Result<(), LockError> {
        while !self.events.is_closed() {
            let change = {
                let mut next = pin!(stream.next());
                loop {
                    tokio::select! {
                        change = &mut next => break change?,
                        () = until(self.next_look()) => self.look_at_ends().await,
                    }
                }
            };
            self.has_begun = true;
            match change {
                Some(change) => {
                    self.last = self.last.max(Some(change.at));
                    let events = self.known.change(change, Instant::now());
                    self.send(events).await;
                }
                None if stream.is_over() => return Ok(()),
                None => {
                    self.is_live = true;
                    self.complete = Some(Instant::now());
                    self.known.caught_up();
                    if self.plan.ends_at_present {
                        // The server does not wait for changes of a stream with an end.
                        sleep(HISTORY_PAUSE).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a stream that begins now, because events were missed, and sends the changes in between.
    async fn bridge(&mut self) -> Result<DocumentStream, LockError> {
        let stream = self.open(Begin::Now).await?;
        let (found, at) = self.taken(None).await?;
        let since = self.complete.map(|complete| {
            let missing = i64::try_from(complete.elapsed().as_millis()).unwrap_or(i64::MAX);
            DateTime::from_millis(at.timestamp_millis().saturating_sub(missing))
        });
        let gap = LockEvent {
            since: since.max(self.last),
            ..LockEvent::new(LockEventKind::Gap, at)
        };
        let changed = self.known.read(found, at, Instant::now());
        (self.complete, self.last) = (Some(Instant::now()), Some(at));
        self.send([vec![gap], changed].concat()).await;
        Ok(stream)
    }

    /// Sends the present holds.
    async fn read_present(&mut self) -> Result<(), LockError> {
        let (found, at) = self.taken(None).await?;
        let mut events = self.known.read(found, at, Instant::now());
        events.retain(|event| event.kind.is_held());
        for event in &mut events {
            event.kind = LockEventKind::Held;
        }
        self.send(events).await;
        Ok(())
    }

    /// The taken locks, or those of them with these `_id`s, and the server's time.
    async fn taken(&self, ids: Option<&[String]>) -> Result<(Vec<TakenOrDamaged>, DateTime), LockError> {
        let found = self.store.taken_locks(&self.plan.filter, ids).await?;
        let at = match found.iter().flatten().next() {
            Some(lock) => lock.read_at,
            None => self.store.server_time().await?,
        };
        Ok((found, at))
    }

    /// The time at which the next known lease ends.
    fn next_look(&self) -> Option<Instant> {
        let next = self.is_live.then(|| self.known.next_end())??;
        Some(next.max(self.no_look_before))
    }

    /// Reads the locks whose known leases have ended.
    async fn look_at_ends(&mut self) {
        let due = self.known.due(Instant::now());
        if due.is_empty() {
            return;
        }
        // Leases that end soon after these are read with one query.
        self.no_look_before = Instant::now() + EVENTS_TOGETHER;
        match self.taken(Some(&due)).await {
            Ok((found, at)) => {
                let events = self.known.read_due(&due, found, at, Instant::now());
                self.send(events).await;
            }
            // This query fails during an election; the stream must survive that.
            Err(_) => self.no_look_before = Instant::now() + EVENTS_LOOK,
        }
    }

    /// Reads the locks repeatedly if there are no change streams.
    async fn look(mut self) -> Result<(), LockError> {
        let mut hints = if self.store.never_waits() {
            Some(self.store.watch(StreamFilter::All).await?)
        } else {
            None
        };
        self.read_present().await?;
        while !self.events.is_closed() && !self.is_shut_down() {
            match &mut hints {
                Some(hints) => drop(timeout(EVENTS_LOOK, hints.next()).await),
                None => sleep(EVENTS_LOOK).await,
            }
            match self.taken(None).await {
                Ok((found, at)) => {
                    let events = self.known.read(found, at, Instant::now());
                    self.send(events).await;
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the provider is shut down. After the provider was dropped, the events continue.
    fn is_shut_down(&self) -> bool {
        self.engine.upgrade().is_some_and(|engine| engine.is_closed())
    }

    /// Sends the events that match the filter. The caller notices if the reader was dropped.
    async fn send(&self, events: Vec<LockEvent>) {
        for event in events {
            if admits(&self.plan.filter, &event) && self.events.send(Ok(event)).await.is_err() {
                return;
            }
        }
    }
}

/// Whether the holder or the former holder in an event matches the filter.
fn admits(filter: &LockFilter, event: &LockEvent) -> bool {
    let is_owner = |owner: &Option<String>| *owner == filter.owner;
    filter.owner.is_none()
        || event.name.is_empty()
        || is_owner(&event.owner)
        || is_owner(&event.previous_owner)
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
