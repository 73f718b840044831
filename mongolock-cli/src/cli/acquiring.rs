//! The arguments of the commands that acquire, and of those that take a handle.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use mongolock::{LockError, LockProvider};

use crate::duration;

/// What is acquired, and how long it is waited for.
#[derive(Debug, Args)]
pub(crate) struct WantedLocks {
    /// The lock; several names are acquired all or none
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// One more lock; its name may begin with a dash
    #[arg(long = "name", value_name = "NAME", require_equals = true)]
    pub(super) dashed: Vec<String>,
    /// Hold one of N permits of the name instead of the lock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    /// Wait this long while others hold the lock
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s", conflicts_with = "no_wait")]
    pub(crate) wait: Duration,
    /// Do not wait: one attempt
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The exit code if others hold the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) busy_code: u8,
}

/// The arguments of which one is needed.
pub(super) fn what(arguments: impl IntoIterator<Item = &'static str>) -> ArgGroup {
    ArgGroup::new("what").required(true).args(arguments)
}

/// What `run` runs, and under which lock.
#[derive(Debug, Args)]
#[command(group = what(["names", "dashed", "resume"]).multiple(true))]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) wanted: WantedLocks,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Run the command once in each period, such as `1d`: when it has exited with 0, no other run of it starts before the
    /// next period. Periods are multiples of this time since 1970 in UTC
    #[arg(long, value_name = "PERIOD", value_parser = duration::parse, conflicts_with = "permits")]
    pub(crate) once_per: Option<Duration>,
    /// How long the lock outlives this machine; it is renewed as long as the command runs. 5s at least
    #[arg(long, value_name = "TIME", value_parser = expiry, default_value = "30s")]
    pub(crate) expiry: Duration,
    /// Resume the lease whose handle is in this file instead of acquiring a lock. The file is deleted when the lock is
    /// released
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["names", "dashed", "permits", "once_per", "wait", "no_wait", "busy_code"])]
    pub(crate) resume: Option<PathBuf>,
    /// With --resume: do not release the lock when the command has ended, whatever its exit code, but detach its lease again
    /// for this time. The file gets the new handle, also if it was deleted meanwhile
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub(crate) then_detach: Option<Duration>,
}

/// What `acquire` acquires, and where the handle goes.
#[derive(Debug, Args)]
#[command(mut_arg("names", |names| names.required_unless_present("dashed")))]
pub(crate) struct AcquireArguments {
    #[command(flatten)]
    pub(crate) wanted: WantedLocks,
    /// How long the lease lasts without a renewal: 100ms to 7d
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// The file for the handle, which must not exist; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) handle: PathBuf,
    /// The owner of the lease, which stays its owner when it is resumed; by default the host and the process of `acquire`, which
    /// has ended then. 1 to 256 bytes
    #[arg(long, value_name = "OWNER", value_parser = owner)]
    pub(crate) owner: Option<String>,
}

/// What `hold` acquires, and for how long.
#[derive(Debug, Args)]
#[command(mut_arg("names", |names| names.required_unless_present("dashed")))]
pub(crate) struct HoldArguments {
    #[command(flatten)]
    pub(crate) wanted: WantedLocks,
    /// How long the lock is held: 100ms to 7d
    #[arg(long = "for", value_name = "TIME", value_parser = ttl)]
    pub(crate) time: Duration,
}

/// Which lease `extend` extends, and for how long.
#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// The file with the handle; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) handle: PathBuf,
    /// How long the lease lasts from now on: 100ms to 7d. It is never shortened
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The shortest expiry of a lock: the command is ended some time before, and needs the rest to end.
const MIN_EXPIRY: Duration = Duration::from_secs(5);

fn expiry(text: &str) -> Result<Duration, String> {
    let expiry = duration::parse(text)?;
    if expiry < MIN_EXPIRY {
        return Err("it must be 5s or longer: a shorter lease leaves no time to end the command".to_owned());
    }
    Ok(expiry)
}

/// The shortest and the longest time of a detached lease, which are those of the library: it would refuse others only when the
/// lock has been acquired.
const MIN_TTL: Duration = Duration::from_millis(100);
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text)?;
    if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Err("it must be 100ms to 7d".to_owned());
    }
    Ok(ttl)
}

/// The library checks the text, and would refuse it only when the lock has been acquired.
fn owner(text: &str) -> Result<String, String> {
    match LockProvider::in_memory().to_builder().owner(text).build() {
        Err(LockError::InvalidOption { bound, .. }) => Err(bound),
        _ => Ok(text.to_owned()),
    }
}
