//! `watch`: what happens to locks, one line for each change.

mod changes;
mod lock_id;
mod page;
mod server_clock;

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Collection, Database};
use mongolock::{LockError, LockProvider};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use self::changes::{Change, Kind, Locks, waiting};
use self::page::Page;
use self::server_clock::ServerClock;
use crate::cli::{ConnectionArguments, WatchArguments};
use crate::connection::Collections;
use crate::driver;
use crate::exit::Ending;
use crate::failure::Failure;

/// How long the server waits for an event.
const AWAIT: Duration = Duration::from_secs(1);

/// The pause before the streams are opened again after they have failed.
const REOPEN: Duration = Duration::from_secs(1);

/// The pause between two looks at whether a primary answers.
const PULSE: Duration = Duration::from_secs(1);

/// The server's code of a deployment without change streams.
const NO_STREAMS: i32 = 40573;

type Event = ChangeStreamEvent<Document>;
type Stream = ChangeStream<Event>;

pub(crate) async fn watch(
    arguments: WatchArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let collections = connection.collections().await?;
    let provider = collections.provider.clone();
    let page = Page::new(arguments.json);
    let mut watch = Watch::new(collections, &page, arguments.prefix);
    let streams = watch.open().await?;
    watch.resynchronise(false).await?;
    // Neither ends without a failure, and then the program ends.
    Err(tokio::select! {
        failure = watch.follow_on(streams) => failure,
        failure = tell_outages(&provider, &page) => failure,
    })
}

/// Says when no primary answers any more, and when one answers again. A stream says neither: it goes on after an election,
/// and a connection that is cut silently looks like one without events.
async fn tell_outages(provider: &LockProvider, page: &Page) -> Failure {
    let mut is_gone = false;
    loop {
        sleep(PULSE).await;
        let health = provider.health().await;
        if health.has_primary != is_gone {
            continue;
        }
        is_gone = !health.has_primary;
        let notice = if is_gone {
            let problem = health.error.map_or_else(
                || "the replica set has no primary".to_owned(),
                |error| Failure::from(error).to_string(),
            );
            Change::notice(Kind::Gone, Some(problem))
        } else {
            Change::notice(Kind::Back, None)
        };
        if let Err(failure) = page.show(&notice) {
            return failure;
        }
    }
}

/// What a stream has told.
enum Told {
    Lock(Event),
    Waiter(Event),
    /// The stream has ended, or has missed events.
    End,
}

/// The changes of the locks, and of the processes that wait; they have no common order. Each stream is read by a task of
/// its own, because a request of the driver must not be dropped half way.
type Streams = UnboundedReceiver<Told>;

struct Watch<'a> {
    database: Database,
    locks: Collection<Document>,
    waiters: Collection<Document>,
    prefix: Option<String>,
    known: Locks,
    page: &'a Page,
}

impl<'a> Watch<'a> {
    fn new(collections: Collections, page: &'a Page, prefix: Option<String>) -> Self {
        let Collections {
            database,
            locks,
            waiters,
            ..
        } = collections;
        Self {
            database,
            locks,
            waiters,
            prefix,
            known: Locks::default(),
            page,
        }
    }

    /// Follows the streams, and opens them again when they have failed, until that is of no use.
    async fn follow_on(&mut self, mut streams: Streams) -> Failure {
        loop {
            match self.follow(&mut streams).await {
                Ok(()) => {}
                Err(failure) if failure.is_final() => return failure,
                Err(_) => {
                    // Their tasks end without a receiver.
                    drop(streams);
                    streams = match self.reopen().await {
                        Ok(streams) => streams,
                        Err(failure) => return failure,
                    };
                }
            }
        }
    }

    fn now(&self) -> DateTime {
        self.page.clock().now()
    }

    /// Opens the streams, before the locks are read: a change after the read cannot be missed.
    async fn open(&mut self) -> Result<Streams, Failure> {
        self.page.set_clock(ServerClock::of(&self.database).await?);
        let opened = async {
            let locks = self
                .locks
                .watch()
                .pipeline(self.changes())
                .max_await_time(AWAIT)
                .await?;
            let begun = doc! { "$match": { "operationType": "insert" } };
            let waiters = self
                .waiters
                .watch()
                .pipeline([begun])
                .max_await_time(AWAIT)
                .await?;
            Ok((locks, waiters))
        };
        let (locks, waiters) = opened.await.map_err(|error: Error| refused(&error))?;
        let (sender, streams) = unbounded_channel();
        tokio::spawn(tell(locks, Told::Lock, sender.clone()));
        tokio::spawn(tell(waiters, Told::Waiter, sender));
        Ok(streams)
    }

    /// The stage that admits insertions, deletions, and changes of the holder. The server leaves out renewals, which would
    /// be most of what it sends.
    fn changes(&self) -> [Document; 1] {
        let holder = doc! { "updateDescription.updatedFields.lockId": { "$exists": true } };
        let wanted = doc! { "$or": [{ "operationType": { "$ne": "update" } }, holder] };
        let Some(prefix) = &self.prefix else {
            return [doc! { "$match": wanted }];
        };
        // An event that ends the stream has no name.
        let named =
            doc! { "$or": [{ "documentKey._id": range(prefix) }, { "documentKey": { "$exists": false } }] };
        [doc! { "$match": { "$and": [wanted, named] } }]
    }

