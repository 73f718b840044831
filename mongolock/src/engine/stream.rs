//! Reads the change stream for the core.

use std::sync::{Arc, Weak};

use super::ends::Ends;
use super::state::{Engine, Event};
use crate::core::Core;
use crate::home::tell;
use crate::protocol::Name;
use crate::sync::lock;
use crate::trace;

/// Reads one stream until the next one is open, so that no event is missed in between.
pub(super) async fn watch(engine: Weak<Engine>, number: u32, names: Option<Vec<Name>>) {
    let Some(present) = engine.upgrade() else { return };
    let store = Arc::clone(&present.store);
    let closed = move |is_lasting| Event::Closed { number, is_lasting };
    // The stream also ends with its runtime, even while it is being opened. The core ignores the end of one that it does not need.
    let _ends = Ends::new(&present, move || closed(false));
    drop(present);
    let needed = || {
        let is_needed = |core: &Core<_>| core.reads_stream(number) && !core.refuses(true);
        engine
            .upgrade()
            .filter(|engine| is_needed(&lock(&engine.core).core))
    };
    let opened = store.watch(names.as_deref()).await;
    let Some(present) = needed() else { return };
    let mut news = match opened {
        Ok(news) => news,
        Err(error) => {
            let is_lasting = error.is_without_streams();
            tell(move || trace::wake_up_failed(&error));
            present.apply(closed(is_lasting));
            return;
        }
    };
    present.apply(Event::Opened(number));
    drop(present);
    loop {
        let next = news.next().await;
        let Some(engine) = needed() else { return };
        match next {
            Ok(Some(news)) => drop(engine.apply(Event::News(news))),
            Ok(None) => {}
            Err(error) => return tell(move || trace::wake_up_failed(&error)),
        }
    }
}
