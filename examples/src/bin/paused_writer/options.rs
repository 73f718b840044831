//! The command line, the same for the program and the processes that it starts.

use std::time::Duration;

use clap::{Args, Parser, value_parser};
use mongolock_examples::duration;

use crate::ways::Way;

const ABOUT: &str = "\
A writer is stopped while it holds a lock; another takes the lock over and writes; the first one goes on and writes too \
late. The program plays this with a real process for three ways to write, and shows what becomes of the late write.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead (a \
replica set or a sharded cluster, for the transactions), in a database of its own, which it drops at the end.";

const STATUS: &str = "\
Exit status: 0 if every plain late write destroyed the other's update and every fenced and guarded one was refused, 1 if \
not, 2 for a wrong command line.";

/// The bounds of a lease that somebody waits for and watches; the lower one is the library's own.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "paused_writer", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    /// How often to play it; more than once, there is a line for each run instead of a timeline
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,

    /// The lease of the writer that is stopped: so long the other one waits
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = expiry)]
    pub(crate) expiry: Duration,

    #[command(flatten)]
    pub(crate) writer: Option<Writer>,
}

/// What the program tells the process that it starts; the connection string may hold a password and travels in the
/// environment.
#[derive(Debug, Args)]
#[group(requires_all = ["writer", "database"], multiple = true)]
pub(crate) struct Writer {
    /// How it is to write.
    #[arg(long = "writer", id = "writer", hide = true, required = false)]
    pub(crate) way: Way,

    /// The database to work in.
    #[arg(long, hide = true, required = false)]
    pub(crate) database: String,
}

fn expiry(text: &str) -> Result<Duration, String> {
    let expiry = duration::parse(text)?;
    if (SHORTEST..=LONGEST).contains(&expiry) {
        Ok(expiry)
    } else {
        Err("write at least `100ms` and at most `60s`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_started_processes_are_writers() {
        let own = Options::try_parse_from(["paused_writer"]).unwrap();
        assert!(own.writer.is_none());
        for way in Way::ALL {
            let arguments = ["paused_writer", "--writer", &way.to_string(), "--database", "d"];
            let started = Options::try_parse_from(arguments).unwrap();
            assert_eq!(started.writer.unwrap().way, way);
        }
        assert!(Options::try_parse_from(["paused_writer", "--writer", "plain"]).is_err());
    }

    #[test]
    fn a_lease_has_bounds() {
        assert_eq!(expiry("100"), Ok(SHORTEST));
        assert_eq!(expiry("1m"), Ok(LONGEST));
        for text in ["99ms", "61s", "soon"] {
            assert!(expiry(text).is_err(), "{text}");
        }
    }
}
