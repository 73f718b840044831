//! The task that reads the changes of documents, and sends them as events.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Weak};

use mongodb::bson::DateTime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::event::{LockEvent, LockEventKind};
use super::known::{Known, Moment};
use crate::engine::Engine;
use crate::error::meaning::Meaning;
use crate::options::refused;
use crate::protocol::{Name, Sight};
use crate::store::{Begin, Change, Looked, Store, StreamReader, second};
use crate::timing::{EVENTS_LOOK, EVENTS_REOPEN, EVENTS_TOGETHER, HISTORY_PAUSE};
use crate::{LockError, LockFilter, task};

/// The number of events that are kept for a reader that is slower than the server. It bounds the memory of a stream.
const BUFFERED: usize = 256;

/// What a stream of events returns.
pub(super) struct Plan {
    engine: Weak<Engine>,
    store: Arc<Store>,
    filter: LockFilter,
    /// The time at which it begins; `None` for now.
    pub(super) since: Option<DateTime>,
    /// Whether it ends when it has read the events up to its beginning.
    pub(super) ends_at_present: bool,
}

impl Plan {
    pub(super) fn new(engine: &Arc<Engine>, filter: LockFilter) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            store: Arc::clone(&engine.store),
            filter,
            since: None,
            ends_at_present: false,
        }
    }

    /// Starts the task that sends the events: a request of the driver must not be dropped half way.
    pub(super) fn start(self) -> Receiver<Result<LockEvent, LockError>> {
        let (events, receiver) = channel(BUFFERED);
        let reader = Reader {
            plan: self,
            known: Known::default(),
            events: events.clone(),
            has_begun: false,
            no_look_before: Instant::now(),
        };
        task::spawn(async move {
            if let Err(error) = reader.read().await
                && !error.is_closed()
            {
                // It fails if nobody reads any more.
                let _ = events.send(Err(error)).await;
            }
        });
        receiver
    }

    fn check(&self) -> Result<(), LockError> {
        let bound = "none for events";
        match (self.filter.state, self.filter.limit) {
            (Some(state), _) => Err(refused("state", state, bound)),
            (None, Some(limit)) => Err(refused("limit", limit, bound)),
            (None, None) => Ok(()),
        }
    }
}

/// Whether opening a stream again is of no use.
fn is_final(error: &LockError) -> bool {
    error.is_closed() || error.is_without_streams()
}

/// The task that sends the events of locks.
struct Reader {
    plan: Plan,
    known: Known,
    events: Sender<Result<LockEvent, LockError>>,
    /// Whether the server has sent a reply of the stream.
    has_begun: bool,
    /// No query for ended leases is sent before this time.
    no_look_before: Instant,
}

