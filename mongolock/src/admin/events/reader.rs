//! The task that reads the changes of documents, and sends them as events.

use std::pin::pin;
use std::sync::{Arc, Weak};

use mongodb::bson::DateTime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::event::{LockEvent, LockEventKind};
use super::known::{KnownLocks, Moment, gap};
use crate::engine::Engine;
use crate::error::meaning::Meaning;
use crate::options::ensure;
use crate::store::{Begin, Found, Looked, Store, StreamReader, second};
use crate::timing::{EVENTS_TOGETHER, FAILED_PAUSE};
use crate::{LockError, LockFilter};

/// The number of events that are kept for a reader that is slower than the server. It bounds the memory of a stream.
const BUFFERED: usize = 256;

/// Whether opening a stream again is of no use.
fn is_final(error: &LockError) -> bool {
    error.is_closed() || error.is_without_streams()
}

/// The task that sends the events of locks.
pub(super) struct Reader {
    engine: Weak<Engine>,
    store: Arc<Store>,
    filter: LockFilter,
    /// The time at which the events begin; `None` for now.
    pub(super) since: Option<DateTime>,
    /// Whether the events end with those up to the beginning of the task.
    pub(super) ends_at_present: bool,
    known: KnownLocks,
    events: Sender<Item>,
    /// Whether the server has sent a reply of the stream.
    has_begun: bool,
    /// When the leases that have ended by what is known are read next.
    next_look: Instant,
}

/// An event, or the error that ends the events.
pub(super) type Item = Result<LockEvent, LockError>;

impl Reader {
    /// A reader that has not begun, and the events that it will send.
    pub(super) fn new(engine: &Arc<Engine>, filter: LockFilter) -> (Self, Receiver<Item>) {
        let (events, receiver) = channel(BUFFERED);
        let reader = Self {
            engine: Arc::downgrade(engine),
            store: Arc::clone(&engine.store),
            filter,
            since: None,
            ends_at_present: false,
            known: KnownLocks::default(),
            events,
            has_begun: false,
            next_look: Instant::now(),
        };
        (reader, receiver)
    }

    /// Sends the events. It needs a task of its own: a request of the driver must not be dropped half way.
    pub(super) async fn run(self) {
        let events = self.events.clone();
        if let Err(error) = self.read().await
            && !error.is_closed()
        {
            // It fails if nobody reads any more.
            let _ = events.send(Err(error)).await;
        }
    }

