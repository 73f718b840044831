//! `acquire` and `hold`: a lease that goes on when this program has ended.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use mongolock::{LeaseHandle, LockProvider};
use nix::unistd::{Uid, User, gethostname};

use crate::acquire::{self, PASSED_ON, Signals, close, unless_interrupted};
use crate::cli::{AcquireArguments, ConnectionArguments, HoldArguments};
use crate::exit::Ending;
use crate::failure::Failure;
use crate::handle_file::NewFile;
use crate::input;
use crate::json::rfc3339;
use crate::output::Output;
use crate::text::escaped;

/// Acquires, and leaves the lease to those who have its handle.
pub(crate) fn acquire(
    arguments: &AcquireArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let AcquireArguments { wanted, ttl, handle } = arguments;
    acquire::in_runtime(async {
        let provider = connection.builder().await?.build()?;
        let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
        let mut place = Place::new(handle)?;
        let detached = unless_interrupted(&mut signals, async {
            let hold = acquire::acquire(&provider, wanted, None, connection).await?;
            let detaching = hold.detach(*ttl);
            place.put(&detaching.handle())?;
            Ok(detaching.await?)
        });
        let detached = detached.await;
        close(&provider).await;
        detached?;
        place.keep();
        Ok(Ending::OK)
    })
}

/// Where the handle of a new lease goes.
enum Place {
    Output,
    File(NewFile),
}

impl Place {
    fn new(path: &Path) -> Result<Self, Failure> {
        if input::is_standard(path) {
            return Ok(Self::Output);
        }
        let created = NewFile::create(path);
        let created = created.map_err(Failure::io(format_args!("cannot create {}", path.display())))?;
        Ok(Self::File(created))
    }

    /// Stores the handle before its lease exists, so that a crash in the next step loses nothing.
    fn put(&mut self, handle: &LeaseHandle) -> Result<(), Failure> {
        let put = match self {
            Self::File(file) => file.write(handle),
            Self::Output => {
                let mut output = io::stdout();
                writeln!(output, "{}", handle.text()).and_then(|()| output.flush())
            }
        };
        put.map_err(Failure::io("cannot write the handle, so the lock is released"))
    }

    fn keep(self) {
        if let Self::File(file) = self {
            file.keep();
        }
    }
}

/// Acquires for a person, who ends it by the name of the lock.
pub(crate) fn hold(arguments: &HoldArguments, connection: &ConnectionArguments) -> Result<Ending, Failure> {
    let HoldArguments { wanted, time } = arguments;
    acquire::in_runtime(async {
        let provider = connection.builder().await?.build()?;
        let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
        let detached = unless_interrupted(&mut signals, async {
            let hold = acquire::acquire(&provider, wanted, None, connection).await?;
            Ok(hold.detach(*time).owner(person()).await?)
        });
        let told = match detached.await {
            Ok(handle) => tell(&provider, &handle, *time).await,
            Err(failure) => Err(failure),
        };
        close(&provider).await;
        told
    })
}

/// Says until when a lease goes on. If that fails, the lease is released: nobody would know of it.
async fn tell(provider: &LockProvider, handle: &LeaseHandle, time: Duration) -> Result<Ending, Failure> {
    let end = match provider.extend(handle, time).await {
        Ok(end) => rfc3339(end),
        Err(error) => {
            let _ = provider.release(handle).await;
            return Err(error.into());
        }
    };
    let names: Vec<_> = handle.names().map(escaped).collect();
    let permit = handle.permit().map(|number| format!(" #{number}"));
    let (names, permit) = (names.join(", "), permit.unwrap_or_default());
    let mut output = Output::new();
    output.line(format!(
        "{names}{permit}: held by {} until {end}",
        escaped(handle.owner())
    ))?;
    output.flush()?;
    Ok(Ending::OK)
}

/// The user and the host, as the owner of a lease.
fn person() -> String {
    let id = Uid::effective();
    let user = User::from_uid(id).ok().flatten();
    let user = user.map_or_else(|| id.to_string(), |user| user.name);
    let host = gethostname().unwrap_or_default();
    format!("{user}@{}", host.to_string_lossy())
}
