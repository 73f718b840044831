//! Rows with their documents and their command, and the result of `apply` for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use mongodb::bson::{Bson, Document};

use super::LOCKS;
use super::draw::{
    GROUPS, WRONG_TYPE, document, document_of_group, new_id, one_code, pick, pick_kind, row, seed, time,
};
use crate::error::driver_text::code;
use crate::protocol::{Document as Fields, Id, IdKind, Ms, Row, RowOrder, Sight, apply};
use crate::store::mongo::encoder::Encoder;
use crate::store::mongo::fields::{bson, sight};

/// The code for a `$switch` without a branch.
const NO_BRANCH: i32 = 40066;

/// Rows, the documents before them, and the command that runs them at this time.
pub(super) struct Case {
    pub(super) kind: (&'static str, &'static str),
    pub(super) rows: Vec<Row>,
    pub(super) documents: Vec<Option<Document>>,
    pub(super) now: Ms,
    /// The order of several rows; `None` if there is one row that has its own kind of command.
    order: Option<RowOrder>,
    pub(super) command: Document,
}

/// The effect of a command. Its values are texts, because some of them are not equal to themselves.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Effect {
    /// The rows that have failed, each with the code of the error.
    pub(super) errors: Vec<(usize, i32)>,
    /// The document in the reply, or the number of documents.
    pub(super) reply: String,
    /// The documents after the command.
    pub(super) documents: Vec<String>,
}

impl Case {
    /// A row with a command of its own, and its document.
    pub(super) fn pair(kind: (&'static str, &'static str), number: usize, now: Ms, rng: &mut Rng) -> Self {
        let (row_kind, document_kind) = kind;
        let ids = [IdKind::Single, IdKind::Set, IdKind::Permit, IdKind::Resumed];
        let id = new_id(pick(rng, &ids), rng);
        let document = document(document_kind, row_kind, &id, number, now, rng);
        let name = format!("{row_kind}, {document_kind}, {number}");
        let fits = document_kind.starts_with("damaged");
        let seen = seen(document.as_ref()).unwrap_or_default();
        let row = row(row_kind, &name, &seen, fits, now, rng);
        Self {
            kind,
            command: Encoder::at(now).one(LOCKS, &row),
            rows: vec![row],
            documents: vec![document],
            now,
            order: None,
        }
    }

    /// Rows of one command. Half of them are as alike as their documents allow, and half have one id in common.
    pub(super) fn group(kind: usize, number: usize, rng: &mut Rng) -> Self {
        let (group_kind, order, row_kinds) = GROUPS[kind];
        let now = time(rng);
        let of_set = Id::of_handle(&rng.u64(..).to_string(), true);
        let (set, alike) = (of_set.text("web-1:22"), rng.fork());
        let (mut rows, mut documents) = (Vec::new(), Vec::new());
        for index in 0..rng.usize(1..9) {
            let row_kind = pick_kind(rng, row_kinds);
            let id = if rng.bool() {
                Arc::clone(&set)
            } else {
                new_id(IdKind::Single, rng)
            };
            let document = document_of_group(order, row_kind, &id, now, &documents, rng);
            let name = format!("{group_kind}, {number}, {index}");
            let mut draws = if rng.bool() { alike.clone() } else { rng.fork() };
            let seen = seen(document.as_ref()).unwrap_or_default();
            rows.push(row(row_kind, &name, &seen, rng.u8(..4) > 0, now, &mut draws));
            documents.push(document);
        }
        Self {
            kind: (group_kind, "several"),
            command: Encoder::at(now).several(LOCKS, &rows, order),
            rows,
            documents,
            now,
            order: Some(order),
        }
    }

