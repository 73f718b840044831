use std::sync::Arc;
use std::time::Duration;

use mongodb::error::Error;
use tokio::time::{Instant, sleep};

use super::errors;
use super::process::number_in;
use super::server::{Command, Server};
use crate::few::Few;
use crate::protocol::{self, Ms, Reply, Row, Then, When};
use crate::store::LeaseId;

/// A command on its way to the server.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) kind: Command,
    /// The name of each document, and the id of the claim that the command is about.
    pub(super) keys: Vec<LeaseId>,
    pub(super) content: Content,
    /// The server ends the command after this time.
    pub(super) limit: Duration,
}

/// What a command does to its documents.
#[derive(Clone)]
pub(super) enum Content {
    Rows(Few<Row>, protocol::Order),
    /// The command changes nothing. What a majority has not confirmed may be left out.
    Read {
        is_confirmed: bool,
    },
}

/// What happens to a command inside the server.
#[derive(Clone, Copy, Default)]
pub(super) struct Course {
    /// The time from the reading of the clock to the first effect.
    pub(super) delay: Duration,
    /// The number of documents after which the command ends with an error.
    pub(super) stops_after: Option<usize>,
}

impl Order {
    pub(super) fn of_rows(kind: Command, rows: &Few<Row>, order: protocol::Order, limit: Duration) -> Self {
        Self {
            kind,
            keys: rows.iter().map(key_of).collect(),
            content: Content::Rows(rows.clone(), order),
            limit,
        }
    }

    pub(super) fn read(keys: Vec<LeaseId>, is_confirmed: bool, limit: Duration) -> Self {
        Self {
            kind: Command::Look,
            keys,
            content: Content::Read { is_confirmed },
            limit,
        }
    }

    fn rows(&self) -> &[Row] {
        match &self.content {
            Content::Rows(rows, _) => rows,
            Content::Read { .. } => &[],
        }
    }

    /// Whether the command is one claim.
    pub(super) fn is_one_claim(&self) -> bool {
        let Content::Rows(Few::One([row]), _) = &self.content else {
            return false;
        };
        matches!(row.then, Then::Claim { .. })
    }

    /// The shortest expiry of the leases that the command renews, in milliseconds.
    pub(super) fn shortest_expiry(&self) -> Ms {
        self.rows()
            .iter()
            .filter_map(duration_of)
            .min()
            .unwrap_or_default()
    }

    /// The claims that a majority read does not show before it has confirmed the command.
    pub(super) fn written(&self) -> Vec<LeaseId> {
        let rows = self
            .rows()
            .iter()
            .filter(|row| !matches!(row.then, Then::Extend { .. }));
        let written = |row: &Row| match row.then.new_id() {
            Some(id) => key_of(row).with_id(id),
            None => key_of(row),
        };
        rows.map(written).collect()
    }

    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.keys.iter().map(|key| &*key.name).collect();
        names.sort_unstable();
        names.join(" ")
    }

    /// The places of the documents in the order in which the server comes to them. A renewal has a statement for each expiry, and a
    /// release one for each minimum hold; a set is detached in the order of its rows.
    fn places(&self) -> Vec<usize> {
        let rows = self.rows();
        let mut places: Vec<usize> = (0..self.keys.len()).collect();
        if !rows.first().is_some_and(is_detachment) {
            places.sort_by_key(|place| (rows.get(*place).and_then(duration_of), &self.keys[*place].name));
        }
        places
    }
}

/// The claim that a row is about.
pub(super) fn key_of(row: &Row) -> LeaseId {
    let id = match (&row.then, &row.when) {
        (Then::Claim { id, .. } | Then::Adopt { id, .. }, _) | (_, When::Own { id, .. }) => Arc::clone(id),
        _ => Arc::from(""),
    };
    LeaseId {
        name: Arc::clone(&row.name),
        lock_id: id,
    }
}

/// Whether the row gives a lease the id of a handle for the first time.
pub(super) fn is_detachment(row: &Row) -> bool {
    matches!(
        row,
        Row {
            when: When::Own { token: Some(_), .. },
            then: Then::Rename { .. },
            ..
        }
    )
}

fn duration_of(row: &Row) -> Option<Ms> {
    match row.then {
        Then::Renew { expiry } => Some(expiry),
        Then::End { min_hold, .. } => Some(min_hold),
        _ => None,
    }
}

