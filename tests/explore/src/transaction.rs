//! Transactions that commit only under a hold: their last statement finds the claim in each document, which is blocked until the end.

use crate::core::{Event, Key, Time};
use crate::network::Role;
use crate::process::{Awaited, Before, State};
use crate::protocol::{LockId, Name, Row, Then, When};
use crate::world::World;

#[derive(Debug, Clone, Hash)]
pub(crate) struct Transaction {
    pub(crate) process: usize,
    caller: usize,
    hold: Key,
    marks: bool,
    /// The documents that its last statement changes, each with its claim.
    rows: Vec<(Name, LockId, i64)>,
    /// The tokens of its hold.
    tokens: Vec<i64>,
    stage: Stage,
    /// Its caller waits no longer, or knows no outcome.
    is_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Begun,
    /// Its documents are blocked.
    Blocks,
    Over {
        was_made: bool,
    },
}

/// What happens to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its last statement, its commit, or the reply to that.
    Proceeds,
    Aborts,
    /// The caller gets an error that does not say whether it was made.
    BecomesUnknown,
}

impl Transaction {
    /// Its caller has gone before its last statement: it is not made.
    fn never_begins(&mut self) {
        if self.stage == Stage::Begun {
            self.stage = Stage::Over { was_made: false };
        }
    }

    /// Whether nothing of it is on its way.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ended && matches!(self.stage, Stage::Over { .. })
    }
}

