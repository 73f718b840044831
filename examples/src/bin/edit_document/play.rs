//! What the scenes have in common: the items and their locks, a line for each step, and the checks.

use std::time::{Duration, Instant};

use mongodb::Database;
use mongolock::{LockError, LockProvider};
use mongolock_examples::demo::Stage;
use mongolock_examples::print;
use mongolock_examples::summary::Summary;

use crate::edit_session::{EditSession, Opened, Saved, lock_name};
use crate::items::Items;
use crate::terminal::{closed, ended, opened, released, saved};

/// Longer than the scenes take: only one of them waits for the end of a lease, and that one has its own.
const EXPIRY: Duration = Duration::from_secs(120);

pub(crate) struct Play<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) items: Items,
    /// The provider of the application, for what is not done by a session.
    pub(crate) locks: LockProvider,
    begun: Instant,
    scenes: u32,
    checks: u32,
    summary: Summary,
}

impl<'a> Play<'a> {
    pub(crate) fn new(stage: &'a Stage) -> Result<Self, LockError> {
        Ok(Self {
            stage,
            items: Items::new(stage.database()),
            locks: LockProvider::builder(stage.database()).expiry(EXPIRY).build()?,
            begun: Instant::now(),
            scenes: 0,
            checks: 0,
            summary: Summary::default(),
        })
    }

    pub(crate) fn database(&self) -> &'a Database {
        self.stage.database()
    }

    /// Begins a scene.
    pub(crate) fn scene(&mut self, title: &str) -> anyhow::Result<()> {
        self.scenes += 1;
        print(format!("\n{}. {title}", self.scenes))
    }

    /// Checks that something is so in this scene.
    pub(crate) fn check(&mut self, is_so: bool, what: &str) {
        self.checks += 1;
        let scene = self.scenes;
        let failure = format!("scene {scene}: not true that {what}");
        self.summary.check(is_so, failure);
    }

    /// Prints a step and its result.
    pub(crate) fn step(&self, who: &str, does: &str, result: &str) -> anyhow::Result<()> {
        let time = self.begun.elapsed().as_secs_f64();
        print(format!("{time:>7.3} s  {who:<13} {does}\n{:>11}{result}", "-> "))
    }

    pub(crate) fn end(mut self) -> Summary {
        self.summary.row("scenes", self.scenes);
        self.summary.row("checks", self.checks);
        self.summary
    }

    /// Begins a session of Anna and one of Bert.
    pub(crate) fn sessions(&self) -> Result<(EditSession, EditSession), LockError> {
        Ok((self.session("anna@desk-3")?, self.session("bert@desk-5")?))
    }

    pub(crate) fn session(&self, user: &str) -> Result<EditSession, LockError> {
        EditSession::begin(&self.locks, &self.items, user)
    }

    pub(crate) async fn open(&self, session: &mut EditSession, item: u32) -> anyhow::Result<Opened> {
        let result = session.open(self.items.id(item).await?).await?;
        self.step(user(session), &format!("opens item {item}"), &opened(&result))?;
        Ok(result)
    }

    /// Opens an item, and checks that the session gets it.
    pub(crate) async fn gets(&mut self, session: &mut EditSession, item: u32) -> anyhow::Result<()> {
        let is_so = matches!(self.open(session, item).await?, Opened::Yours(_));
        self.check(is_so, &format!("{} gets item {item}", user(session)));
        Ok(())
    }

    /// Opens an item, and checks that the session sees that another one has it.
    pub(crate) async fn is_refused(
        &mut self,
        session: &mut EditSession,
        item: u32,
        holder: &EditSession,
    ) -> anyhow::Result<()> {
        let opened = self.open(session, item).await?;
        let is_so = matches!(opened, Opened::Taken(lock) if lock.owner.as_deref() == Some(holder.id()));
        let what = format!("{} sees that {} has item {item}", user(session), user(holder));
        self.check(is_so, &what);
        Ok(())
    }

    async fn save(&self, session: &mut EditSession, item: u32, text: &str) -> anyhow::Result<Saved> {
        let result = session.save(self.items.id(item).await?, text).await?;
        let answer = saved(&result, session.id());
        self.step(user(session), &format!("saves item {item}: \"{text}\""), &answer)?;
        Ok(result)
    }

    /// Saves an item after the loss of its lock: checks that the session gets this error and the text of the item, and that
    /// the item has this text.
    pub(crate) async fn conflicts(
        &mut self,
        session: &mut EditSession,
        (item, text): (u32, &str),
        (error, now): (fn(&LockError) -> bool, &str),
    ) -> anyhow::Result<()> {
        let saved = self.save(session, item, text).await?;
        let is_so =
            matches!(&saved, Saved::Conflict { why, now: found, .. } if error(why) && found.text == now);
        let user = user(session);
        let what = format!("{user} sees that it has lost item {item}, and its text");
        self.check(is_so, &what);
        self.has_text(item, now).await
    }

    /// Saves an item, and checks that it has the text.
    pub(crate) async fn saves(
        &mut self,
        session: &mut EditSession,
        item: u32,
        text: &str,
    ) -> anyhow::Result<()> {
        let is_saved = matches!(self.save(session, item, text).await?, Saved::Yes);
        self.check(is_saved, &format!("{} saves item {item}", user(session)));
        self.has_text(item, text).await
    }

    async fn has_text(&mut self, item: u32, text: &str) -> anyhow::Result<()> {
        let found = self.items.read(self.items.id(item).await?).await?.text;
        self.check(found == text, &format!("the text of item {item} is \"{text}\""));
        Ok(())
    }

    /// Closes an item, and checks that it was locked until then.
    pub(crate) async fn closes(&mut self, session: &mut EditSession, item: u32) -> anyhow::Result<()> {
        let was_locked = session.close(self.items.id(item).await?).await?;
        self.step(user(session), &format!("closes item {item}"), closed(was_locked))?;
        let what = format!("{} has item {item} until it is closed", user(session));
        self.check(was_locked, &what);
        Ok(())
    }

    /// Ends a session, and checks how many items that releases.
    pub(crate) async fn ends(&mut self, session: EditSession, items: u64) -> anyhow::Result<()> {
        let user = user(&session).to_owned();
        let released = session.end().await;
        self.step(&user, "ends the session", &ended(released))?;
        let what = format!("the end of the session of {user} releases {items} items");
        self.check(released == items, &what);
        Ok(())
    }

    /// Releases the lock of an item as an operator, and checks that it was held.
    pub(crate) async fn releases(&mut self, item: u32) -> anyhow::Result<()> {
        let name = lock_name(self.items.id(item).await?);
        let was_held = self.locks.admin().force_release(name).await?;
        let does = format!("releases item {item}");
        self.step("the operator", &does, released(was_held))?;
        self.check(was_held, &format!("item {item} was locked"));
        Ok(())
    }
}

/// The user of a session: its id without the part that makes it unique.
fn user(session: &EditSession) -> &str {
    let id = session.id();
    id.rsplit_once('#').map_or(id, |(user, _)| user)
}
