//! A session at the terminal: a command on each line of standard input, and the session ends with it.

use std::env;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use mongodb::Client;
use mongolock::{LockFilter, LockProvider, LockState};
use mongolock_examples::output::println;

use crate::command::{Command, USAGE};
use crate::edit_session::{EditSession, PREFIX, end_session, item_of, lock_name};
use crate::items::Items;
use crate::options::Terminal;
use crate::wording;

/// Items to make in a database that has none.
const ITEMS: u32 = 5;

struct Desk {
    locks: LockProvider,
    items: Items,
    session: EditSession,
}

pub(crate) async fn run(terminal: &Terminal) -> anyhow::Result<ExitCode> {
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
    println(&format!(
        "You are {}. There are items 1 to {ITEMS}.\n{USAGE}",
        session.id()
    ))?;
    let mut desk = Desk {
        locks,
        items,
        session,
    };
    while let Some(line) = next_line().await?.filter(|line| line.trim() != "quit") {
        let answer = match line.parse() {
            Ok(command) => desk.obey(command).await,
            Err(error) => Err(error),
        };
        println(&answer.unwrap_or_else(|error| format!("Error: {error:#}")))?;
    }
    println(&wording::given_back(desk.session.end().await))?;
    Ok(ExitCode::SUCCESS)
}

/// `None` at the end of standard input.
async fn next_line() -> anyhow::Result<Option<String>> {
    let read = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await?;
    read.transpose().context("cannot read the commands")
}

impl Desk {
    /// Does what a command says, and gives the answer.
    async fn obey(&mut self, command: Command) -> anyhow::Result<String> {
        Ok(match command {
            Command::Open(number) => {
                let id = self.items.id(number).await?;
                wording::opened(&self.session.open(id).await?)
            }
            Command::Save(number, text) => {
                let id = self.items.id(number).await?;
                let saved = self.session.save(id, &text).await?;
                wording::saved(&saved, self.session.id())
            }
            Command::Close(number) => {
                let id = self.items.id(number).await?;
                wording::closed(self.session.close(id).await?)
            }
            Command::Who => self.who().await?,
            Command::Release(number) => {
                let name = lock_name(self.items.id(number).await?);
                wording::released(self.locks.admin().force_release(name).await?)
            }
            Command::End(session) => wording::given_back(end_session(&self.locks, &session).await?),
        })
    }

    /// A line for each item that is open.
    async fn who(&self) -> anyhow::Result<String> {
        let held = LockFilter::new().prefix(PREFIX).state(LockState::Held);
        let mut lines = Vec::new();
        for lock in self.locks.admin().list(held).await? {
            let Some(id) = item_of(&lock.name) else { continue };
            let item = self.items.read(id).await?;
            lines.push(format!("item {}: {}", item.number, wording::holder(&lock)));
        }
        if lines.is_empty() {
            lines.push("nobody has an item open".to_owned());
        }
        Ok(lines.join("\n"))
    }
}
