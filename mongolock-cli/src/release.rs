//! `release`: ends holds by force, and clears marks of finished work.

use mongolock::{LockAdmin, LockInfo, LockState};

use crate::cli::{ConnectionArguments, ReleaseArguments};
use crate::exit::{self, Ending};
use crate::failure::Failure;
use crate::output::{Output, name_of, state};
use crate::question;
use crate::show::{no_lock, permits};
use crate::text::{escaped, short};

pub(crate) async fn release(
    arguments: ReleaseArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let place = connection.place().await?;
    let admin = place.provider.admin();
    match (&arguments.name, &arguments.owner) {
        (_, Some(owner)) => release_owner(&admin, owner, arguments.yes).await,
        (Some(name), None) => release_name(&admin, name, &arguments).await,
        // The command line requires one of them.
        (None, None) => Err(Failure::new("no name is given")),
    }
}

async fn release_owner(admin: &LockAdmin, owner: &str, yes: bool) -> Result<Ending, Failure> {
    let question = format!("release all locks of {}?", escaped(owner));
    if !is_confirmed(&question, yes)? {
        return Ok(Ending::Code(exit::NO));
    }
    let released = admin.release_owner(owner).await?;
    let number = match released {
        1 => "1 lock".to_owned(),
        _ => format!("{released} locks"),
    };
    say(format!("released {number} of {}", escaped(owner)))?;
    Ok(Ending::Code(if released == 0 { exit::NO } else { 0 }))
}

async fn release_name(
    admin: &LockAdmin,
    name: &str,
    arguments: &ReleaseArguments,
) -> Result<Ending, Failure> {
    let seen = seen(admin, name, arguments).await?;
    let wanted = releasable(&seen, arguments)?;
    let many = wanted.len() > 1;
    for info in &wanted {
        say(description(info))?;
    }
    let question = if many {
        format!("release these {} permits?", wanted.len())
    } else {
        "release it?".to_owned()
    };
    if !is_confirmed(&question, arguments.yes)? {
        return Ok(Ending::Code(exit::NO));
    }
    let mut missed = 0;
    for info in wanted {
        missed += u32::from(!end(admin, info).await?);
    }
    Ok(Ending::Code(if missed == 0 { 0 } else { exit::NO }))
}

/// The lock or the permits that are asked for, as they are now.
async fn seen(admin: &LockAdmin, name: &str, arguments: &ReleaseArguments) -> Result<Vec<LockInfo>, Failure> {
    if arguments.permit.is_none() && !arguments.all {
        if let Some(lock) = admin.get(name).await? {
            return Ok(vec![lock]);
        }
        if permits(admin, name).await?.is_empty() {
            return Err(no_lock(name));
        }
        let semaphore = format!("`{name}` is a semaphore");
        return Err(Failure::new(semaphore)
            .help("Name the permit with --permit, or use --all.")
            .code(exit::NO));
    }
    let mut permits = permits(admin, name).await?;
    permits.retain(|info| arguments.permit.is_none_or(|number| info.permit == Some(number)));
    if permits.is_empty() {
        return Err(Failure::new(format!("`{name}` has no such permit")).code(exit::NO));
    }
    Ok(permits)
}

/// Those that can be released. A mark needs `--done`, so that nobody runs finished work again by mistake.
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
    let refused = Failure::new(match seen {
        [one] if !has_token(&one) => {
            let name = name_of(one);
            format!("`{name}` has another token: {}", one.fencing_token)
        }
        [one] => format!("`{}` is {}", name_of(one), state(one.state)),
        _ => "no permit is held".to_owned(),
    });
    let refused = refused.code(exit::NO);
    Err(match seen {
        [one] if one.state == LockState::Done => {
            refused.help("Use --done to clear the mark, so that the work runs again.")
        }
        _ => refused,
    })
}

fn description(info: &LockInfo) -> String {
    let owner = info.owner.as_deref().unwrap_or("an unknown owner");
    let (owner, left) = (escaped(owner), short(info.remaining));
    let said = match info.state {
        LockState::Done => format!("done by {owner}, for another {left}"),
        LockState::Held => format!("held by {owner}, lease valid for another {left}"),
        _ => format!("{}, and kept for another {left}", state(info.state)),
    };
    format!("{}: {said} (token {})", name_of(info), info.fencing_token)
}

/// Ends what was seen, and nothing that has begun since.
async fn end(admin: &LockAdmin, info: &LockInfo) -> Result<bool, Failure> {
    let mut request = admin.force_release(&info.name).only_if(info.fencing_token);
    if let Some(number) = info.permit {
        request = request.permit(number);
    }
    let was_released = request.await?;
    let outcome = match (was_released, info.state) {
        (true, LockState::Done) => "the mark is cleared",
        (true, LockState::Held) => "released; its holder learns of it at its next renewal",
        (true, _) => "released",
        (false, _) => "not released: it has changed meanwhile",
    };
    say(format!("{}: {outcome}", name_of(info)))?;
    Ok(was_released)
}

/// Asks at a terminal. Elsewhere nobody can be asked, and `--yes` is needed.
fn is_confirmed(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if question::is_possible() {
        return question::ask(question);
    }
    Err(Failure::new("nothing was released: there is no terminal to ask at").help("Add --yes."))
}

fn say(line: String) -> Result<(), Failure> {
    let mut output = Output::new();
    output.line(line)?;
    output.flush()
}
