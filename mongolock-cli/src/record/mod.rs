//! `record`: writes the turns into a collection of their own, where they stay longer than the oplog.
//!
//! Every ten seconds it reads the events up to the present, and writes what they mean. So it knows exactly up to when the
//! history is complete, and a recorder that takes over goes on there.

mod book;
mod history;

use std::time::Duration;

use mongodb::bson::DateTime;
use rustix::process::Signal;
use tokio::time::sleep;

use self::book::Book;
use self::history::failed;
use crate::acquire::Signals;
use crate::cli::{ConnectionArguments, RecordArguments};
use crate::connection::Collections;
use crate::exit::Ending;
use crate::failure::Failure;
use crate::log::{self, History, Source, Step};

/// The lock of the recorder that works.
const RECORDER: &str = "mongolock:recorder";

/// The time between two batches.
const PAUSE: Duration = Duration::from_secs(10);

/// The lease of the recorder's lock: another recorder goes on so soon after one that was killed.
const EXPIRY: Duration = Duration::from_secs(10);

/// How far a recorder begins before the position of the last one, in milliseconds: a member that has become the primary may
/// have a clock that is behind.
const OVERLAP: i64 = 10_000;

pub(crate) async fn record(
    arguments: RecordArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let collections = connection.collections().await?;
    let history = History::of(&collections);
    history.set_up(arguments.keep).await?;
    let provider = connection.builder().await?.build()?;
    let signals = Signals::new(&[Signal::INT, Signal::TERM]);
    let mut signals = signals.map_err(Failure::io("cannot wait for signals"))?;
    loop {
        let acquiring = provider
            .lock(RECORDER)
            .expiry(EXPIRY)
            .acquire_timeout(None)
            .acquire();
        let guard = tokio::select! {
            guard = acquiring => guard?,
            _ = signals.next() => break,
        };
        let mut recorder = Recorder::begin(&collections, &history).await?;
        let is_lost = loop {
            // A batch is written whole. One that is late writes what the next recorder writes as well.
            recorder.batch().await?;
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = guard.lost() => break true,
                _ = signals.next() => break false,
            }
        };
        if !is_lost {
            recorder.batch().await?;
            guard.release().await?;
            break;
        }
    }
    provider.shutdown().await;
    Ok(Ending::OK)
}

struct Recorder<'a> {
    collections: &'a Collections,
    history: &'a History,
    source: Source<'a>,
    book: Book,
    /// The time up to which the history is complete.
    position: DateTime,
}

impl<'a> Recorder<'a> {
    /// Goes on where the last recorder has ended; the first one begins with the present holds.
    async fn begin(collections: &'a Collections, history: &'a History) -> Result<Self, Failure> {
        let source = Source::of_all(collections);
        let book = Book::new(history.open().await?);
        let last = history.position().await.map_err(failed)?;
        let now = log::now(collections).await?;
        let position = last.map_or(now, |last| {
            DateTime::from_millis(last.timestamp_millis() - OVERLAP)
        });
        let mut recorder = Self {
            collections,
            history,
            source,
            book,
            position,
        };
        if last.is_none() {
            recorder.present().await?;
        }
        Ok(recorder)
    }

    /// Writes the present holds.
    async fn present(&mut self) -> Result<(), Failure> {
        let present = self.source.present(self.position).await?;
        self.history.write(self.book.add(present)).await
    }

    /// Writes what has happened up to the present.
    async fn batch(&mut self) -> Result<(), Failure> {
        let now = log::now(self.collections).await?;
        // A batch ends with a whole second.
        let until = DateTime::from_millis(now.timestamp_millis().div_euclid(1000) * 1000);
        let step = Step {
            since: self.position,
            until,
        };
        match self.source.events(step).await {
            Ok(events) => self.history.write(self.book.add(events)).await?,
            Err(error) if log::is_history_lost(&error) => {
                self.history.write(self.book.gap(self.position, until)).await?;
                self.present().await?;
            }
            Err(error) => return Err(log::refused(error)),
        }
        self.position = until;
        self.history.set_position(until).await
    }
}
