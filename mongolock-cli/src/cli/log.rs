//! The options of `log`.

use clap::Args;

use crate::times::{WrittenTime, parse};

/// Which turns `log` shows.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// A lock or semaphore; if there is none of this name, all whose names begin with this text
    #[arg(value_name = "NAME|PREFIX")]
    pub(crate) name: Option<String>,
    /// Only turns that were on after this time
    #[arg(long, value_name = "TIME", value_parser = parse, default_value = "12h")]
    pub(crate) since: WrittenTime,
    /// Only turns that were on before this time; the present by default
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(crate) until: Option<WrittenTime>,
    /// Only turns that were on at this time
    #[arg(long, value_name = "TIME", value_parser = parse, conflicts_with_all = ["since", "until"])]
    pub(crate) at: Option<WrittenTime>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}