    /// The expected effect of the command.
    pub(super) fn expected(&self) -> Effect {
        let stops = self.order == Some(RowOrder::StopAtMiss);
        let goes_on = self.rows.iter().all(Row::may_insert) && !stops;
        let (mut effect, mut applied, mut found) = (Effect::default(), 0, 0);
        for (index, (row, document)) in self.rows.iter().zip(&self.documents).enumerate() {
            let before = seen(document.as_ref());
            let mut after = before.clone();
            if goes_on || effect.errors.is_empty() {
                let ran = apply(row, &mut after, self.now);
                let is_own = after.as_ref().is_some_and(|after| has_new_id(row, after));
                match ran {
                    Err(_) => effect.errors.push((index, WRONG_TYPE[0])),
                    Ok(false) if stops && !is_own => effect.errors.push((index, NO_BRANCH)),
                    Ok(is_applied) => {
                        applied += i32::from(is_applied);
                        found += i32::from(after.is_some());
                    }
                }
            }
            if self.order.is_none() && effect.errors.is_empty() {
                let replied = if row.may_insert() { &after } else { &before };
                let now = Some(self.now);
                let sight = replied.clone().map(|document| Sight { document, now });
                effect.reply = format!("{sight:?}");
            }
            let after = stored(&row.name, document.as_ref(), after);
            effect.documents.push(shown(after.as_ref()));
        }
        if self.order.is_some() {
            // A statement matches only the documents of applied rows if its query has the whole condition. Otherwise it
            // matches others as well.
            let counts_all = stops || goes_on;
            effect.reply = if counts_all { found } else { applied }.to_string();
        }
        effect
    }

    /// The documents before the command.
    pub(super) fn unchanged(&self) -> Vec<String> {
        let pairs = self.rows.iter().zip(&self.documents);
        let before = |(row, document): (&Row, &Option<Document>)| {
            let document = document.as_ref();
            shown(stored(&row.name, document, seen(document)).as_ref())
        };
        pairs.map(before).collect()
    }

    /// The errors and the reply of the command.
    pub(super) fn effect_of(&self, ran: mongodb::error::Result<Document>) -> Effect {
        let mut effect = Effect::default();
        match ran {
            Err(error) => {
                let code = code(&error).unwrap_or_else(|| panic!("no error of the server: {error}"));
                effect.errors.push((0, one_code(code)));
            }
            Ok(reply) if self.order.is_none() => {
                let sight = reply.get_document("value").ok().map(sight);
                effect.reply = format!("{sight:?}");
            }
            Ok(reply) => {
                let number = reply.get_i32("n");
                effect.reply = number.map_or_else(|error| error.to_string(), |n| n.to_string());
                let errors = reply.get_array("writeErrors").into_iter().flatten();
                for error in errors.filter_map(Bson::as_document) {
                    let number = |field| error.get_i32(field).unwrap_or_default();
                    let index = usize::try_from(number("index")).unwrap_or(usize::MAX);
                    effect.errors.push((index, one_code(number("code"))));
                }
            }
        }
        effect
    }

    /// The text for an effect that is not the expected one.
    pub(super) fn difference(&self, effect: &Effect) -> Option<String> {
        let expected = self.expected();
        if *effect == expected {
            return None;
        }
        let text = |document: &Option<Document>| shown(document.as_ref());
        let documents: Vec<String> = self.documents.iter().map(text).collect();
        Some(format!(
            "MONGOLOCK_SEED={}: {:?}, {:?}\nfrom {documents:?}\nat {}\nserver {effect:?}\napply  {expected:?}\nby {}\n",
            seed(),
            self.kind,
            self.rows,
            self.now,
            self.command
        ))
    }
}

pub(super) fn has_new_id(row: &Row, document: &Fields) -> bool {
    let id = row.then.new_id();
    id.is_some_and(|id| document.lock_id.text() == Some(id))
}

pub(super) fn seen(document: Option<&Document>) -> Option<Fields> {
    document.map(|document| sight(document).document)
}

/// The document with these fields in below of its own.
pub(super) fn stored(name: &str, before: Option<&Document>, fields: Option<Fields>) -> Option<Document> {
    let fields = fields?;
    let mut document = before.cloned().unwrap_or_default();
    document.insert("_id", name);
    let fields = [
        ("lockId", fields.lock_id),
        ("acquiredAt", fields.acquired_at),
        ("expiresAt", fields.expires_at),
        ("fencingToken", fields.token),
    ];
    for (field, value) in fields {
        match bson(&value) {
            Some(value) => document.insert(field, value),
            None => document.remove(field),
        };
    }
    Some(document)
}

/// The fields and their values in the order of their names.
pub(super) fn shown(document: Option<&Document>) -> String {
    let fields = document.map(|document| document.iter().collect::<BTreeMap<&String, &Bson>>());
    format!("{fields:?}")
}
