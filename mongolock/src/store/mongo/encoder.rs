//! Encodes rows as commands of MongoDB. Their meaning is in `protocol/apply.rs`, and a property test compares both.

#[cfg(all(test, server_tests))]
mod tests;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::fields::bson;
use crate::lock_id::{KEPT_PREFIX, MARK_PREFIX};
use crate::protocol::{Id, LATE_COMMAND, LONGEST, LockId, Ms, Row, RowOrder, Then, Until, Value, When};

/// Encodes commands with one clock: that of the server, or a literal date.
pub(in crate::store) struct Encoder {
    now: Bson,
}

/// The clock of the server. It stands still while a command runs.
pub(in crate::store) fn by_server() -> Encoder {
    Encoder { now: "$$NOW".into() }
}

/// The unchanged document.
const SAME: &str = "$$ROOT";

impl Encoder {
    /// The encoder whose time is this date.
    #[cfg(all(test, server_tests))]
    pub(in crate::store) fn at(now: Ms) -> Self {
        let date = DateTime::from_millis(now);
        Self {
            now: doc! { "$literal": date }.into(),
        }
    }

    /// The command of one row. Its reply has the document: for a row that may insert it the new one, and for any other
    /// row the old one, which shows whether the row was applied.
    pub(in crate::store) fn one(&self, locks: &str, row: &Row) -> Document {
        let is_upsert = row.may_insert();
        doc! {
            "findAndModify": locks,
            "query": { "_id": &*row.name },
            "update": [self.stage(row)],
            "new": is_upsert,
            "upsert": is_upsert,
            "fields": self.fields(),
        }
    }

    /// The command of several rows, whose reply has only totals. Statements run in order; those of claims continue
    /// after an error.
    pub(in crate::store) fn several(&self, locks: &str, rows: &[Row], order: RowOrder) -> Document {
        let updates: Vec<Document> = match order {
            RowOrder::StopAtMiss => rows.iter().map(|row| self.statement_or_stop(row)).collect(),
            RowOrder::Each => self.statements(rows),
        };
        let goes_on = order == RowOrder::Each && rows.iter().all(Row::may_insert);
        doc! { "update": locks, "updates": updates, "ordered": !goes_on }
    }

    /// The fields that are read from a document, and the time.
    pub(in crate::store) fn fields(&self) -> Document {
        doc! {
            "lockId": 1, "acquiredAt": 1, "expiresAt": 1, "fencingToken": 1, "now": self.now.clone(),
        }
    }

