//! Names, ports and logs of servers.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of lines of a server's log that an error shows.
const LOG_TAIL: usize = 20;

/// The last lines of a file, or nothing if there is none.
pub(crate) fn tail(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_TAIL)..];
    last.iter().flat_map(|line| [*line, "\n"]).collect()
}

/// A free port outside the range that the system uses for outgoing connections. One of those could take the port while
/// a killed server is down.
pub(crate) fn free_port() -> std::io::Result<u16> {
    let candidates = (0..100).map(|_| u16::try_from(12_000 + random() % 18_000).unwrap_or(12_000));
    let mut last = Err(std::io::ErrorKind::AddrInUse.into());
    for port in candidates {
        last = TcpListener::bind(("127.0.0.1", port)).map(|_| port);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// A random number, not for secrets. The standard library seeds its hash maps from the randomness of the system.
pub(crate) fn random() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)))
}
