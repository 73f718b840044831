//! What a process sends, judged when it is sent.

use crate::core::{MS, span};
use crate::process::State;
use crate::protocol::{LockId, Ms, Row, Then, When};
use crate::server::SEPARATOR;
use crate::setup::{Start, Wants};
use crate::timing::NO_REPLY;
use crate::world::World;

impl World<'_> {
    pub(crate) fn judge_command(&mut self, number: usize, rows: &[Row]) {
        for row in rows {
            let is_of_kind = self.is_of_kind(number, row);
            self.judge
                .unless(is_of_kind, "an id says another kind of its claim");
            let is_repeated = self.has_no_reply_yet(number, row);
            let breach = "a claim is sent again before it can be known to be lost";
            self.judge.unless(!is_repeated, breach);
            let is_early = self.renews_in_time() && self.is_renewed_early(row);
            self.judge.unless(!is_early, "a lease is renewed too early");
        }
    }

    /// Whether the id of a claim says what it is for: one lock, several, a permit, or a lease that is resumed. Its caller may have left
    /// since the id was made.
    fn is_of_kind(&self, number: usize, row: &Row) -> bool {
        let Some(id) = claimed(row) else { return true };
        let uuid = id.rsplit_once('#').map_or("", |(_, uuid)| uuid);
        let wants = |is_set: bool| {
            let mut callers = self.setup.processes[number].iter();
            callers.any(|caller| match caller.wants {
                Wants::Locks(names) => names.contains(&&*row.name) && (names.len() > 1) == is_set,
                _ => false,
            })
        };
        match (uuid.chars().nth("00000000-0000-4".len()), &row.then) {
            (Some('0'), Then::Claim { .. }) => wants(false),
            (Some('1'), Then::Claim { .. }) => wants(true),
            (Some('2'), Then::Claim { .. }) => row.name.contains(SEPARATOR),
            (Some('3'), Then::Adopt { .. }) => true,
            _ => false,
        }
    }

    /// Whether this claim is in flight, and its reply may still come.
    fn has_no_reply_yet(&self, number: usize, row: &Row) -> bool {
        // What is rejected is sent again at once, also beside copies.
        let id = claimed(row).filter(|_| self.setup.faults.rejected == 0);
        let Some(id) = id else { return false };
        let is_same = |other: &Row| claimed(other) == Some(id);
        let mut kept = self.kept.iter().filter(|kept| kept.process == number);
        kept.any(|kept| self.now - kept.sent < span(NO_REPLY) && kept.rows.iter().any(is_same))
    }

    fn renews_in_time(&self) -> bool {
        self.setup.renews_in_time && self.setup.start == Start::Plain
    }

    /// Whether less than a quarter of the lease is over, with which no other lease can be due.
    fn is_renewed_early(&self, row: &Row) -> bool {
        let (When::Own { id, .. }, Then::Renew { expiry }) = (&row.when, &row.then) else {
            return false;
        };
        let document = self.documents.get(&row.name);
        let own = document.filter(|own| own.lock_id.text() == Some(id));
        let left = |end: Ms| end - self.ms();
        let end = own.and_then(|own| own.expires_at.date());
        end.is_some_and(|end| left(end) > expiry - expiry / 4)
    }

    /// Judges, when all that was due is done, whether each lease is renewed in time.
    pub(crate) fn judge_renewals(&mut self) {
        for number in 0..self.processes.len() {
            let states = self.processes[number].callers.iter().enumerate();
            let is_late = |(caller, state): (usize, &State)| {
                let State::Holds(holds) = state else { return false };
                let expiry = self.setup.caller(number, caller).expiry;
                let is_short = holds.until - self.now < expiry * MS / 2;
                is_short && !self.is_being_renewed(number, holds)
            };
            let is_late = self.renews_in_time() && states.into_iter().any(is_late);
            self.judge.unless(!is_late, "a lease is renewed too late");
        }
    }
}

/// The id of a claim.
fn claimed(row: &Row) -> Option<&LockId> {
    match &row.then {
        Then::Claim { id, .. } | Then::Adopt { id, .. } => Some(id),
        _ => None,
    }
}
