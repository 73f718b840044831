//! `acquire` and `hold`: a lease that stays valid when this program has ended.

use std::fs::{self, File};
use std::future::ready;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use mongolock::{Detach, LeaseHandle, LockProvider};

use crate::acquire::{
    self, PASSED_ON, Signals, close, interrupted, longest_end, patiently, unless_interrupted,
};
use crate::cli::{AcquireArguments, ConnectionArguments, HoldArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::handle_file::NewFile;
use crate::input;
use crate::json::rfc3339;
use crate::output::names_of;
use crate::person::person;
use crate::text::{escaped, quoted};

/// The expiry of a lease until it is detached: that of the library, which these commands do not set.
const EXPIRY: Duration = Duration::from_secs(30);

/// Acquires a lock, and detaches the lease: everyone with its handle can use it.
pub(crate) fn acquire(
    arguments: &AcquireArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let AcquireArguments {
        wanted,
        ttl,
        handle,
        owner,
    } = arguments;
    acquire::in_runtime(async {
        let provider = connection.builder().await?.build()?;
        let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
        let mut target = HandleTarget::new(handle, connection)?;
        let acquiring = acquire::acquire(&provider, wanted, None, connection);
        let detached = async {
            let hold = unless_interrupted(&mut signals, acquiring).await?;
            let mut owned = hold.detach(*ttl);
            if let Some(owner) = owner {
                owned = owned.owner(owner);
            }
            detach(&provider, &mut signals, owned, |handle| target.put(handle)).await
        };
        let detached = detached.await;
        close(&provider).await;
        detached?;
        target.keep();
        Ok(Exit::OK)
    })
}

/// Stores the handle before its lease exists, so that a crash does not lose it, and then detaches the lease.
async fn detach(
    provider: &LockProvider,
    signals: &mut Signals,
    detach: Detach,
    store: impl FnOnce(&LeaseHandle) -> Result<(), Failure>,
) -> Result<LeaseHandle, Failure> {
    store(&detach.handle())?;
    let most = longest_end(EXPIRY);
    // A signal in a long wait drops the request, which releases the lock, and the lease if it is detached already.
    let detached = patiently(signals, "the detachment", most, || None, detach.into_future()).await;
    let handle = detached.map_err(interrupted)??;
    if let Err(interrupted) = unless_interrupted(signals, ready(Ok(()))).await {
        let _ = provider.release(&handle).await;
        return Err(interrupted);
    }
    Ok(handle)
}

/// The target for the handle of a new lease.
enum HandleTarget {
    Output,
    File(NewFile),
}

impl HandleTarget {
    fn new(path: &Path, connection: &ConnectionArguments) -> Result<Self, Failure> {
        if input::is_standard(path) {
            return match is_null(io::stdout()) {
                Ok(false) => Ok(Self::Output),
                _ => Err(Failure::new(
                    "nobody would get the handle: standard output is closed, or the null device",
                )),
            };
        }
        let created = NewFile::create(path).map_err(|error| {
            let shown = path.display().to_string();
            let failure = Failure::new(format!("cannot create {shown}: {error}"));
            if !path.is_file() {
                return failure;
            }
            let (file, options) = (quoted(&shown), connection.as_options());
            failure.help(format!(
                "It may have the handle of a lease: `mongolock release --handle {file}{options}` ends that lease and deletes \
                 the file."
            ))
        });
        Ok(Self::File(created?))
    }

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

/// Whether an output is the null device, which the standard library opens in the place of a closed one.
fn is_null(output: impl AsFd) -> io::Result<bool> {
    let output = File::from(output.as_fd().try_clone_to_owned()?);
    Ok(output.metadata()?.rdev() == fs::metadata("/dev/null")?.rdev())
}

/// Acquires a lock for a person, who releases it by its name.
pub(crate) fn hold(arguments: &HoldArguments, connection: &ConnectionArguments) -> Result<Exit, Failure> {
    let HoldArguments { wanted, time } = arguments;
    acquire::in_runtime(async {
        let provider = connection.builder().await?.build()?;
        let mut signals = Signals::new(&PASSED_ON).map_err(Failure::io("cannot receive signals"))?;
        let acquiring = acquire::acquire(&provider, wanted, None, connection);
        let held = async {
            let hold = unless_interrupted(&mut signals, acquiring).await?;
            let owned = hold.detach(*time).owner(person());
            let handle = detach(&provider, &mut signals, owned, |_| Ok(())).await?;
            tell(&provider, &handle, *time).await
        };
        let held = held.await;
        close(&provider).await;
        held
    })
}

/// Prints the end of a lease. If that fails, the lease is released, because the user would not know about it.
async fn tell(provider: &LockProvider, handle: &LeaseHandle, time: Duration) -> Result<Exit, Failure> {
    let told = match provider.extend(handle, time).await {
        Ok(end) => say(handle, &rfc3339(end)),
        Err(error) => Err(error.into()),
    };
    let Err(failure) = told else {
        return Ok(Exit::OK);
    };
    let names = names_of(handle);
    Err(match provider.release(handle).await {
        Ok(_) => Failure::new(format!("{failure}; {names} is released")),
        Err(error) => Failure::new(format!("{failure}; {names} is not released: {error}")),
    })
}

fn say(handle: &LeaseHandle, end: &str) -> Result<(), Failure> {
    let (names, owner) = (names_of(handle), escaped(handle.owner()));
    let mut output = io::stdout();
    let said = writeln!(output, "{names}: held by {owner} until {end}").and_then(|()| output.flush());
    said.map_err(Failure::io("cannot write the output"))
}
