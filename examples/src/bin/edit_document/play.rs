//! What the scenes have in common: the items and their locks, a line for each thing that somebody does, and the checks.

use std::fmt;
use std::time::{Duration, Instant};

use mongodb::Database;
use mongodb::bson::oid::ObjectId;
use mongolock::{LockError, LockInfo, LockProvider};
use mongolock_examples::output::println;

use crate::edit_session::{EditSession, Opened, Saved, lock_name};
use crate::items::Items;
use crate::wording;

/// The scenes wait for no lease to end but for the one that is about that.
const EXPIRY: Duration = Duration::from_secs(120);

pub(crate) struct Play<'a> {
    pub(crate) uri: &'a str,
    pub(crate) database: &'a Database,
    pub(crate) items: Items,
    /// Of the application, for all that is nobody's session.
    pub(crate) locks: LockProvider,
    begun: Instant,
    scenes: Verdicts,
}

/// The scenes so far, each with the checks that failed.
#[derive(Default)]
struct Verdicts(Vec<(String, Vec<String>)>);

impl<'a> Play<'a> {
    pub(crate) fn new(uri: &'a str, database: &'a Database) -> Result<Self, LockError> {
        Ok(Self {
            uri,
            database,
            items: Items::new(database),
            locks: LockProvider::builder(database).expiry(EXPIRY).build()?,
            begun: Instant::now(),
            scenes: Verdicts::default(),
        })
    }

    /// Begins a scene.
    pub(crate) fn scene(&mut self, title: &str) -> anyhow::Result<()> {
        self.scenes.begin(title);
        println(&format!("\n{}. {title}", self.scenes.0.len()))
    }

    /// Notes whether the scene goes as it should.
    pub(crate) fn check(&mut self, what: &str, is_so: bool) {
        self.scenes.check(what, is_so);
    }

    /// Prints what somebody does, and what comes of it.
    pub(crate) fn tell(&self, who: &str, does: &str, answer: &str) -> anyhow::Result<()> {
        let time = self.begun.elapsed().as_secs_f64();
        println(&format!("{time:>7.3} s  {who:<13} {does}\n{:>11}{answer}", "-> "))
    }

    /// Prints the table, and says whether all went as expected.
    pub(crate) fn end(self) -> anyhow::Result<bool> {
        println(&format!("\n{}", self.scenes))?;
        Ok(self.scenes.are_right())
    }

    pub(crate) fn arrives(&self, person: &str) -> Result<EditSession, LockError> {
        EditSession::begin(&self.locks, &self.items, person)
    }

    pub(crate) async fn open(&self, session: &mut EditSession, item: u32) -> anyhow::Result<Opened> {
        let opened = session.open(self.items.id(item).await?).await?;
        self.tell(
            person(session),
            &format!("opens item {item}"),
            &wording::opened(&opened),
        )?;
        Ok(opened)
    }

    pub(crate) async fn save(
        &self,
        session: &mut EditSession,
        item: u32,
        text: &str,
    ) -> anyhow::Result<Saved> {
        let saved = session.save(self.items.id(item).await?, text).await?;
        let answer = wording::saved(&saved, session.id());
        self.tell(
            person(session),
            &format!("saves item {item}: \"{text}\""),
            &answer,
        )?;
        Ok(saved)
    }

    pub(crate) async fn close(&self, session: &mut EditSession, item: u32) -> anyhow::Result<bool> {
        let was_locked = session.close(self.items.id(item).await?).await?;
        self.tell(
            person(session),
            &format!("closes item {item}"),
            &wording::closed(was_locked),
        )?;
        Ok(was_locked)
    }

    pub(crate) async fn leaves(&self, session: EditSession) -> anyhow::Result<u64> {
        let who = person(&session).to_owned();
        let ended = session.end().await;
        self.tell(&who, "ends the session", &wording::given_back(ended))?;
        Ok(ended)
    }

    /// An operator's act.
    pub(crate) async fn release(&self, item: u32) -> anyhow::Result<bool> {
        let name = lock_name(self.items.id(item).await?);
        let was_held = self.locks.admin().force_release(name).await?;
        self.tell(
            "the operator",
            &format!("releases item {item}"),
            &wording::released(was_held),
        )?;
        Ok(was_held)
    }

    /// What there is to know about the lock of an item; `None` if it was never locked.
    pub(crate) async fn look(&self, id: ObjectId) -> Result<Option<LockInfo>, LockError> {
        self.locks.admin().get(lock_name(id)).await
    }

    pub(crate) async fn text(&self, item: u32) -> anyhow::Result<String> {
        let id = self.items.id(item).await?;
        Ok(self.items.read(id).await?.text)
    }
}

/// Who is in a session: what stands before the part that makes its id unique.
fn person(session: &EditSession) -> &str {
    session
        .id()
        .rsplit_once('#')
        .map_or(session.id(), |(person, _)| person)
}

impl Verdicts {
    fn begin(&mut self, title: &str) {
        self.0.push((title.to_owned(), Vec::new()));
    }

    fn check(&mut self, what: &str, is_so: bool) {
        if let (Some((_, failed)), false) = (self.0.last_mut(), is_so) {
            failed.push(what.to_owned());
        }
    }

    fn are_right(&self) -> bool {
        self.0.iter().all(|(_, failed)| failed.is_empty())
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (title, failed)) in (1..).zip(&self.0) {
            let verdict = if failed.is_empty() {
                "as expected"
            } else {
                "NOT as expected"
            };
            writeln!(f, "{number}  {title:<70}  {verdict}")?;
            for what in failed {
                writeln!(f, "   not so: {what}")?;
            }
        }
        let verdict = if self.are_right() {
            "Everything is as expected."
        } else {
            "Something is not as expected."
        };
        write!(f, "\n{verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_is_told_and_decides() {
        let mut scenes = Verdicts::default();
        scenes.begin("good");
        scenes.check("one", true);
        assert!(scenes.are_right() && scenes.to_string().ends_with("Everything is as expected."));
        scenes.begin("bad");
        scenes.check("two", true);
        scenes.check("three", false);
        scenes.begin("good again");
        scenes.check("four", true);
        assert!(!scenes.are_right());
        let table = scenes.to_string();
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "1 good as expected",
            "2 bad NOT as expected",
            "not so: three",
            "3 good again as expected",
            "",
            "Something is not as expected.",
        ];
        assert_eq!(lines, expected);
    }
}
