use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use futures_core::Stream;

use crate::engine::Engine;
use crate::meter::CommandKind;
use crate::protocol::{Name, Sight};
use crate::store::{Found, Looked, PAGE_SIZE, Store, info};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, LockFilter, LockInfo, task};

/// A stream of locks in the order of their names; made by [`LockAdmin::stream`](crate::LockAdmin::stream).
///
/// [`next`](Self::next) needs no extension trait. The type also implements `futures_core::Stream`, for the stream
/// combinators of other crates. A page is requested when its first lock is read. No cursor is open at the server
/// between two pages, so the stream can be read at any pace, and dropping it leaves nothing behind.
///
/// # Errors
///
/// - [`LockError::CorruptDocument`] if the document of one lock cannot be read. The stream continues with the next
///   lock.
/// - [`LockError::Mongo`] if MongoDB refuses the request for a page, needs more than 5 s for it, or has not replied
///   within 30 s. The stream then ends: the next item is `None`.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
#[must_use = "nothing is requested before the stream is polled"]
pub struct LockInfoStream {
    store: Arc<Store>,
    takeover_margin: Duration,
    filter: LockFilter,
    /// The number of locks that may still be requested; zero after the last page.
    left: u32,
    /// The last lock of the current page; `None` before the first page.
    last: Option<Name>,
    /// The locks of the current page that have not been returned.
    page: vec::IntoIter<(Name, Sight)>,
    /// The request for the next page, if it is under way.
    next: Option<PageRequest>,
}

/// The query for a page, which is under way.
type PageRequest = Pin<Box<dyn Future<Output = Result<Found, LockError>> + Send>>;

impl LockInfoStream {
    pub(super) fn new(engine: &Engine, filter: LockFilter) -> Self {
        Self {
            store: Arc::clone(&engine.store),
            takeover_margin: engine.config.options.takeover_margin,
            left: filter.limit.unwrap_or(u32::MAX),
            filter,
            last: None,
            page: Vec::new().into_iter(),
            next: None,
        }
    }

    /// The next lock, or `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// See [`LockInfoStream`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no lock is skipped or returned twice. The stream keeps a page that was requested meanwhile.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn next(&mut self) -> Option<Result<LockInfo, LockError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn request(&self) -> PageRequest {
        let (store, looked) = (Arc::clone(&self.store), Looked::Filter(self.filter.clone()));
        let (last, most) = (self.last.clone(), self.left.min(PAGE_SIZE));
        let page = async move {
            let page = store.find(CommandKind::Admin, &looked, last.as_deref(), most, COMMAND_LIMIT);
            page.await
        };
        Box::pin(task::request("query", page))
    }
}

impl Stream for LockInfoStream {
    type Item = Result<LockInfo, LockError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some((name, sight)) = this.page.next() {
                return Poll::Ready(Some(info(&name, &sight, this.takeover_margin)));
            }
            if this.left == 0 {
                return Poll::Ready(None);
            }
            let mut next = this.next.take().unwrap_or_else(|| this.request());
            let Poll::Ready(page) = next.as_mut().poll(cx) else {
                this.next = Some(next);
                return Poll::Pending;
            };
            let page = page.inspect_err(|_| this.left = 0)?;
            let is_full = page.len() == PAGE_SIZE as usize;
            this.left = if is_full { this.left - PAGE_SIZE } else { 0 };
            this.last = page.last().map(|(name, _)| Arc::clone(name));
            this.page = page.into_iter();
        }
    }
}

impl fmt::Debug for LockInfoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInfoStream")
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}
