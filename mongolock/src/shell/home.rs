//! The thread of a provider that has made its client: nothing in the program's runtimes stops its renewals.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A runtime on a thread of its own. The thread ends when this is dropped, and nobody waits for that.
pub(crate) struct Home {
    handle: Handle,
    _ends: oneshot::Sender<()>,
}

impl Home {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let run = move || {
            // An error says that the other half was dropped.
            let _ = runtime.block_on(ended);
        };
        thread::Builder::new().name("mongolock".to_owned()).spawn(run)?;
        Ok(Self { handle, _ends: ends })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}
