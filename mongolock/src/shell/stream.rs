//! Reads the change stream for the core.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::state::Shell;
use crate::core::Event;
use crate::protocol::Name;
use crate::store::{StreamFilter, driver_error};
use crate::sync::lock;

impl Shell {
    pub(super) fn end_stream(&self) {
        lock(&self.stream).store(true, Ordering::Release);
    }
}

/// Reads one stream until another one is open, which misses nothing in between.
pub(super) async fn watch(shell: Weak<Shell>, number: u32, names: Option<Vec<Name>>) {
    let Some(store) = shell.upgrade().map(|shell| Arc::clone(&shell.store)) else {
        return;
    };
    let filter = names.map_or(StreamFilter::All, |names| {
        StreamFilter::Names(Arc::new(BTreeSet::from_iter(names)))
    });
    let opened = store.watch(filter).await;
    let Some(present) = shell.upgrade() else { return };
    let mut news = match opened {
        Ok(news) => news,
        Err(error) => {
            let is_lasting = driver_error::is_unavailable_stream(&error);
            present.apply(Event::Closed { is_lasting });
            return;
        }
    };
    let ended = Arc::new(AtomicBool::new(false));
    std::mem::replace(&mut *lock(&present.stream), Arc::clone(&ended)).store(true, Ordering::Release);
    present.apply(Event::Opened(number));
    drop(present);
    let closed = Closed(shell.clone());
    loop {
        let next = news.next().await;
        let Some(shell) = shell.upgrade() else { return };
        if ended.load(Ordering::Acquire) {
            closed.by_next_stream();
            return;
        }
        match next {
            Ok(Some(news)) => drop(shell.apply(Event::News(news))),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// The stream ends with its runtime as well.
struct Closed(Weak<Shell>);

impl Closed {
    fn by_next_stream(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if let Some(shell) = self.0.upgrade() {
            shell.apply(Event::Closed { is_lasting: false });
        }
    }
}