    /// Opens the streams and reads the locks again, as long as that takes: the server may be down.
    async fn reopen(&mut self) -> Result<Streams, Failure> {
        let mut is_gap_told = false;
        loop {
            sleep(REOPEN).await;
            let reopened = async {
                let streams = self.open().await?;
                if !is_gap_told {
                    self.page.show(&Change::notice(Kind::Gap, None))?;
                    is_gap_told = true;
                }
                self.resynchronise(true).await?;
                Ok(streams)
            };
            match reopened.await {
                Ok(streams) => return Ok(streams),
                Err(failure) if Failure::is_final(&failure) => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// Reads all locks that are taken. After a gap, what has changed meanwhile is shown.
    async fn resynchronise(&mut self, is_gap: bool) -> Result<(), Failure> {
        let seen = self.known.ids();
        let mut query = doc! { "_id": { "$type": "string" }, "lockId": { "$type": "string", "$ne": "" } };
        if let Some(prefix) = &self.prefix {
            query.insert("_id", range(prefix));
        }
        let mut found = self.locks.find(query).await.map_err(unreadable)?;
        while found.advance().await.map_err(unreadable)? {
            let document: Document = found.deserialize_current().map_err(unreadable)?;
            let Ok(id) = document.get_str("_id") else { continue };
            let change = self.known.set(id, &document, self.now());
            if let Some(change) = change.filter(|_| is_gap) {
                self.page.show(&change)?;
            }
        }
        for id in seen.iter().filter(|_| is_gap) {
            self.read_again(id).await?;
        }
        Ok(())
    }

    /// Waits for the next event or the next end of a lease, and shows what it means. After a failure that is not final the
    /// streams must be opened again.
    async fn follow(&mut self, streams: &mut Streams) -> Result<(), Failure> {
        let pause = self.page.clock().until(self.known.next_end());
        // Events without a pause must not keep it from looking.
        if pause.is_zero() {
            return self.look_at_ends().await;
        }
        let change = tokio::select! {
            told = streams.recv() => match told {
                Some(Told::Lock(event)) => self.lock_change(&event)?,
                Some(Told::Waiter(event)) => self.waiter_change(&event),
                Some(Told::End) | None => return Err(missed()),
            },
            () = sleep(pause) => return self.look_at_ends().await,
        };
        match change {
            Some(change) => self.page.show(&change),
            None => Ok(()),
        }
    }

    /// Reads the server's clock again, and then the locks whose leases have ended by it.
    async fn look_at_ends(&mut self) -> Result<(), Failure> {
        // The streams survive an election, in which this fails: no event is missed by it.
        let read = ServerClock::of(&self.database).await;
        self.page
            .set_clock(read.unwrap_or_else(|_| self.page.clock().counted_on()));
        for id in self.known.due(self.now()) {
            self.read_again(&id).await?;
        }
        Ok(())
    }

    fn lock_change(&mut self, event: &Event) -> Result<Option<Change>, Failure> {
        let id = event
            .document_key
            .as_ref()
            .and_then(|key| key.get_str("_id").ok());
        match (&event.operation_type, id) {
            (OperationType::Delete, Some(id)) => Ok(self.known.delete(id)),
            (OperationType::Insert | OperationType::Update | OperationType::Replace, Some(id)) => {
                let changed = event
                    .update_description
                    .as_ref()
                    .map(|update| &update.updated_fields);
                let document = event.full_document.as_ref().or(changed);
                Ok(document.and_then(|document| self.known.set(id, document, self.now())))
            }
            (
                OperationType::Drop
                | OperationType::Rename
                | OperationType::DropDatabase
                | OperationType::Invalidate,
                _,
            ) => Err(missed()),
            _ => Ok(None),
        }
    }

    /// A new waiter.
    fn waiter_change(&self, event: &Event) -> Option<Change> {
        let change = event.full_document.as_ref().and_then(waiting);
        let prefix = self.prefix.as_deref().unwrap_or_default();
        change.filter(|change| change.name.starts_with(prefix))
    }

    /// Reads a lock whose lease may have ended.
    async fn read_again(&mut self, id: &str) -> Result<(), Failure> {
        let document = self
            .locks
            .find_one(doc! { "_id": id })
            .await
            .map_err(unreadable)?;
        match self.known.read_due(id, document.as_ref(), self.now()) {
            Some(change) => self.page.show(&change),
            None => Ok(()),
        }
    }
}

/// Sends the events of a stream, until it ends or the receiver is gone.
async fn tell(mut stream: Stream, told: fn(Event) -> Told, sender: UnboundedSender<Told>) {
    while stream.is_alive() && !sender.is_closed() {
        match stream.next_if_any().await {
            Ok(Some(event)) => drop(sender.send(told(event))),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    let _ = sender.send(Told::End);
}

/// The names that begin with a text.
fn range(prefix: &str) -> Document {
    doc! { "$gte": prefix, "$lt": format!("{prefix}\u{10ffff}") }
}

/// The streams have ended, or events were missed.
fn missed() -> Failure {
    Failure::new("the change streams have ended")
}

/// Why the locks cannot be read.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
fn unreadable(error: Error) -> Failure {
    explained(&error, "cannot read the locks")
}

/// Why the streams cannot be opened.
fn refused(error: &Error) -> Failure {
    explained(error, "cannot watch the locks")
}

fn explained(error: &Error, what: &str) -> Failure {
    let failure = Failure::new(format!("{what}: {}", driver::text(error)));
    match &*error.kind {
        ErrorKind::Command(command) if command.code == NO_STREAMS => failure
            .help("Change streams need a replica set or a sharded cluster.")
            .finally(),
        ErrorKind::Command(command) if command.code == 13 => failure
            .help(
                "Grant `find` and `changeStream` on the collection of the locks and on that of the waiters.",
            )
            .finally(),
        ErrorKind::ServerSelection { .. } => failure.help(LockError::from(error.clone()).help()),
        _ => failure,
    }
}
