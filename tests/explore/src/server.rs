//! The server: what a command does to the documents, and what the change streams report.

use std::sync::Arc;

use crate::core::{Event, Fault, Key, Saw};
use crate::network::{Body, Message};
use crate::process::{State, Told};
use crate::protocol::{self, Document, LockId, Name, News, Reply, Row, RowOrder, Sight, Then, Value, When};
use crate::world::{Deceived, World};

/// The character between the name of a semaphore and the number of a permit.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// A released document is deleted this long after its end: much sooner than by a server, so that callers are still to come.
const RETENTION: i64 = 100;

impl World<'_> {
    pub(crate) fn deliver(&mut self, message: &Message) {
        let number = message.process;
        match &message.body {
            Body::Rows(rows, order, _) => {
                let learns = self.learns(rows);
                let result = Ok(self.run_all(rows, *order));
                self.reply(message, Body::Ran { result, learns });
            }
            Body::Looks(looks) => {
                let saw = looks.iter().map(|look| self.look(look)).collect();
                self.reply(message, Body::Looked(Ok(saw)));
            }
            Body::Ran { result, learns } => self.ran(message, result, *learns),
            Body::Looked(result) => {
                let flight = message.flight;
                self.kept
                    .retain(|kept| (kept.process, kept.flight) != (number, flight));
                let sights = result.iter().flat_map(|saw| saw.iter()).flat_map(sights_of);
                self.hears(message, &sights.collect::<Vec<_>>());
                let result = result.clone().map(|saw| saw.to_vec());
                self.feed(number, Event::Looked(flight, result));
            }
            Body::Watch(filter, names) => {
                if self.processes[number].is_alive() {
                    let process = self.process(number);
                    process.stream = Some((*filter, names.clone()));
                    process.events.push_back(Told::Opened(*filter));
                }
            }
        }
    }

    /// The reply to rows has arrived.
    fn ran(&mut self, message: &Message, result: &Result<Arc<[Reply]>, Fault>, learns: Option<u16>) {
        let (number, flight) = (message.process, message.flight);
        let deceived = self.deceived.as_ref().map(|deceived| deceived.number);
        let learned = learns.filter(|number| result.is_ok() && Some(*number) == deceived);
        let mut kept = self.kept.iter();
        let is_kept = kept.any(|kept| (kept.process, kept.flight) == (number, flight));
        self.kept
            .retain(|kept| (kept.process, kept.flight) != (number, flight));
        let replies = result.iter().flat_map(|replies| replies.iter());
        let sights = replies.filter_map(|reply| reply.sight.as_ref());
        self.hears(message, &sights.cloned().collect::<Vec<_>>());
        let result = result.clone().map(|replies| replies.to_vec());
        let is_it = |(process, own, _): &mut (usize, Key, Name)| (*process, *own) == (number, flight);
        let refused = self.refused.take_if(is_it).map(|(_, _, name)| name);
        let before = self.waiting_for(number, refused.as_ref());
        self.feed(number, Event::Ran(flight, result));
        let after = self.waiting_for(number, refused.as_ref());
        let is_told = before == 0 || after < before;
        self.judge
            .unless(is_told, "no caller learns that a release was refused");
        let goes_on = learned.is_some() && is_kept && self.relies_on_released(number);
        let has_ended = !goes_on || self.transactions_of(number);
        let breach = "a hold goes on after a renewal that has found it lost";
        self.judge.unless(has_ended, breach);
        // While a transaction is under way that may mark the work, a renewal decides nothing; nor does a reply that comes after
        // the engine has ended its command.
        let mut held = self.processes[number]
            .holds()
            .flat_map(|holds| holds.names.iter());
        let name = self.deceived.as_ref().map(|deceived| &deceived.name);
        let has_learned =
            learned.is_some() && is_kept && !held.any(|own| name.is_some_and(|name| is_of(name, own)));
        if has_learned && !self.transactions_of(number) {
            self.deceived = None;
        }
    }

    /// Whether a caller of this process has the claim that an operator has released, and not by a later copy of it.
    fn relies_on_released(&self, number: usize) -> bool {
        let is_there = |(name, id, token): &(Name, LockId, i64)| {
            let document = self.documents.get(name);
            document.is_some_and(|own| own.lock_id.text() == Some(id) && own.token.long() == Some(*token))
        };
        let is_released = |claim: &(Name, LockId, i64)| {
            let mut deceived = self.deceived.iter();
            let is_it = |own: &Deceived| (&own.name, &own.id) == (&claim.0, &claim.1);
            deceived.any(is_it) && !is_there(claim)
        };
        let mut holds = self.processes[number].holds();
        holds.any(|holds| holds.claims.iter().any(is_released))
    }

    /// The number of callers of this process that wait for this lock.
    fn waiting_for(&self, number: usize, name: Option<&Name>) -> usize {
        let waits = self.processes[number].waits();
        waits
            .filter(|waits| name.is_some_and(|name| waits.names.contains(name)))
            .count()
    }

    /// The reply goes back, unless nobody waits for it.
    fn reply(&mut self, message: &Message, body: Body) {
        let (number, flight) = (message.process, message.flight);
        let mut kept = self.kept.iter();
        if !message.is_copy && kept.any(|kept| (kept.process, kept.flight) == (number, flight)) {
            self.network.push(Message {
                body,
                ..message.clone()
            });
        }
    }

    fn run_all(&mut self, rows: &[Row], order: RowOrder) -> Arc<[Reply]> {
        let mut has_ended = false;
        let run = |row: &Row| {
            if has_ended {
                let document = self.documents.get(&row.name).cloned();
                let now = Some(self.ms());
                return Reply {
                    sight: document.map(|document| Sight { document, now }),
                    ..Reply::UNSEEN
                };
            }
            let reply = self.run(row);
            has_ended = order == RowOrder::StopAtMiss && row.is_missed(&reply);
            reply
        };
        let mut replies: Vec<Reply> = rows.iter().map(run).collect();
        // Of several rows the server tells how many have changed their documents: a query follows only if that is not enough.
        let is_enough = replies.iter().all(|reply| reply.is_applied == Some(true));
        if rows.len() > 1 && order == RowOrder::Each && is_enough && !rows.iter().any(Row::may_insert) {
            for reply in &mut replies {
                reply.sight = None;
            }
        }
        replies.into()
    }

    /// Runs one row.
    pub(crate) fn run(&mut self, row: &Row) -> Reply {
        let now = self.ms();
        let before = self.documents.get(&row.name).cloned();
        let mut document = before.clone();
        let is_applied = protocol::apply(row, &mut document, now).unwrap_or(false);
        if let Some(document) = document.as_ref().filter(|_| is_applied) {
            self.judge_change(row, before.as_ref(), document);
            self.documents.insert(row.name.clone(), document.clone());
            self.report_change(row, before.as_ref(), document);
        }
        let (is_applied, now) = (Some(is_applied), Some(now));
        let sight = document.map(|document| Sight { document, now });
        Reply { is_applied, sight }
    }

    /// What a look at the lock of this name finds, or at all permits of a semaphore, whose name has the separator at its end.
    fn look(&self, name: &Name) -> Saw {
        let now = self.ms();
        let sight = |document: &Document| Sight {
            document: document.clone(),
            now: Some(now),
        };
        if !name.ends_with(SEPARATOR) {
            let own = self.documents.get(name);
            return own.map(|own| (0, sight(own))).into_iter().collect();
        }
        let documents = self.documents.iter();
        let held = documents.filter(|(_, document)| !document.is_free(now, self.setup.margin));
        let of_name = held.filter_map(|(own, document)| Some((own.strip_prefix(&**name)?, document)));
        let found = of_name.filter_map(|(number, document)| Some((number.parse().ok()?, sight(document))));
        found.collect()
    }

    /// The change streams report another id. A renewal is no news.
    fn report_change(&mut self, row: &Row, before: Option<&Document>, document: &Document) {
        if before.is_some_and(|before| before.lock_id == document.lock_id) {
            return;
        }
        let mut document = document.clone();
        if !matches!(row.then, Then::Claim { .. }) {
            document.acquired_at = Value::Missing;
        }
        let (name, now) = (row.name.clone(), Some(self.ms()));
        let sight = Some(Sight { document, now });
        self.report(&News { name, sight });
    }

    pub(crate) fn report(&mut self, news: &News) {
        for number in 0..self.processes.len() {
            let reports = |names: &Option<Arc<[Name]>>| {
                let has = |own: &Name| is_of(&news.name, own);
                names.as_ref().is_none_or(|names| names.iter().any(has))
            };
            let process = &self.processes[number];
            if process.is_alive() && process.stream.as_ref().is_some_and(|(_, names)| reports(names)) {
                self.process(number).events.push_back(Told::News(news.clone()));
            }
        }
    }

    pub(crate) fn hear(&mut self, number: usize, told: Told) {
        let event = match told {
            Told::Opened(filter) => Event::Opened(filter),
            Told::News(news) => Event::News(news),
        };
        self.feed(number, event);
    }

    /// The number of the forced release that one of the rows finds out.
    fn learns(&self, rows: &[Row]) -> Option<u16> {
        let Deceived { number, id, .. } = self.deceived.as_ref()?;
        let finds = |row: &Row| matches!(&row.when, When::Own { id: own, runs: Some(_), .. } if own == id);
        rows.iter().any(finds).then_some(*number)
    }

    /// A process that ends its hold relies on it no longer.
    pub(crate) fn ends_deception(&mut self, rows: &[Row]) {
        let Some(deceived) = &self.deceived else { return };
        let ends = |row: &Row| {
            let is_own = matches!(&row.when, When::Own { id, .. } if *id == deceived.id);
            is_own && !matches!(row.then, Then::Renew { .. })
        };
        if rows.iter().any(ends) {
            self.deceived = None;
        }
    }

    /// A reply tells the callers that have begun before its command of what is held.
    fn hears(&mut self, message: &Message, sights: &[Sight]) {
        let margin = self.setup.margin;
        if !sights.iter().any(|sight| !sight.is_free(margin)) || !self.processes[message.process].is_alive() {
            return;
        }
        let callers = self.process(message.process).callers.iter_mut().enumerate();
        for (number, state) in callers {
            if let State::Waits(waits) = state
                && message.too_old_for & 1 << number == 0
            {
                waits.has_heard = true;
            }
        }
    }

    /// A lock that was released long ago.
    pub(crate) fn to_delete(&self) -> Option<Name> {
        let now = self.ms();
        let is_old = |(_, document): &(&Name, &Document)| {
            let is_released = document.lock_id.text().is_some_and(|id| id.is_empty());
            let end = document.expires_at.date();
            is_released && end.is_some_and(|end| end + RETENTION <= now)
        };
        let old = self.documents.iter().find(is_old);
        old.map(|(name, _)| Arc::clone(name))
    }
}

/// Whether the document is that of the lock, or of one of the permits, with this name.
pub(crate) fn is_of(document: &Name, name: &Name) -> bool {
    document == name || name.ends_with(SEPARATOR) && document.starts_with(&**name)
}

fn sights_of(saw: &Saw) -> Vec<Sight> {
    saw.iter().map(|(_, sight)| sight.clone()).collect()
}
