//! Reads the change stream for the core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::ends::Ends;
use super::state::{Engine, Event};
use crate::home::tell;
use crate::protocol::Name;
use crate::sync::lock;
use crate::trace;

impl Engine {
    /// The stream with this number is to be opened next, and no earlier one any more.
    pub(super) fn begin_stream(&self, number: u32) {
        lock(&self.commands).stream = Some(number);
    }

    /// No stream is to be open, including one that is being opened.
    pub(super) fn end_stream(&self) {
        let mut commands = lock(&self.commands);
        commands.stream = None;
        commands.stream_ended.store(true, Ordering::Release);
    }

    /// The stream with this number was opened, and ends the previous one; `None` if the stream is no longer needed.
    pub(super) fn replace_stream(&self, number: u32, is_open: bool) -> Option<Arc<AtomicBool>> {
        let mut commands = lock(&self.commands);
        if commands.stream != Some(number) {
            return None;
        }
        if is_open {
            std::mem::take(&mut commands.stream_ended).store(true, Ordering::Release);
        }
        Some(Arc::clone(&commands.stream_ended))
    }
}

/// Reads one stream until the next one is open, so that no event is missed in between.
pub(super) async fn watch(engine: Weak<Engine>, number: u32, names: Option<Vec<Name>>) {
    let Some(present) = engine.upgrade() else { return };
    let store = Arc::clone(&present.store);
    // The stream also ends with its runtime, even while it is being opened.
    let closed = Ends::new(&present, || Event::Closed { is_lasting: false });
    drop(present);
    let opened = store.watch(names.as_deref()).await;
    let Some(present) = engine.upgrade() else { return };
    let Some(ended) = present.replace_stream(number, opened.is_ok()) else {
        return closed.disarm();
    };
    let mut news = match opened {
        Ok(news) => news,
        Err(error) => {
            closed.disarm();
            let is_lasting = error.is_without_streams();
            tell(move || trace::wake_up_failed(&error));
            present.apply(Event::Closed { is_lasting });
            return;
        }
    };
    present.apply(Event::Opened(number));
    drop(present);
    loop {
        let next = news.next().await;
        let Some(engine) = engine.upgrade() else { return };
        if ended.load(Ordering::Acquire) {
            return closed.disarm();
        }
        match next {
            Ok(Some(news)) => drop(engine.apply(Event::News(news))),
            Ok(None) => {}
            Err(error) => return tell(move || trace::wake_up_failed(&error)),
        }
    }
}
