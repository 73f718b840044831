//! Tasks, each with a lock of its own: what one server carries.
//!
//! The requests of many tasks wait for a place among the commands in flight, and become one command. So the
//! library does more cycles than any floor whose commands have one request each. With few tasks nothing goes together, and it must
//! not be slower than its own commands.
//!
//! The floors have the driver's pool as it is, with ten connections. All ways run on tasks of the runtime's workers, also with
//! one task: on the main thread the runtime wakes up more slowly.

mod blocked;
mod burst;
mod processes;
mod shapes;

pub(crate) use self::blocked::measure as blocked;
pub(crate) use self::burst::measure as burst;
pub(crate) use self::processes::{Share, share};
pub(crate) use self::shapes::{far, near};
use crate::report::Report;
use crate::rivals::Rival;
use crate::setting::Setting;

/// Other ways to use locks of one's own: with new names, without waiting for releases, in several processes.
pub(crate) async fn more(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let (rivals, provider) = Rival::all(setting.access()).await?;
    shapes::unawaited(&rivals, setting, report).await?;
    shapes::of_new_names(&rivals, setting, report).await?;
    processes::measure(setting, report).await?;
    provider.shutdown().await;
    Ok(())
}
