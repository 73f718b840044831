//! Many tasks, each with a lock of its own: what one server carries.
//!
//! The requests of many tasks gather while they wait for room among the commands in flight, and become one command. So the
//! library does more cycles than any floor whose commands have one request each. With few tasks nothing gathers, and it must
//! not be slower than its own commands.
//!
//! The floors have the driver's pool as it is, with ten connections.

mod blocked;
mod burst;
mod processes;
mod shapes;

use mongolock::LockProvider;

pub(crate) use self::processes::{Share, share};
use crate::report::Report;
use crate::rivals::Rival;
use crate::server::Server;
use crate::setting::Setting;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = LockProvider::new(&database);
    let rivals = Rival::all(&database, &provider);
    let server = Server::of(database.client()).await?;
    shapes::measure(&rivals, &server, setting, report).await?;
    shapes::of_new_names(&rivals, setting, report).await?;
    shapes::far(setting, report).await?;
    processes::measure(setting, report).await?;
    blocked::measure(&rivals, &database, setting, report).await?;
    burst::measure(&rivals, setting, report).await?;
    provider.shutdown().await;
    Ok(())
}
