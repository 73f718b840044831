//! The number of commands of one kind that are in flight at a time, by the events of the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) all: AtomicUsize,
    now: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

impl InFlight {
    /// Counts the commands of this name that a client with these options sends.
    pub(crate) fn count(self: &Arc<Self>, command: &'static str, options: &mut ClientOptions) {
        let counting = Arc::clone(self);
        let counts = move |event: CommandEvent| match event {
            CommandEvent::Started(started) if started.command_name == command => counting.begin(),
            CommandEvent::Succeeded(ended) if ended.command_name == command => counting.end(),
            CommandEvent::Failed(ended) if ended.command_name == command => counting.end(),
            _ => {}
        };
        options.command_event_handler = Some(EventHandler::callback(counts));
    }

    fn begin(&self) {
        self.all.fetch_add(1, SeqCst);
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, SeqCst);
    }
}
