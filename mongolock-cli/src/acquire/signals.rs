//! The signals that a command gets while it acquires or holds a lock.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that end a wait, and that `run` passes on to its command.
pub(crate) const PASSED_ON: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];

/// The same signal twice within this time is one: `timeout` sends one to `run`, and another to its group.
const ONCE: Duration = Duration::from_millis(100);

/// The signals that have arrived. Once this value exists, they no longer have their default action.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream, Option<Instant>)>,
}

impl Signals {
    /// Receives these signals.
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Self> {
        let mut all = Self { streams: Vec::new() };
        for wanted in signals {
            all.add(*wanted)?;
        }
        Ok(all)
    }

    /// Receives this signal as well, unless it is ignored already: `nohup` and shells expect it to stay so.
    pub(crate) fn add(&mut self, wanted: Signal) -> io::Result<()> {
        if ignored() & (1 << (wanted.as_raw() - 1)) == 0 {
            self.add_always(wanted)?;
        }
        Ok(())
    }

    /// Receives this signal as well. If SIGCHLD were ignored, children could not be waited for.
    pub(crate) fn add_always(&mut self, wanted: Signal) -> io::Result<()> {
        let stream = signal(SignalKind::from_raw(wanted.as_raw()))?;
        self.streams.push((wanted, stream, None));
        Ok(())
    }

    /// The next of the signals that end a wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no such signal is lost.
    pub(crate) async fn passed_on(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if PASSED_ON.contains(&signal) {
                return signal;
            }
        }
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream, last) in &mut self.streams {
                while let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    let is_new = *signal == Signal::CHILD || last.is_none_or(|at| at.elapsed() > ONCE);
                    if is_new {
                        *last = Some(Instant::now());
                        return Poll::Ready(*signal);
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The set of the signals that this process ignores, bit n - 1 for signal n.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

/// Other systems have no safe call for it.
#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}
