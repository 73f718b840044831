//! Sends one fenced write, and finds the reason if it matched no document.

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::{FindOneOptions, InsertOneOptions, ReadConcern, ReadPreference, SelectionCriteria};
use mongodb::results::InsertOneResult;

use super::fence::Seen;
use super::prepared::{Modify, PreparedWrite, Write};
use crate::error::meaning::{Meaning, colliding_values};
use crate::{LockError, meter, trace};

/// The number of times a write is made when the document is created or deleted between a refusal and its diagnosis.
const ROUNDS: usize = 10;

/// What the diagnosis of a write that matched no document has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A document without a greater token.
    Open,
}

impl<O: Write> PreparedWrite<O> {
    /// Finds out why a write matched no document; the error is `Stale` if a later holder has written the document.
    async fn diagnose(
        &self,
        query: Document,
        find_options: FindOneOptions,
        session: Option<&mut ClientSession>,
    ) -> Result<Found, LockError> {
        let find = self
            .documents
            .find_one(query)
            .with_options(find_options)
            // A secondary may not yet have the document because of which the primary refused the write.
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .projection(doc! { self.fence.field.as_str(): 1 });
        let found = match session {
            Some(session) => find.session(session).await?,
            // A majority may not have it yet either. A transaction uses its own read concern.
            None => find.read_concern(ReadConcern::local()).await?,
        };
        match found
            .map(|document| self.fence.compare_document(&document))
            .transpose()?
        {
            None => Ok(Found::Nothing),
            Some(Seen::NotLater) => Ok(Found::Open),
            Some(Seen::Later(seen)) => {
                meter::stale_write();
                trace::stale(&self.documents.namespace(), self.fence.token, seen);
                Err(self.fence.stale(seen))
            }
        }
    }

    /// Finds the document with these values, with which an insertion has collided; the error is `Stale` if a later
    /// holder has written it. A collision ends a transaction, in which nothing can be read afterwards.
    async fn diagnose_collision(
        &self,
        values: Document,
        collision: &Error,
        session: Option<&mut ClientSession>,
    ) -> Result<Found, LockError> {
        let in_session = session.is_some();
        match self.diagnose(values, FindOneOptions::default(), session).await {
            Err(LockError::Mongo(_)) if in_session => Err(collision.clone().into()),
            result => result,
        }
    }
}

impl PreparedWrite<InsertOneOptions> {
    pub(super) async fn insert(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<InsertOneResult, LockError> {
        let insert = self.documents.insert_one(&self.change);
        let insert = insert.with_options(self.options.clone());
        let inserted = match session.as_deref_mut() {
            Some(session) => insert.session(session).await,
            None => insert.await,
        };
        match (inserted, self.change.get("_id")) {
            (Ok(result), _) => Ok(result),
            (Err(error), Some(id)) if Meaning::of(&error) == Meaning::DuplicateKey => {
                self.diagnose_collision(doc! { "_id": id }, &error, session)
                    .await?;
                Err(error.into())
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl<O: Modify> PreparedWrite<O> {
    pub(super) async fn modify(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<O::Result, LockError> {
        // Two documents cannot have the same `_id`, so the upsert of a stale holder collides. By other fields, or by an
        // `_id` that is equal to another only under a collation, it could insert a second document; and a collision
        // would end a transaction. In these cases an update is tried first.
        let (upserts, find_options) = (self.options.upserts(), self.options.find_options());
        let by_id = names_id(&self.query) && find_options.collation.is_none();
        let mut insert = upserts && session.is_none() && by_id;
        for _ in 0..ROUNDS {
            if insert {
                match self.upsert(session.as_deref_mut()).await? {
                    Upserted::Made(result) => return Ok(result),
                    Upserted::Overtaken => {}
                }
            }
            let result = O::send(&self, false, session.as_deref_mut()).await?;
            if O::matched(&result) {
                return Ok(result);
            }
            let found = self
                .diagnose(self.query.clone(), find_options.clone(), session.as_deref_mut())
                .await?;
            if found == Found::Nothing && !upserts {
                return Ok(result);
            }
            insert = upserts && found == Found::Nothing;
        }
        // Other clients keep creating and deleting the document.
        Ok(O::send(&self, upserts, session).await?)
    }

    /// Makes one upsert. If it collides, the server says with which values. If the query has exactly these values, it
    /// is the document of the query: a later holder has written it, or it does not match the other conditions, or
    /// another client has just inserted it. Any other collision has nothing to do with the fence.
    async fn upsert(
        &self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<Upserted<O::Result>, LockError> {
        let collision = match O::send(self, true, session.as_deref_mut()).await {
            Ok(result) => return Ok(Upserted::Made(result)),
            Err(error) if Meaning::of(&error) == Meaning::DuplicateKey => error,
            Err(error) => return Err(error.into()),
        };
        let Some(wanted) = colliding_values(&collision).filter(|values| self.asks_for(values)) else {
            return Err(collision.into());
        };
        let has_more_conditions = self.query.len() > wanted.len();
        let found = self
            .diagnose_collision(wanted, &collision, session.as_deref_mut())
            .await?;
        if found == Found::Open && has_more_conditions {
            let result = O::send(self, false, session).await?;
            return if O::matched(&result) {
                Ok(Upserted::Made(result))
            } else {
                Err(collision.into())
            };
        }
        Ok(Upserted::Overtaken)
    }

    fn asks_for(&self, values: &Document) -> bool {
        let wanted = |(field, value): (&String, &Bson)| {
            let asked = self.query.get(field);
            asked.is_some_and(|asked| are_equal(asked, value))
        };
        values.iter().all(wanted)
    }
}

/// How an upsert without an error ended.
enum Upserted<R> {
    Made(R),
    /// Another client has just inserted the document.
    Overtaken,
}

/// Whether the query names one `_id`.
fn names_id(query: &Document) -> bool {
    match query.get("_id") {
        None | Some(Bson::RegularExpression(_)) => false,
        Some(Bson::Document(operators)) => operators.keys().all(|key| !key.starts_with('$')),
        Some(_) => true,
    }
}

/// Whether MongoDB takes two values for equal: numbers of different types can be.
fn are_equal(one: &Bson, other: &Bson) -> bool {
    // Beyond 2^53 two different integers can be equal here; then a document is read needlessly.
    #[allow(clippy::cast_precision_loss)]
    let number = |value: &Bson| match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    };
    one == other || number(one).is_some_and(|one| number(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::bson;

    use super::*;

    #[test]
    fn only_an_equal_id_names_one_document() {
        for one in [
            bson!(1),
            bson!("a"),
            bson!(null),
            bson!({ "tenant": 1, "number": 2 }),
        ] {
            assert!(names_id(&doc! { "a": 1, "_id": one.clone() }), "{one}");
        }
        for many in [
            bson!({ "$in": [1, 2] }),
            bson!({ "$gte": 1 }),
            bson!({ "$eq": 1 }),
        ] {
            assert!(!names_id(&doc! { "_id": many.clone() }), "{many}");
        }
        assert!(!names_id(&doc! { "a": 1 }));
    }
}
