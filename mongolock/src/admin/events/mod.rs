//! The changes of locks as events.
//!
//! | file | what it has |
//! |---|---|
//! | `event.rs` | one event |
//! | `known.rs` | converts a change of a document into events: pure |
//! | `reader.rs` | the task that reads the change stream, or the locks if there is no change stream |

mod event;
mod known;
mod reader;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use mongodb::bson::DateTime;
use tokio::sync::mpsc;

pub use self::event::{LockEvent, LockEventKind};
use self::reader::{Item, Reader};
use crate::engine::Engine;
use crate::{LockError, LockFilter, task};

/// A stream of what happens to locks; made by [`LockAdmin::events`](crate::LockAdmin::events).
///
/// [`next`](Self::next) needs no extension trait. The type also implements `futures_core::Stream`, for the stream
/// combinators of other crates. The first call of `next` starts a task that reads from the server; call
/// [`since`](Self::since) before. When the stream is dropped, the task ends with the server's next reply, within 1.25
/// s, unless the server is still reading the past.
///
/// The stream survives failovers and outages: the task repeatedly tries to resume its change stream after the last
/// event, so that no event is missed. It continues even if the server refuses the log-in.
/// [`health`](crate::LockProvider::health) says whether a server replies meanwhile. If the server no longer has the
/// events, a [gap](crate::LockEventKind::Gap) follows, and then what has changed.
///
/// # Errors
///
/// An error ends the stream: the next item is `None`.
///
/// - [`LockError::Mongo`] if the stream cannot begin, or the user has lost the privileges `find` and `changeStream`. For a
///   [`since`](Self::since) before the oldest event that the server still has, the code is 286.
/// - [`LockError::InvalidOption`] for a filter with a state or a limit, which events do not have.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
#[must_use = "nothing is read before the stream is polled"]
pub struct LockEvents {
    /// The reader, which begins with the first call; `None` after it.
    reader: Option<Box<Reader>>,
    /// They are closed after the end, and with the runtime.
    events: mpsc::Receiver<Item>,
}

impl LockEvents {
    pub(super) fn new(engine: &Arc<Engine>, filter: LockFilter) -> Self {
        let (reader, events) = Reader::new(engine, filter);
        let reader = Some(Box::new(reader));
        Self { reader, events }
    }

    /// Begins with the past events from this time on, in whole seconds, instead of with the present holds, and
    /// continues with live events.
    ///
    /// The server keeps its events in the oplog, for some hours or days. For a hold that began before this time, the
    /// event of its end has no owner. In memory and on a standalone server this is an error.
    pub fn since(self, time: DateTime) -> Self {
        self.with(|reader| reader.since = Some(time))
    }

    /// Ends the stream when it has read the events that the server has at the first call of [`next`](Self::next): for
    /// the program `mongolock`.
    #[doc(hidden)]
    pub fn to_present(self) -> Self {
        self.with(|reader| reader.ends_at_present = true)
    }

    fn with(mut self, set: impl FnOnce(&mut Reader)) -> Self {
        self.reader.as_deref_mut().map(set);
        self
    }

    /// The next event; `None` after the end of the stream, after an error, and after the shutdown of the provider.
    ///
    /// # Errors
    ///
    /// See [`LockEvents`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is skipped or returned twice.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn next(&mut self) -> Option<Result<LockEvent, LockError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for LockEvents {
    type Item = Result<LockEvent, LockError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(reader) = self.reader.take() {
            task::spawn(reader.run());
        }
        self.events.poll_recv(cx)
    }
}

impl fmt::Debug for LockEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvents").finish_non_exhaustive()
    }
}
