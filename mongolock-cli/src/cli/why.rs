use clap::Args;

/// Which lock `why` explains.
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// The name of the lock or semaphore
    pub(crate) name: String,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