impl Reader {
    async fn read(mut self) -> Result<(), LockError> {
        self.plan.check()?;
        let needs_stream = self.plan.since.is_some() || self.plan.ends_at_present;
        let mut stream = match self.open(self.plan.since.map_or(Begin::Now, Begin::at)).await {
            Ok(stream) => stream,
            Err(error) if error.is_without_streams() && !needs_stream => {
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
            if is_final(&error) || is_lost && self.plan.since.is_some() && !self.has_begun {
                return Err(error);
            }
            // In the past the collection may have been dropped several times.
            let is_ended = error.meaning() == Meaning::StreamEnded;
            sleep(if is_ended { HISTORY_PAUSE } else { EVENTS_REOPEN }).await;
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

    async fn open(&self, begin: Begin) -> Result<StreamReader, LockError> {
        self.plan.store.changes(&self.plan.filter, begin).await
    }

    /// Sends the events of a stream up to its end, or until nobody reads them.
    async fn follow(&mut self, stream: &mut StreamReader) -> Result<(), LockError> {
        while !self.events.is_closed() {
            if self.plan.ends_at_present && stream.has_passed_begin() {
                return Ok(());
            }
            let is_live = stream.is_live();
            let change = {
                let mut next = pin!(stream.next());
                loop {
                    tokio::select! {
                        change = &mut next => break change?,
                        () = self.next_end(is_live) => self.look_at_ends().await,
                    }
                }
            };
            self.has_begun = true;
            match change {
                Some(change) if self.plan.ends_at_present && stream.is_new(&change) => return Ok(()),
                Some(change) => self.tell(change).await,
                None => self.known.caught_up(),
            }
        }
        Ok(())
    }

    /// Sends what a change means.
    async fn tell(&mut self, change: Change) {
        let Some(news) = change.news else { return };
        let time = Moment::now(change.at);
        let events = if news.name.is_empty() {
            self.known.all_deleted(time)
        } else {
            let event = self.known.change(&news.name, news.sight.as_ref(), time);
            event.into_iter().collect()
        };
        self.send(events).await;
    }

    /// Opens a stream that begins now, because events after this time were missed, and tells what has changed meanwhile.
    async fn bridge(&mut self, since: Option<DateTime>) -> Result<StreamReader, LockError> {
        let stream = self.open(Begin::Now).await?;
        let (found, time) = self.taken().await?;
        let gap = LockEvent {
            since,
            ..LockEvent::new(LockEventKind::Gap, time.at)
        };
        let changed = self.known.read(&found, time);
        self.send([vec![gap], changed].concat()).await;
        Ok(stream)
    }

    /// Sends the present holds.
    async fn read_present(&mut self) -> Result<(), LockError> {
        let (found, time) = self.taken().await?;
        let held = |event: LockEvent| LockEvent {
            kind: LockEventKind::Held,
            ..event
        };
        let events = self.known.read(&found, time).into_iter();
        let events = events.filter(|event| event.kind.is_held()).map(held);
        self.send(events.collect()).await;
        Ok(())
    }

    async fn taken(&self) -> Result<(Vec<(Name, Sight)>, Moment), LockError> {
        self.look_for(Looked::Taken(self.plan.filter.clone())).await
    }

    /// The documents of these locks, and the time of the read.
    async fn look_for(&self, looked: Looked) -> Result<(Vec<(Name, Sight)>, Moment), LockError> {
        let found = self.plan.store.all(&looked).await?;
        let at = match found.iter().find_map(|(_, sight)| sight.now) {
            Some(now) => DateTime::from_millis(now),
            None => self.plan.store.hello().await?.1,
        };
        Ok((found, Moment::now(at)))
    }

    /// Waits until the next lease ends by what is known. The past is told before what a query finds.
    fn next_end(&self, is_live: bool) -> impl Future<Output = ()> + use<> {
        let next = self.known.next_end().filter(|_| is_live);
        let next = next.map(|next| next.max(self.no_look_before));
        async move {
            match next {
                Some(next) => sleep_until(next).await,
                None => pending().await,
            }
        }
    }

    /// Reads the locks whose known leases have ended.
    async fn look_at_ends(&mut self) {
        let due = self.known.due(Instant::now());
        if due.is_empty() {
            return;
        }
        // Leases that end soon after these are read with one query.
        self.no_look_before = Instant::now() + EVENTS_TOGETHER;
        match self.look_for(Looked::Names(due.clone())).await {
            Ok((found, time)) => {
                let events = self.known.read_due(&due, &found, time);
                self.send(events).await;
            }
            // This query fails during an election; the stream must survive that.
            Err(_) => self.no_look_before = Instant::now() + EVENTS_LOOK,
        }
    }

    /// Reads the locks repeatedly if there are no change streams.
    async fn look(mut self) -> Result<(), LockError> {
        let mut hints = None;
        if self.plan.store.never_waits() {
            hints = Some(self.plan.store.watch(None).await?);
        }
        self.read_present().await?;
        // The events outlive a provider that is dropped.
        let engine = Weak::clone(&self.plan.engine);
        let is_shut_down = || engine.upgrade().is_some_and(|engine| engine.refuses(true));
        while !self.events.is_closed() && !is_shut_down() {
            match &mut hints {
                Some(hints) => drop(timeout(EVENTS_LOOK, hints.next()).await),
                None => sleep(EVENTS_LOOK).await,
            }
            match self.taken().await {
                Ok((found, time)) => {
                    let events = self.known.read(&found, time);
                    self.send(events).await;
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends those of these events that are of the filter's holder or former holder. A reader that has gone is noticed by the caller.
    async fn send(&self, events: Vec<LockEvent>) {
        let owner = &self.plan.filter.owner;
        for event in events {
            let is_of_owner = event.owner == *owner || event.previous_owner == *owner;
            if is_of_owner || owner.is_none() || event.name.is_empty() {
                // It fails if nobody reads any more.
                let _ = self.events.send(Ok(event)).await;
            }
        }
    }
}
