//! `show`: one lock or semaphore.

use mongolock::{LockAdmin, LockFilter, LockInfo, LockState};

use crate::cli::{ConnectionArguments, ShowArguments};
use crate::connection::Collections;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::ids;
use crate::json::{self, rfc3339, since, token};
use crate::last_renewal::{LastRenewals, no_renewal};
use crate::output::{StandardOutput, name_of, state};
use crate::text::{escaped, short};

pub(crate) async fn show(
    arguments: ShowArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let collections = connection.collections().await?;
    let found = found(&collections.provider.admin(), &arguments.name).await?;
    if found.is_empty() {
        return Err(no_lock("", &arguments.name, &collections));
    }
    let renewals = LastRenewals::read_unless(arguments.json, &collections).await;
    let mut output = StandardOutput::new();
    for (index, info) in found.iter().enumerate() {
        if arguments.json {
            output.line(json::lock(info))?;
            continue;
        }
        if index > 0 {
            output.line("")?;
        }
        for line in lines(info, &renewals) {
            output.line(line)?;
        }
    }
    output.flush()?;
    Ok(Exit::OK)
}

/// The lock of this name, and the permits of the semaphore of this name.
async fn found(admin: &LockAdmin, name: &str) -> Result<Vec<LockInfo>, Failure> {
    let lock = admin.get(name).await?;
    let mut found: Vec<LockInfo> = lock.into_iter().collect();
    found.extend(permits(admin, name).await?);
    Ok(found)
}

/// The permits of the semaphore of this name.
pub(crate) async fn permits(admin: &LockAdmin, name: &str) -> Result<Vec<LockInfo>, Failure> {
    // The ids of permits begin with the name and a separator, which no other lock can have there.
    let mut stream = admin.stream(LockFilter::new().prefix(ids::any_permit(name)));
    let mut permits = Vec::new();
    while let Some(found) = stream.next().await {
        // A damaged permit is a line of `ls`; it must not hide the others.
        match found {
            Ok(info) if info.permit.is_some() && info.name == name => permits.push(info),
            Ok(_) | Err(mongolock::LockError::CorruptDocument { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    permits.sort_by_key(|info| info.permit);
    Ok(permits)
}

/// The failure that there is no lock of this name, after a text about the result.
pub(crate) fn no_lock(outcome: &str, name: &str, collections: &Collections) -> Failure {
    let place = collections.name();
    Failure::new(format!("{outcome}there is no lock `{name}` in {place}"))
        .help("A lock has a document from its first acquisition until one day after its last use.")
        .code(exit::NO)
}

/// What is known about a lock, for people.
fn lines(info: &LockInfo, renewals: &LastRenewals) -> Vec<String> {
    let mut lines = vec![name_of(info)];
    let mut field = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    field("state", state(info.state).to_owned());
    if info.detached && info.state == LockState::Held {
        field("detached", "yes, no process renews it".to_owned());
    }
    if let Some(owner) = &info.owner {
        let name = match info.state {
            LockState::Held => "holder",
            LockState::Done => "done by",
            _ => "was held by",
        };
        field(name, escaped(owner).into_owned());
    }
    let acquired = rfc3339(info.acquired_at);
    field(
        "since",
        match since(info, info.acquired_at) {
            Some(time) => format!("{acquired} ({})", short(time)),
            None => acquired,
        },
    );
    let expires = rfc3339(info.expires_at);
    let (name, value) = match info.state {
        LockState::Held => (
            "remaining",
            format!("{} (until {expires})", short(info.remaining)),
        ),
        LockState::Done => ("until", format!("{expires} ({})", short(info.remaining))),
        _ => ("ended", expires),
    };
    field(name, value);
    if let Some(time) = renewals.missing_for(info) {
        field("renewal", format!("{}: its holder may be dead", no_renewal(time)));
    }
    if let Some(token) = token(info) {
        field("token", token.to_string());
    }
    lines
}
