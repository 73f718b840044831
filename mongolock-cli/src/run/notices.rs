//! The messages of `run` while its command runs.

use std::fmt::Display;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use nix::sys::signal::{SigSet, Signal};

use crate::failure::warn;

/// The greatest number of lines that wait for a reader; later ones are dropped.
const LINES: usize = 16;

/// Lines on standard error. A thread of its own writes them: without a reader, `run` must still renew the lock and keep
/// its limits.
pub(super) struct Notices(SyncSender<String>);

impl Notices {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES);
        let write = move || {
            // The command may be in the foreground of the terminal. Then a line would stop this program where the terminal
            // is set so (`stty tostop`), unless the signal is blocked.
            let mut stop = SigSet::empty();
            stop.add(Signal::SIGTTOU);
            let _ = stop.thread_block();
            for line in lines {
                warn(line);
            }
        };
        std::thread::Builder::new()
            .name("notices".to_owned())
            .spawn(write)?;
        Ok(Self(sender))
    }

    pub(super) fn say(&self, line: impl Display) {
        let _ = self.0.try_send(line.to_string());
    }
}
