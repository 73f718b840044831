//! `release`: ends holds by force or with their handle, and removes marks of finished work.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use mongolock::{LockAdmin, LockError, LockInfo, LockState};
use tokio::time::sleep;

use crate::cli::{ConnectionArguments, ReleaseArguments};
use crate::connection::Collections;
use crate::damaged::DamagedDocument;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::handle_file::Stored;
use crate::input;
use crate::json::token;
use crate::output::{StandardOutput, name_of, names_of, state, taken};
use crate::question;
use crate::show::{no_lock, permits};
use crate::text::{count, escaped};

/// The pause between two reads of a lock whose holder was ended.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn release(
    arguments: ReleaseArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let stored = arguments.handle.as_deref().map(stored).transpose()?;
    let collections = connection.collections().await?;
    if let Some(stored) = stored {
        return release_detached(&collections, &stored).await;
    }
    match (&arguments.name, &arguments.owner) {
        (_, Some(owner)) => release_owner(&collections, owner, &arguments).await,
        (Some(name), None) => release_name(&collections, name, &arguments).await,
        // The command line requires one of them.
        (None, None) => Err(Failure::new("no name is given")),
    }
}

/// Reads a handle. There is nothing to release if the file is missing or empty; an `acquire` that was killed leaves an
/// empty file.
fn stored(path: &Path) -> Result<Stored, Failure> {
    let shown = path.display();
    match fs::metadata(path) {
        _ if input::is_standard(path) => Stored::read(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(nothing(format!("{shown} does not exist"))),
        Ok(file) if file.is_file() && file.len() == 0 => {
            fs::remove_file(path).map_err(Failure::io(format_args!("cannot delete {shown}")))?;
            Err(nothing(format!("{shown} was empty, and is deleted")))
        }
        _ => Stored::read(path),
    }
}

/// Releases the lease of a handle. A handle without a lease never gets one again, so its file is deleted as well.
async fn release_detached(collections: &Collections, stored: &Stored) -> Result<Exit, Failure> {
    let handle = &stored.handle;
    if collections.provider.release(handle).await? {
        say(&format!("released {}", names_of(handle)));
        stored.delete()?;
        return Ok(Exit::OK);
    }
    stored.delete()?;
    Err(nothing(stored.no_lease()))
}

async fn release_owner(
    collections: &Collections,
    owner: &str,
    arguments: &ReleaseArguments,
) -> Result<Exit, Failure> {
    let question = format!("release all locks of {}?", escaped(owner));
    confirm(&question, arguments.yes)?;
    let released = collections.provider.admin().release_owner(owner).await?;
    if released == 0 {
        let place = collections.name();
        return Err(nothing(format!("the owner {owner} holds no lock in {place}")));
    }
    let locks = count(released, "lock");
    say(&format!("released {locks} of {}", escaped(owner)));
    Ok(Exit::OK)
}

async fn release_name(
    collections: &Collections,
    name: &str,
    arguments: &ReleaseArguments,
) -> Result<Exit, Failure> {
    let damaged = damaged(collections, name, arguments).await?;
    let seen = seen(collections, name, arguments, !damaged.is_empty()).await?;
    let wanted = match releasable(&seen, arguments) {
        Err(_) if !damaged.is_empty() => Vec::new(),
        wanted => wanted?,
    };
    for info in &wanted {
        say(&description(info));
    }
    for document in &damaged {
        say(&format!("{}: damaged, {}", document.shown(), document.holder()));
    }
    let number = wanted.len() + damaged.len();
    let question = if number > 1 {
        format!("release these {number} permits?")
    } else {
        "release it?".to_owned()
    };
    confirm(&question, arguments.yes)?;
    let admin = collections.provider.admin();
    let (mut missed, mut released) = (false, Vec::new());
    for info in wanted {
        if release_seen(&admin, info).await? {
            released.push(info);
        } else {
            missed = true;
        }
    }
    for document in damaged {
        let is_released = document.release(collections).await?;
        missed |= !is_released;
        let outcome = if is_released {
            "released, and set right"
        } else {
            UNCHANGED
        };
        say(&format!("{}: {outcome}", document.shown()));
    }
    if arguments.wait {
        for info in released {
            say(&until_ended(&admin, info).await?);
        }
    }
    Ok(Exit::Code(if missed { exit::NO } else { 0 }))
}

/// The damaged documents of the lock or of the permits that are asked for, by the rules of [`releasable`].
async fn damaged(
    collections: &Collections,
    name: &str,
    arguments: &ReleaseArguments,
) -> Result<Vec<DamagedDocument>, Failure> {
    let mut damaged = DamagedDocument::of(collections, name).await?;
    damaged.retain(|document| {
        let is_asked_for = match document.permit() {
            Some(number) => arguments.all || arguments.permit == Some(number),
            None => !arguments.all && arguments.permit.is_none(),
        };
        let has_token = arguments.token.is_none_or(|token| document.has_token(token));
        is_asked_for && has_token && document.is_done() == arguments.done
    });
    Ok(damaged)
}

/// The lock or the permits that are asked for, as they are now, without damaged ones.
async fn seen(
    collections: &Collections,
    name: &str,
    arguments: &ReleaseArguments,
    is_damaged: bool,
) -> Result<Vec<LockInfo>, Failure> {
    let admin = collections.provider.admin();
    if arguments.permit.is_none() && !arguments.all {
        match admin.get(name).await {
            Err(LockError::CorruptDocument { .. }) if is_damaged => return Ok(Vec::new()),
            Ok(None) => {}
            lock => return Ok(lock?.into_iter().collect()),
        }
        if permits(&admin, name).await?.is_empty() {
            return Err(no_lock(NOTHING, name, collections));
        }
        let semaphore = nothing(format!("`{name}` is a semaphore"));
        return Err(semaphore.help("Name the permit with --permit, or use --all."));
    }
    let mut permits = permits(&admin, name).await?;
    permits.retain(|info| arguments.permit.is_none_or(|number| info.permit == Some(number)));
    if permits.is_empty() && !is_damaged {
        let permit = match arguments.permit {
            Some(number) => format!("permit {number}"),
            None => "permits".to_owned(),
        };
        let place = collections.name();
        return Err(nothing(format!("`{name}` has no {permit} in {place}")));
    }
    Ok(permits)
}

/// Those that can be released. A mark needs `--done`, so that finished work is not run again by mistake.
fn releasable<'a>(seen: &'a [LockInfo], arguments: &ReleaseArguments) -> Result<Vec<&'a LockInfo>, Failure> {
    let is_wanted = |info: &&LockInfo| match info.state {
        LockState::Done => arguments.done,
        LockState::Held => !arguments.done,
        // The rest of a minimum hold.
        _ => !arguments.done && !info.remaining.is_zero(),
    };
    let has_token = |info: &&LockInfo| {
        arguments
            .token
            .is_none_or(|token| info.fencing_token.get() == token)
    };
    let wanted: Vec<&LockInfo> = seen.iter().filter(is_wanted).filter(has_token).collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let refused = nothing(match seen {
        [one] if !has_token(&one) => {
            let name = name_of(one);
            format!("`{name}` has another token: {}", one.fencing_token)
        }
        [one] if arguments.done => format!(
            "`{}` has no mark of finished work: it is {}",
            name_of(one),
            state(one.state)
        ),
        [one] => format!("`{}` is {}", name_of(one), state(one.state)),
        [permit, ..] => format!("no permit of `{}` is held", permit.name),
        [] => "no permit is held".to_owned(),
    });
    Err(match seen {
        [one] if one.state == LockState::Done => {
            refused.help("Use --done to clear the mark, so that the work runs again.")
        }
        _ => refused,
    })
}

