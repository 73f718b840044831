//! The options of `log` and `record`.

use std::time::Duration;

use clap::Args;

use crate::duration;
use crate::log::{Time, parse_time};

/// Which turns `log` shows.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// A lock or semaphore; if there is none of this name, all whose names begin with this text
    #[arg(value_name = "NAME|PREFIX")]
    pub(crate) name: Option<String>,
    /// Only turns that were on after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "12h")]
    pub(crate) since: Time,
    /// Only turns that were on before this time; the present by default
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) until: Option<Time>,
    /// Only turns that were on at this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with_all = ["since", "until"])]
    pub(crate) at: Option<Time>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// How `record` keeps the turns.
#[derive(Debug, Args)]
pub(crate) struct RecordArguments {
    /// How long a turn is kept after its end, at least 1h
    #[arg(long, value_name = "TIME", value_parser = kept, default_value = "30d")]
    pub(crate) keep: Duration,
}

/// A shorter time is a mistake, which would remove what is there.
const SHORTEST: Duration = Duration::from_secs(60 * 60);

fn kept(text: &str) -> Result<Duration, String> {
    let keep = duration::parse(text)?;
    (keep >= SHORTEST)
        .then_some(keep)
        .ok_or_else(|| "it must be at least 1h".to_owned())
}