impl Server {
    /// Runs a command as the server does: it reads the clock on arrival, goes through the documents in their order,
    /// waits for those that are blocked, and stops at once when its limit or the member's time as the primary is over.
    pub(super) async fn run(&self, order: &Order, course: Course) -> Result<Vec<Reply>, Error> {
        let (now, term) = (self.memory.now(), self.term());
        let arrived = Instant::now();
        let by = arrived + order.limit;
        if !self.is_primary() {
            return Err(errors::command(errors::NOT_PRIMARY));
        }
        if !course.delay.is_zero() {
            sleep(course.delay.min(order.limit)).await;
        }
        let mut replies = vec![Reply::UNSEEN; order.keys.len()];
        for (done, place) in order.places().into_iter().enumerate() {
            let key = &order.keys[place];
            let is_late = course.delay >= order.limit && done == 0;
            let stops = course.stops_after == Some(done);
            // A read does not wait for the transactions of others.
            let is_read = matches!(order.content, Content::Read { .. });
            if is_late || stops || !(is_read || self.blocks.wait(&key.name, by).await) {
                return Err(errors::command(errors::OUT_OF_TIME));
            }
            if self.term() != term {
                return Err(errors::command(errors::STEPPED_DOWN));
            }
            match &order.content {
                Content::Rows(rows, protocol::Order::Each) => replies[place] = self.apply(now, &rows[place]),
                Content::Rows(rows, protocol::Order::StopAtMiss) => {
                    let row = &rows[place];
                    replies[place] = self.apply(now, row);
                    if row.is_missed(&replies[place]) {
                        break;
                    }
                }
                Content::Read { is_confirmed } => {
                    if !is_confirmed || self.is_confirmed(key) {
                        replies[place] = self.memory.read(now, &key.name);
                    }
                }
            }
        }
        Ok(replies)
    }

    /// Applies a row, and notes what has happened for the checks.
    fn apply(&self, now: Ms, row: &Row) -> Reply {
        let key = &key_of(row);
        match row {
            Row {
                then: Then::Claim { tokens, .. },
                when: When::Free { margin },
                ..
            } => return self.claim(now, row, key, *tokens, *margin),
            Row {
                then: Then::End { .. },
                when: When::Own { runs: None, .. },
                ..
            } => return self.release(now, row, key),
            _ => {}
        }
        let reply = self.memory_reply(now, row);
        let is_applied = reply.is_applied == Some(true);
        match &row.then {
            Then::Renew { expiry } if is_applied => self.check_renewal(now, key, *expiry),
            Then::Renew { .. } => return reply,
            Then::Rename { to, .. } if is_detachment(row) && reply.has(to) => {
                self.passed_on(&key.with_id(to));
            }
            Then::Rename { to, .. } if is_applied => self.passed_on(&key.with_id(to)),
            Then::Adopt { tokens, .. } if reply.has(&key.lock_id) => {
                let last_token = token_in(&reply);
                self.ledger.reserve(key, last_token - (tokens - 1)..=last_token);
                self.resumed(key, last_token);
            }
            Then::Mark { until } => self.works.marked(key, &reply, *until),
            _ => {}
        }
        self.observe(&key.name);
        reply
    }

    pub(super) fn memory_reply(&self, now: Ms, row: &Row) -> Reply {
        let reply = self.memory.run_row(now, row);
        reply.expect("the documents of a simulation are sound")
    }

    fn release(&self, now: Ms, row: &Row, key: &LeaseId) -> Reply {
        let lease = self.memory.lease_of(&key.name, 0);
        let reply = self.memory_reply(now, row);
        self.observe(&key.name);
        if reply.is_applied == Some(true) {
            self.trace(|| format!("{} is released by {:?}", key.name, number_in(&key.lock_id)));
            let by = number_in(&key.lock_id);
            let is_in_line = by.is_some_and(|number| self.is_in_line(&key.name, number));
            self.turns.released(&key.name, by, is_in_line);
            let granted = self.granted_at(key).filter(|_| lease.is_some());
            if let Some(breach) = self.works.released(key, granted, self.memory.server_time()) {
                self.ledger.breach(breach);
            }
        }
        reply
    }
}

/// The token in the document after a row.
pub(super) fn token_in(reply: &Reply) -> i64 {
    let sight = reply.sight.as_ref();
    sight
        .and_then(|sight| sight.document.token.long())
        .unwrap_or_default()
}