fn description(info: &LockInfo) -> String {
    let token = token(info).map(|token| format!(" (token {token})"));
    format!("{}: {}{}", name_of(info), taken(info), token.unwrap_or_default())
}

/// Ends the hold that was read, and no later one. Returns whether it still existed.
async fn release_seen(admin: &LockAdmin, info: &LockInfo) -> Result<bool, Failure> {
    let mut request = admin.force_release(&info.name).only_if(info.fencing_token);
    if let Some(number) = info.permit {
        request = request.permit(number);
    }
    let is_released = request.await?;
    let outcome = match info.state {
        _ if !is_released => UNCHANGED,
        LockState::Done => "the mark is cleared",
        LockState::Held if !info.detached => "released; its holder learns of it at its next renewal",
        _ => "released",
    };
    say(&format!("{}: {outcome}", name_of(info)));
    Ok(is_released)
}

/// Waits until a lock or permit has another holder than the one that was read, or none, and returns which. A release
/// ends the hold, so the wait is long only if another program has changed the document.
async fn until_ended(admin: &LockAdmin, seen: &LockInfo) -> Result<String, Failure> {
    let name = name_of(seen);
    loop {
        let now = match seen.permit {
            Some(_) => permits(admin, &seen.name)
                .await?
                .into_iter()
                .find(|info| info.permit == seen.permit),
            None => admin.get(&seen.name).await?,
        };
        match now.filter(|now| now.state == LockState::Held) {
            None => return Ok(format!("{name}: nobody holds it")),
            Some(now) if now.fencing_token != seen.fencing_token => {
                return Ok(format!("{name}: {}", taken(&now)));
            }
            Some(_) => sleep(LOOK).await,
        }
    }
}

/// Asks at a terminal; anything but a yes is a failure. Elsewhere no user can be asked, and `--yes` is needed.
fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !question::is_possible() {
        return Err(Failure::new("cannot ask whether to release: there is no terminal").help("Add --yes."));
    }
    if question::ask(question)? {
        return Ok(());
    }
    Err(nothing("the answer was not yes"))
}

/// The result for a lock that has changed since it was read.
const UNCHANGED: &str = "not released: it has changed meanwhile";

/// The words before the reason why nothing was released.
const NOTHING: &str = "nothing released: ";

fn nothing(reason: impl Display) -> Failure {
    Failure::new(format!("{NOTHING}{reason}")).code(exit::NO)
}

/// Prints what was done. If the output cannot be written, the work was done anyway, and a line on standard error
/// reports the failure.
fn say(line: &str) {
    let mut output = StandardOutput::new();
    let said = output.line(line).and_then(|()| output.flush());
    if let Err(failure) = said {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| failure.print());
    }
}
