//! How long the machine lets a thread wait that wants to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock;

const PAUSE: Duration = Duration::from_millis(10);

/// A thread that sleeps and looks how much later it was woken.
pub(crate) struct Stalls {
    ends: Arc<AtomicBool>,
    watching: JoinHandle<Duration>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let watching = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                let before = clock::now();
                std::thread::sleep(PAUSE);
                longest = longest.max(clock::now().saturating_sub(before + PAUSE));
            }
            longest
        });
        Self { ends, watching }
    }

    /// The longest delay.
    pub(crate) fn longest(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        // A thread that sleeps does not panic.
        self.watching.join().unwrap_or_default()
    }
}
