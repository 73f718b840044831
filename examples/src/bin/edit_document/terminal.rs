//! A session at the terminal: a command on each line of standard input. The session ends with the input.

use std::env;
use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongolock::{LockError, LockFilter, LockInfo, LockProvider, LockState};
use mongolock_examples::duration::show;
use mongolock_examples::print;
use mongolock_examples::summary::count;

use crate::Terminal;
use crate::edit_session::{EditSession, Opened, PREFIX, Saved, end_session, item_of, lock_name};
use crate::items::Items;

/// The items of a new database.
const ITEMS: u32 = 5;

/// The last line of [`USAGE`] begins with this.
pub(crate) const LAST_COMMAND: &str = "quit";

const USAGE: &str = "\
open N        open item N, and lock it
save N TEXT   save a text in item N, and close it
close N       close item N without saving
who           list the open items and their sessions
release N     release the lock of item N, whichever session holds it
end SESSION   release all items of a session, also of a crashed one
quit          release all your items, and end";

struct Desk {
    locks: LockProvider,
    items: Items,
    session: EditSession,
}

pub(crate) async fn run(terminal: &Terminal) -> anyhow::Result<()> {
    let uri = env::var("MONGODB_URI").ok().filter(|uri| !uri.is_empty());
    let uri = uri.context("set MONGODB_URI to the server whose items you want to edit")?;
    let database = Client::with_uri_str(uri).await?.database(&terminal.database);
    let items = Items::new(&database);
    items.create(ITEMS).await?;
    let locks = LockProvider::builder(&database)
        .expiry(terminal.expiry)
        .max_hold(terminal.max_hold)
        .build()?;
    let session = EditSession::begin(&locks, &items, &terminal.editor)?;
    let id = session.id();
    print(format!("You are {id}. The items are 1 to {ITEMS}.\n{USAGE}"))?;
    let mut desk = Desk {
        locks,
        items,
        session,
    };
    while let Some(line) = next_line().await?.filter(|line| line.trim() != LAST_COMMAND) {
        let answer = desk.execute(&line).await;
        print(answer.unwrap_or_else(|error| format!("Error: {error:#}")))?;
    }
    print(ended(desk.session.end().await))
}

/// `None` at the end of standard input.
async fn next_line() -> anyhow::Result<Option<String>> {
    let read = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await?;
    read.transpose().context("cannot read the commands")
}

impl Desk {
    /// Executes a command, and returns the answer.
    async fn execute(&mut self, line: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["open", item] => {
                let id = self.item(item).await?;
                opened(&self.session.open(id).await?)
            }
            ["save", item, ref text @ ..] if !text.is_empty() => {
                let id = self.item(item).await?;
                let result = self.session.save(id, &text.join(" ")).await?;
                saved(&result, self.session.id())
            }
            ["close", item] => {
                let id = self.item(item).await?;
                closed(self.session.close(id).await?).to_owned()
            }
            ["who"] => self.who().await?,
            ["release", item] => {
                let name = lock_name(self.item(item).await?);
                released(self.locks.admin().force_release(name).await?).to_owned()
            }
            ["end", session] => ended(end_session(&self.locks, session).await?),
            _ => bail!(
                "{line:?} is not a command: open N, save N TEXT, close N, who, release N, end SESSION, quit"
            ),
        })
    }

    async fn item(&self, number: &str) -> anyhow::Result<ObjectId> {
        let number = number.parse();
        self.items
            .id(number.context("write the number of an item, such as `open 1`")?)
            .await
    }

    /// A line for each open item.
    async fn who(&self) -> anyhow::Result<String> {
        let held = LockFilter::new().prefix(PREFIX).state(LockState::Held);
        let mut lines = Vec::new();
        for lock in self.locks.admin().list(held).await? {
            let Some(id) = item_of(&lock.name) else { continue };
            let item = self.items.read(id).await?;
            lines.push(format!("item {}: {}", item.number, holder(&lock)));
        }
        if lines.is_empty() {
            lines.push("no item is open".to_owned());
        }
        Ok(lines.join("\n"))
    }
}

pub(crate) fn opened(opened: &Opened) -> String {
    match opened {
        Opened::Yours(item) => format!("locked for you; its text is \"{}\"", item.text),
        Opened::Taken(lock) => holder(lock),
    }
}

/// The session that has an item, since when, and how long its lease is still valid.
fn holder(lock: &LockInfo) -> String {
    let owner = lock.owner.as_deref().unwrap_or("another program");
    // Both times are by the clock of the server.
    let lease = lock.expires_at.timestamp_millis() - lock.acquired_at.timestamp_millis();
    let lease = Duration::from_millis(u64::try_from(lease).unwrap_or_default());
    let since = show(lease.saturating_sub(lock.remaining));
    let remaining = show(lock.remaining);
    format!("{owner} locked it {since} ago; lease valid for another {remaining}")
}

/// The result of saving, for the session that has tried it.
pub(crate) fn saved(saved: &Saved, session: &str) -> String {
    let Saved::Conflict { why, now, changed } = saved else {
        return "saved and closed".to_owned();
    };
    let text = &now.text;
    match (&now.saved_by, why) {
        _ if !changed => {
            "not saved: your lock expired or was released; the item is unchanged, reopen it and save".to_owned()
        }
        (Some(other), LockError::Stale { .. }) => {
            format!("not saved: {other} has saved \"{text}\" with a newer lock; reopen and compare")
        }
        (Some(other), _) if other != session => format!(
            "not saved: your lock expired or was released, and {other} has since saved \"{text}\"; reopen and compare"
        ),
        _ => "saved, but your lock had expired or was released: other sessions may have opened the earlier text; \
              reopen and compare"
            .to_owned(),
    }
}

pub(crate) fn closed(was_locked: bool) -> &'static str {
    if was_locked {
        "closed"
    } else {
        "closed; the lock had expired or was released before"
    }
}

pub(crate) fn ended(items: u64) -> String {
    let items = usize::try_from(items).unwrap_or(usize::MAX);
    format!("{} released", count(items, "item", "items"))
}

pub(crate) fn released(was_held: bool) -> &'static str {
    if was_held { "released" } else { "it was not locked" }
}