    /// One statement for rows that differ only in their documents, and one for each other row.
    fn statements(&self, rows: &[Row]) -> Vec<Document> {
        let mut groups: Vec<(Option<Shared<'_>>, Vec<&Row>)> = Vec::new();
        for row in rows {
            let shared = shared(row);
            match groups.iter_mut().find(|(own, _)| own.is_some() && *own == shared) {
                Some((_, group)) => group.push(row),
                None => groups.push((shared, vec![row])),
            }
        }
        let statement = |(_, group): (_, Vec<&Row>)| match group[..] {
            [row] if row.may_insert() => doc! {
                "q": { "_id": &*row.name }, "u": [self.stage(row)], "upsert": true,
            },
            _ => doc! {
                "q": self.query(&group), "u": [{ "$set": self.changed(&group[0].then) }], "multi": group.len() > 1,
            },
        };
        groups.into_iter().map(statement).collect()
    }

    /// The query for the documents of rows with their own ids, if the documents have these ids.
    fn query(&self, rows: &[&Row]) -> Document {
        let (mut ids, mut tokens, mut runs) = (Vec::new(), Vec::new(), None);
        for row in rows {
            if let When::Own {
                id,
                token,
                runs: margin,
            } = &row.when
            {
                ids.push(&**id);
                tokens.extend(*token);
                runs = *margin;
            }
        }
        ids.dedup();
        let names = rows.iter().map(|row| &*row.name).collect();
        let mut query = doc! { "_id": one_of(names), "lockId": one_of(ids) };
        if !tokens.is_empty() {
            query.insert("fencingToken", one_of(tokens));
        }
        if let Some(margin) = runs {
            query.insert("$expr", self.runs(margin));
        }
        query
    }

    /// A row that ends the command if its condition is not met: a `$switch` without a matching branch is an error for
    /// the server. A missing document does not end the command: an upsert would, but needs the right to insert. The
    /// query after the command shows the results of later rows.
    fn statement_or_stop(&self, row: &Row) -> Document {
        let mut branches = vec![doc! { "case": self.holds(&row.when), "then": self.updated(row) }];
        branches.extend(
            row.then
                .new_id()
                .map(|id| doc! { "case": is_id(id), "then": SAME }),
        );
        doc! {
            "q": { "_id": &*row.name },
            "u": [{ "$replaceWith": { "$switch": { "branches": branches } } }],
            "upsert": row.may_insert(),
        }
    }

    /// The update of one row. All expressions read the old document. (One condition for all fields costs the server
    /// less than one for each.)
    fn stage(&self, row: &Row) -> Document {
        doc! { "$replaceWith": { "$cond": [self.holds(&row.when), self.updated(row), SAME] } }
    }

    /// The document after a row.
    fn updated(&self, row: &Row) -> Document {
        doc! { "$mergeObjects": [SAME, self.changed(&row.then)] }
    }

    /// The condition of a row, as an expression.
    fn holds(&self, when: &When) -> Document {
        let all = match when {
            When::Free { margin } => return self.free(*margin),
            When::AsRead { lock_id, token } => {
                vec![is_as_read("$lockId", lock_id), is_as_read("$fencingToken", token)]
            }
            When::Own { id, token, runs } => [
                Some(is_id(id)),
                token.map(|token| doc! { "$eq": ["$fencingToken", token] }),
                runs.map(|margin| self.runs(margin)),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        doc! { "$and": all }
    }

    /// Whether the lock is free. A missing `expiresAt` is less than every date, so the lock of a missing document is free.
    pub(in crate::store) fn free(&self, margin: Ms) -> Document {
        doc! { "$or": [{ "$eq": ["$lockId", ""] }, { "$lte": ["$expiresAt", self.latest_end(margin)] }] }
    }

    /// Whether the lease, and the margin after it, is not over.
    pub(in crate::store) fn runs(&self, margin: Ms) -> Document {
        doc! { "$gt": ["$expiresAt", self.latest_end(margin)] }
    }

    /// The latest `expiresAt` of a lock that is free. The margin is subtracted from the server's time and not added to
    /// `expiresAt`, which another program may have set to a value that is no date.
    fn latest_end(&self, margin: Ms) -> Bson {
        if margin == 0 {
            return self.now.clone();
        }
        let early = doc! { "$subtract": [&self.now, margin] };
        doc! { "$cond": [is_claimed(), early, &self.now] }.into()
    }

    /// The fields that a row writes. Strings of callers are literals, so that they are not read as field paths.
    pub(in crate::store) fn changed(&self, then: &Then) -> Document {
        match then {
            Then::Claim { id, expiry, tokens } => self.granted(id, &self.now, *expiry, *tokens),
            Then::Adopt { id, expiry, tokens } => self.granted(id, &"$acquiredAt".into(), *expiry, *tokens),
            Then::Renew { expiry } => self.prolonged(*expiry, *expiry + LATE_COMMAND),
            Then::Extend { ttl } => self.prolonged(*ttl, LONGEST + LATE_COMMAND),
            Then::End { min_hold, unused } => self.ended(*min_hold, *unused),
            Then::Rename { to, ttl, min_hold } => {
                let mut end = self.later(*ttl);
                if *min_hold > 0 {
                    end = doc! { "$max": [end, self.min_hold_end(*min_hold)] };
                }
                doc! { "lockId": literal(to), "expiresAt": end }
            }
            Then::Mark { until } => self.marked(*until),
            Then::Force => self.forced(),
        }
    }

    /// `$max` ignores a missing token.
    fn granted(&self, id: &LockId, acquired_at: &Bson, expiry: Ms, tokens: i64) -> Document {
        let next = doc! { "$max": [{ "$add": ["$fencingToken", 1_i64] }, self.first_token()] };
        doc! {
            "lockId": literal(id),
            "acquiredAt": acquired_at,
            "expiresAt": self.later(expiry),
            "fencingToken": { "$add": [next, tokens - 1] },
        }
    }

    fn first_token(&self) -> Document {
        doc! { "$multiply": [{ "$toLong": &self.now }, 1000_i64] }
    }

    pub(in crate::store) fn later(&self, time: Ms) -> Document {
        doc! { "$add": [&self.now, time] }
    }

    /// A lease that lasts for `least`, or until its present end if that is later, but at most for `most`. The clock is
    /// read when a command begins, so a command that waited in the server takes effect after later ones.
    fn prolonged(&self, least: Ms, most: Ms) -> Document {
        let present = doc! { "$min": ["$expiresAt", self.later(most)] };
        doc! { "expiresAt": { "$max": [self.later(least), present] } }
    }

    fn ended(&self, min_hold: Ms, unused: i64) -> Document {
        let mut ended = doc! { "lockId": "", "expiresAt": &self.now };
        if min_hold > 0 {
            let end = self.min_hold_end(min_hold);
            let kept = doc! { "$concat": [KEPT_PREFIX, "$lockId"] };
            ended = doc! {
                "lockId": { "$cond": [{ "$gt": [&end, &self.now] }, kept, ""] },
                "expiresAt": { "$max": [&self.now, end] },
            };
        }
        if unused > 0 {
            ended.insert("fencingToken", doc! { "$subtract": ["$fencingToken", unused] });
        }
        ended
    }

    /// The end of the minimum hold. If the hold begins in the future, the clock was ahead when it began.
    fn min_hold_end(&self, min_hold: Ms) -> Document {
        doc! { "$add": [{ "$min": ["$acquiredAt", &self.now] }, min_hold] }
    }

    fn marked(&self, until: Until) -> Document {
        let mark = doc! { "$concat": [MARK_PREFIX, "$lockId"] };
        match until {
            Until::After(kept) => doc! { "lockId": mark, "expiresAt": self.later(kept) },
            Until::At(end) => {
                let end = DateTime::from_millis(end);
                let is_over = doc! { "$gte": [&self.now, end] };
                doc! {
                    "lockId": { "$cond": [&is_over, "", mark] },
                    "expiresAt": { "$cond": [&is_over, &self.now, end] },
                }
            }
        }
    }

    /// In a damaged document all fields are written again; a token that can be read is increased.
    fn forced(&self) -> Document {
        let token = doc! { "$cond": [is_type("$fencingToken", "long"), "$fencingToken", Bson::Null] };
        let anew = doc! {
            "lockId": "", "acquiredAt": &self.now, "expiresAt": &self.now,
            "fencingToken": { "$max": [token, self.first_token()] },
        };
        doc! { "$cond": [is_sound(), self.ended(0, 0), anew] }
    }
}

/// What rows have in common that become one statement: the change, whether there are tokens, the margin, and the id of a
/// detached set.
type Shared<'a> = (&'a Then, bool, Option<Ms>, Option<&'a LockId>);

/// What a renewal or a release shares with others. The names of a detached set have one id, which is not mixed with others. A
/// statement matches each of its documents with any of its ids and tokens: claims of the same millisecond can have equal
/// tokens, and an array that contains an id counts as the id.
fn shared(row: &Row) -> Option<Shared<'_>> {
    let When::Own { id, token, runs } = &row.when else {
        return None;
    };
    let is_shared = matches!(row.then, Then::Renew { .. } | Then::End { .. });
    let of_set = Id::parse(id).is_some_and(Id::is_of_detached_set).then_some(id);
    is_shared.then_some((&row.then, token.is_some(), *runs, of_set))
}

pub(in crate::store) fn one_of<T: Into<Bson>>(mut values: Vec<T>) -> Bson {
    match values.len() {
        1 => values.remove(0).into(),
        _ => doc! { "$in": values.into_iter().map(Into::into).collect::<Vec<Bson>>() }.into(),
    }
}

fn literal(text: &str) -> Document {
    doc! { "$literal": text }
}

/// Whether the document has this id.
fn is_id(id: &str) -> Document {
    doc! { "$eq": ["$lockId", literal(id)] }
}

/// Whether a field has the value that was read, of whatever type.
fn is_as_read(field: &str, value: &Value) -> Document {
    match bson(value) {
        None => is_type(field, "missing"),
        Some(value) => doc! { "$eq": [field, { "$literal": value }] },
    }
}

fn is_type(field: &str, wanted: &str) -> Document {
    doc! { "$eq": [{ "$type": field }, wanted] }
}

/// Whether all fields have their types.
pub(in crate::store) fn is_sound() -> Document {
    let types = [
        ("$lockId", "string"),
        ("$acquiredAt", "date"),
        ("$expiresAt", "date"),
        ("$fencingToken", "long"),
    ];
    doc! { "$and": types.map(|(field, wanted)| is_type(field, wanted)).to_vec() }
}

/// Whether the `lockId` is that of a claim, by the rule of [`lock_id::is_claim`](crate::lock_id::is_claim). An id that is no string belongs to none.
fn is_claimed() -> Document {
    let id = doc! { "$cond": [is_type("$lockId", "string"), "$lockId", ""] };
    // `$indexOfBytes` compares bytes, whatever the collation of the collection is.
    let begins = |prefix: &str| doc! { "$eq": [{ "$indexOfBytes": [&id, prefix] }, 0] };
    doc! { "$not": { "$or": [{ "$eq": [&id, ""] }, begins(MARK_PREFIX), begins(KEPT_PREFIX)] } }
}