    async fn read(mut self) -> Result<(), LockError> {
        let bound = "none for events";
        ensure(self.filter.state.is_none(), "state", self.filter.state, bound)?;
        ensure(self.filter.limit.is_none(), "limit", self.filter.limit, bound)?;
        let is_present = self.since.is_none();
        let begin = self.since.map_or(Begin::Now, Begin::at);
        let mut stream = match self.store.changes(&self.filter, begin).await {
            Err(error) if error.is_without_streams() && is_present && !self.ends_at_present => {
                return self.look().await;
            }
            opened => opened?,
        };
        // The stream was opened before the read, so that no change after it is missed.
        if is_present {
            self.read_present().await?;
        }
        while !self.events.is_closed() {
            let Err(error) = self.follow(&mut stream).await else {
                return Ok(());
            };
            let is_lost = error.meaning() == Meaning::HistoryLost;
            if is_final(&error) || is_lost && !is_present && !self.has_begun {
                return Err(error);
            }
            // In the past the collection may have been dropped several times.
            let is_ended = error.meaning() == Meaning::StreamEnded;
            sleep(if is_ended { EVENTS_TOGETHER } else { FAILED_PAUSE }).await;
            if is_lost {
                match self.bridge(stream.reached().map(second)).await {
                    Ok(next) => stream = next,
                    Err(error) if is_final(&error) => return Err(error),
                    // The stream will report again that its history is lost.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Sends the events of a stream up to its end, or until nobody reads them.
    async fn follow(&mut self, stream: &mut StreamReader) -> Result<(), LockError> {
        while !self.events.is_closed() {
            if self.ends_at_present && stream.has_passed_begin() {
                return Ok(());
            }
            // The past is told before what a query finds.
            let is_live = stream.is_live();
            let change = {
                let mut next = pin!(stream.next());
                loop {
                    if !is_live {
                        break next.await?;
                    }
                    // A stream that always has a change does not delay it.
                    if self.next_look <= Instant::now() {
                        self.look_at_ends().await;
                    }
                    if let Ok(change) = timeout_at(self.next_look, &mut next).await {
                        break change?;
                    }
                }
            };
            self.has_begun = true;
            match change {
                Some(change) if self.ends_at_present && stream.is_new(&change) => return Ok(()),
                Some(change) => {
                    let events = self.known.change(&change);
                    self.send(events).await;
                }
                None => self.known.caught_up(),
            }
        }
        Ok(())
    }

    /// Opens a stream that begins now, because events after this time were missed, and tells what has changed meanwhile.
    async fn bridge(&mut self, since: Option<DateTime>) -> Result<StreamReader, LockError> {
        let stream = self.store.changes(&self.filter, Begin::Now).await?;
        let (at, changed) = self.read_all().await?;
        self.send([vec![gap(since, at)], changed].concat()).await;
        Ok(stream)
    }

    /// Sends the present holds.
    async fn read_present(&mut self) -> Result<(), LockError> {
        let (_, mut events) = self.read_all().await?;
        events.retain(|event| event.kind.is_held());
        for event in &mut events {
            event.kind = LockEventKind::Held;
        }
        self.send(events).await;
        Ok(())
    }

    /// The time of a read of all locks that are taken, and what has changed since the last one.
    async fn read_all(&mut self) -> Result<(DateTime, Vec<LockEvent>), LockError> {
        let taken = Looked::Taken(self.filter.clone());
        let (found, time) = self.look_for(taken).await?;
        Ok((time.at, self.known.read(&found, time)))
    }

    /// The documents of these locks, and the time of the read.
    async fn look_for(&self, looked: Looked) -> Result<(Found, Moment), LockError> {
        let found = self.store.all(&looked).await?;
        let at = match found.iter().find_map(|(_, sight)| sight.now) {
            Some(now) => DateTime::from_millis(now),
            None => self.store.hello().await?.1,
        };
        Ok((found, Moment::now(at)))
    }

    /// Reads the locks whose known leases have ended.
    async fn look_at_ends(&mut self) {
        let now = Instant::now();
        self.next_look = now + EVENTS_TOGETHER;
        let due = self.known.due(now);
        if due.is_empty() {
            return;
        }
        // This query fails during an election; the stream must survive that.
        if let Ok((found, time)) = self.look_for(Looked::Names(due.clone())).await {
            let events = self.known.read_due(&due, &found, time);
            self.send(events).await;
        }
    }

    /// Reads the locks repeatedly if there are no change streams.
    async fn look(mut self) -> Result<(), LockError> {
        let mut hints = None;
        if self.store.never_waits() {
            hints = Some(self.store.watch(None).await?);
        }
        self.read_present().await?;
        // The events outlive a provider that is dropped.
        let engine = Weak::clone(&self.engine);
        let is_shut_down = || engine.upgrade().is_some_and(|engine| engine.refuses(true));
        while !self.events.is_closed() && !is_shut_down() {
            match &mut hints {
                Some(hints) => drop(timeout(FAILED_PAUSE, hints.next()).await),
                None => sleep(FAILED_PAUSE).await,
            }
            match self.read_all().await {
                Ok((_, events)) => self.send(events).await,
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends those of these events that are of the filter's holder or former holder. A reader that has gone is noticed by the caller.
    async fn send(&self, events: Vec<LockEvent>) {
        let owner = &self.filter.owner;
        for event in events {
            let is_of_owner = event.owner == *owner || event.previous_owner == *owner;
            if is_of_owner || owner.is_none() || event.name.is_empty() {
                // It fails if nobody reads any more.
                let _ = self.events.send(Ok(event)).await;
            }
        }
    }
}