impl World<'_> {
    pub(crate) fn begin_transaction(&mut self, number: usize, caller: usize, marks: bool) {
        let State::Holds(holds) = &mut self.process(number).callers[caller] else {
            return;
        };
        holds.has_committed = true;
        let (hold, rows, tokens) = (holds.hold, holds.claims.clone(), holds.tokens.clone());
        self.transactions.push(Transaction {
            process: number,
            caller,
            hold,
            marks,
            rows,
            tokens,
            stage: Stage::Begun,
            is_ended: false,
        });
        self.feed(number, Event::CommitBegins { hold, marks });
    }

    /// The steps of a transaction that are possible now.
    pub(crate) fn parts(&self, transaction: &Transaction) -> Vec<Part> {
        if transaction.is_over() {
            return Vec::new();
        }
        let mut parts = vec![Part::Proceeds];
        if self.left.aborts > 0 && transaction.stage == Stage::Blocks {
            parts.push(Part::Aborts);
        }
        if self.left.unclear > 0 && !transaction.is_ended && transaction.stage != Stage::Begun {
            parts.push(Part::BecomesUnknown);
        }
        parts
    }

    /// Whether a transaction blocks one of these documents.
    pub(crate) fn is_blocked(&self, rows: &[Row]) -> bool {
        let blocks = |name: &Name| {
            let has = |transaction: &Transaction| {
                transaction.stage == Stage::Blocks && transaction.rows.iter().any(|(own, ..)| own == name)
            };
            self.transactions.iter().any(has)
        };
        rows.iter().any(|row| blocks(&row.name))
    }

    /// Whether the caller has a transaction that has not ended for it.
    pub(crate) fn has_transaction(&self, number: usize, caller: usize) -> bool {
        let is_open = |own: &Transaction| (own.process, own.caller) == (number, caller) && !own.is_ended;
        self.transactions.iter().any(is_open)
    }

    /// The same for any caller of the process.
    pub(crate) fn transactions_of(&self, number: usize) -> bool {
        let mut callers = 0..self.processes[number].callers.len();
        callers.any(|caller| self.has_transaction(number, caller))
    }

    pub(crate) fn transact(&mut self, index: usize, part: Part) {
        let mut transaction = self.transactions[index].clone();
        match (part, transaction.stage) {
            (Part::BecomesUnknown, _) => {
                self.left.unclear -= 1;
                transaction.is_ended = true;
            }
            (Part::Aborts, _) => {
                self.left.aborts -= 1;
                transaction.stage = Stage::Over { was_made: false };
            }
            (Part::Proceeds, Stage::Begun) => {
                if transaction.rows.iter().all(|row| self.has_claim(row)) {
                    transaction.stage = Stage::Blocks;
                } else {
                    transaction.never_begins();
                }
            }
            (Part::Proceeds, Stage::Blocks) => {
                let mut holds = transaction.rows.iter().zip(&transaction.tokens);
                let is_last = holds.all(|((name, ..), token)| self.is_last_token(name, *token));
                self.judge
                    .unless(is_last, "a transaction commits under the hold of another caller");
                if transaction.marks {
                    self.mark(&transaction);
                }
                transaction.stage = Stage::Over { was_made: true };
            }
            (Part::Proceeds, Stage::Over { .. }) => transaction.is_ended = true,
        }
        let before = std::mem::replace(&mut self.transactions[index], transaction.clone());
        if transaction.is_ended && !before.is_ended {
            let known = match transaction.stage {
                Stage::Over { was_made } if part == Part::Proceeds => Some(was_made),
                _ => None,
            };
            self.end_transaction(&transaction, known);
        }
    }

    fn end_transaction(&mut self, transaction: &Transaction, was_made: Option<bool>) {
        let number = transaction.process;
        if !self.processes[number].is_alive() {
            return;
        }
        let cell = self.processes[number].cell(transaction.caller, Role::Commit);
        let awaited = (was_made.is_none() && transaction.marks).then_some(cell);
        let (since, before) = (self.now, Before::Held);
        self.process(number).awaited.extend(awaited.map(|cell| Awaited {
            cell,
            since,
            before,
            until: since,
            leases: Vec::new(),
        }));
        let (hold, marks) = (transaction.hold, transaction.marks);
        self.feed(
            number,
            Event::CommitEnds {
                hold,
                marks,
                was_made,
                awaited,
            },
        );
    }

    fn has_claim(&self, (name, id, token): &(Name, LockId, i64)) -> bool {
        let now = self.ms();
        self.documents.get(name).is_some_and(|document| {
            let is_own = document.lock_id.text() == Some(id) && document.token.long() == Some(*token);
            is_own && !document.is_free(now, 0)
        })
    }

    /// The commit makes the claims marks.
    fn mark(&mut self, transaction: &Transaction) {
        let options = self.setup.caller(transaction.process, transaction.caller);
        for (name, id, _) in &transaction.rows {
            let document = self.documents.get(name);
            let acquired_at = document.and_then(|own| own.acquired_at.date());
            let mark = options.once.zip(acquired_at);
            let Some((once, at)) = mark else { continue };
            let until = once.mark_of(at, Time::NEVER).0;
            let (name, when, then) = (name.clone(), When::is(id), Then::Mark { until });
            self.run(&Row { name, when, then });
        }
    }

    /// The caller is dropped: the outcome is known to nobody.
    pub(crate) fn drop_transaction(&mut self, number: usize, caller: usize, hold: Key) {
        for index in 0..self.transactions.len() {
            let own = &mut self.transactions[index];
            if (own.process, own.caller) == (number, caller) && !own.is_ended {
                own.is_ended = true;
                own.never_begins();
                let (marks, was_made, awaited) = (own.marks, None, None);
                self.feed(
                    number,
                    Event::CommitEnds {
                        hold,
                        marks,
                        was_made,
                        awaited,
                    },
                );
            }
        }
    }

    pub(crate) fn drop_transactions_of(&mut self, number: usize) {
        let own = self.transactions.iter_mut();
        for transaction in own.filter(|transaction| transaction.process == number) {
            transaction.is_ended = true;
            transaction.never_begins();
        }
    }

    /// Whether what a caller is told of its transaction is true.
    pub(crate) fn was_made(&self, number: usize, caller: usize) -> Option<bool> {
        let is_own = |own: &&Transaction| (own.process, own.caller) == (number, caller);
        match self.transactions.iter().rev().find(is_own)?.stage {
            Stage::Over { was_made } => Some(was_made),
            _ => None,
        }
    }
}
