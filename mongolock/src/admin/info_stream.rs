use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use futures_core::Stream;

use super::request;
use crate::engine::Engine;
use crate::store::{Page, Store};
use crate::{LockError, LockFilter, LockInfo};

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
    /// The conditions of all pages, and the number of locks that may still be requested.
    filter: LockFilter,
    /// The locks of the current page that have not been returned.
    page: vec::IntoIter<Result<LockInfo, LockError>>,
    state: PageState,
}

enum PageState {
    /// The next page begins after this name, or with the first lock.
    Idle(Option<String>),
    Requested(Pin<Box<dyn Future<Output = Result<Page, LockError>> + Send>>),
    Ended,
}

impl LockInfoStream {
    pub(super) fn new(engine: &Engine, filter: LockFilter) -> Self {
        Self {
            store: Arc::clone(&engine.store),
            takeover_margin: engine.config.options.takeover_margin,
            filter,
            page: Vec::new().into_iter(),
            state: PageState::Idle(None),
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

    fn request_page(&self, after: Option<String>) -> PageState {
        let (store, filter) = (Arc::clone(&self.store), self.filter.clone());
        let margin = self.takeover_margin;
        let page = async move { store.page(&filter, after.as_deref(), margin).await };
        PageState::Requested(Box::pin(request("query", page)))
    }

    fn take_page(&mut self, page: Page) {
        if let Some(limit) = &mut self.filter.limit {
            *limit = limit.saturating_sub(u32::try_from(page.locks.len()).unwrap_or(u32::MAX));
        }
        self.page = page.locks.into_iter();
        self.state = match page.last_name {
            Some(name) => PageState::Idle(Some(name)),
            None => PageState::Ended,
        };
    }
}

impl Stream for LockInfoStream {
    type Item = Result<LockInfo, LockError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(lock) = this.page.next() {
                return Poll::Ready(Some(lock));
            }
            match &mut this.state {
                PageState::Idle(after) => {
                    let after = after.take();
                    this.state = this.request_page(after);
                }
                PageState::Requested(reply) => match ready!(reply.as_mut().poll(cx)) {
                    Ok(page) => this.take_page(page),
                    Err(error) => {
                        this.state = PageState::Ended;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                PageState::Ended => return Poll::Ready(None),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let upper = matches!(self.state, PageState::Ended).then_some(self.page.len());
        (self.page.len(), upper)
    }
}

impl fmt::Debug for LockInfoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInfoStream")
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}
