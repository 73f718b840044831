//! The fencing token of a holder, the field that stores it, and how queries and updates are changed for it.

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::UpdateModifications;

use crate::{FencingToken, LockError};

/// The token of a write, and the field that stores it.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) token: FencingToken,
    pub(super) field: String,
}

impl Fence {
    /// Checks that the field's name can be used.
    pub(super) fn check(&self) -> Result<(), LockError> {
        if self.token == FencingToken::NONE {
            return Err(LockError::NoFencingToken);
        }
        let broken = match &*self.field {
            "" => "its name is empty",
            "_id" => "`_id` identifies the document",
            field if field.starts_with('$') => "its name begins with `$`, as operators do",
            field if field.contains(['.', '\0']) => "its name contains `.` or a NUL byte",
            _ => return Ok(()),
        };
        Err(self.invalid(broken.to_owned()))
    }

    /// Restricts the query to documents without a greater token. A value that is not a number does not match; an array
    /// would match by one of its elements, and is excluded.
    pub(super) fn restrict(&self, query: &Document) -> Document {
        let field = self.field.as_str();
        let unseen = doc! { field: { "$exists": false } };
        let not_later = doc! { field: { "$lte": self.token, "$not": { "$type": "array" } } };
        let mut all = vec![doc! { "$or": [unseen, not_later] }];
        let mut restricted = query.clone();
        // Only the added condition goes into an `$and`: some conditions must stay at the top of a query, and an upsert
        // takes the new document's fields from there.
        if let Some(and) = restricted.remove("$and") {
            all.push(doc! { "$and": and });
        }
        restricted.insert("$and", all);
        restricted
    }

    /// Adds the token to a whole document. The document may have one from an earlier read, if that is not greater.
    pub(super) fn mark(&self, mut document: Document) -> Result<Document, LockError> {
        if let Some(value) = document.get(&self.field).filter(|value| **value != Bson::Null) {
            self.compare(value, || self.touched("the document"))?;
        }
        document.insert(self.field.as_str(), self.token);
        Ok(document)
    }

    /// Adds the token to an update.
    pub(super) fn add_to(&self, update: UpdateModifications) -> Result<UpdateModifications, LockError> {
        match update {
            UpdateModifications::Document(mut operators) => {
                self.refuse_touching(&operators, "the update")?;
                // An empty document is not an update. It stays empty, so that the driver or the server refuses it.
                if !operators.is_empty() {
                    let set = operators
                        .entry("$set".to_owned())
                        .or_insert_with(|| Document::new().into());
                    if let Bson::Document(set) = set {
                        set.insert(self.field.as_str(), self.token);
                    }
                }
                Ok(operators.into())
            }
            UpdateModifications::Pipeline(mut stages) => {
                for stage in &stages {
                    self.refuse_touching(stage, "the pipeline")?;
                }
                // The stage comes last, because an earlier stage may have replaced the document.
                stages.push(doc! { "$set": { self.field.as_str(): self.token } });
                Ok(stages.into())
            }
            _ => Err(self.invalid("only update documents and pipelines can set a token".to_owned())),
        }
    }

    /// Returns an error for a document with a greater token.
    pub(super) fn accept(&self, document: &Document) -> Result<(), LockError> {
        let foreign = |value: &Bson| {
            let id = document.get("_id").unwrap_or(&Bson::Null);
            self.invalid(format!(
                "the document with the _id {id} has {value} in it, which is not a fencing token"
            ))
        };
        let value = document.get(&self.field);
        value.map_or(Ok(()), |value| self.compare(value, || foreign(value)))
    }

    /// Returns an error for a stored token that is greater than the holder's, and this one for a value that is not a number.
    fn compare(&self, value: &Bson, or_else: impl FnOnce() -> LockError) -> Result<(), LockError> {
        let seen = match value {
            Bson::Int32(seen) => i64::from(*seen),
            Bson::Int64(seen) => *seen,
            // A shell or JavaScript writes doubles. Tokens are below 2^53, which a double represents exactly.
            #[allow(clippy::cast_possible_truncation)]
            Bson::Double(seen) if !seen.is_nan() => seen.ceil() as i64,
            _ => return Err(or_else()),
        };
        let (token, seen) = (self.token, FencingToken::from(seen));
        let stale = LockError::Stale { token, seen };
        (seen <= token).then_some(()).ok_or(stale)
    }

    /// Refuses operators or stages that name the field. The expressions of a pipeline need not be checked, because its
    /// last stage sets the field.
    fn refuse_touching(&self, operators: &Document, what: &str) -> Result<(), LockError> {
        let is_named = |value: &Bson| value.as_str().is_some_and(|path| self.is_touched_by(path));
        let touching = operators.iter().any(|(operator, operand)| match operand {
            Bson::Document(fields) => fields
                .iter()
                .any(|(path, value)| self.is_touched_by(path) || (operator == "$rename" && is_named(value))),
            Bson::Array(paths) => paths.iter().any(is_named),
            path => operator == "$unset" && is_named(path),
        });
        (!touching).then_some(()).ok_or_else(|| self.touched(what))
    }

    fn is_touched_by(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn touched(&self, what: &str) -> LockError {
        self.invalid(format!(
            "{what} writes to it, and a fenced write itself sets it to the holder's token"
        ))
    }

    fn invalid(&self, reason: String) -> LockError {
        LockError::InvalidFence {
            field: self.field.clone(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::bson;

    use super::*;

    fn fence() -> Fence {
        Fence {
            token: FencingToken::from(5),
            field: "fencingToken".to_owned(),
        }
    }

    fn is_refused<T>(write: Result<T, LockError>) -> bool {
        matches!(write, Err(LockError::InvalidFence { field, .. }) if field == "fencingToken")
    }

    #[test]
    fn a_write_to_the_field_is_refused() {
        for update in [
            doc! { "$set": { "fencingToken": 9 } },
            doc! { "$set": { "a": 1, "fencingToken.b": 9 } },
            doc! { "$unset": { "fencingToken": "" } },
            doc! { "$inc": { "fencingToken": 1 } },
            doc! { "$setOnInsert": { "fencingToken": 1 } },
            doc! { "$rename": { "fencingToken": "a" } },
            doc! { "$rename": { "a": "fencingToken" } },
            doc! { "$set": { "a": 1 }, "$currentDate": { "fencingToken": true } },
        ] {
            assert!(is_refused(fence().add_to(update.clone().into())), "{update}");
        }
        for stage in [
            doc! { "$set": { "fencingToken": "$a" } },
            doc! { "$addFields": { "fencingToken": 1 } },
            doc! { "$unset": "fencingToken" },
            doc! { "$unset": ["a", "fencingToken"] },
            doc! { "$project": { "fencingToken": 0 } },
        ] {
            assert!(is_refused(fence().add_to(vec![stage.clone()].into())), "{stage}");
        }
    }

    #[test]
    fn fields_of_similar_names_are_not_the_field() {
        for update in [
            doc! { "$set": { "fencingTokens": 1, "a.fencingToken": 2 } },
            doc! { "$set": { "a": "fencingToken" } },
            doc! { "$push": { "names": "fencingToken" } },
        ] {
            assert!(fence().add_to(update.clone().into()).is_ok(), "{update}");
        }
    }

    #[test]
    fn a_document_may_bring_an_earlier_token_along() {
        let brought = |value: Bson| fence().mark(doc! { "_id": 1, "fencingToken": value });
        for earlier in [bson!(null), bson!(4), bson!(5_i64), bson!(4.5)] {
            let marked = doc! { "_id": 1, "fencingToken": 5_i64 };
            assert_eq!(brought(earlier).unwrap(), marked);
        }
        assert!(matches!(brought(bson!(5.5)), Err(LockError::Stale { .. })));
        let stale = brought(bson!(6));
        let is_told =
            matches!(&stale, Err(LockError::Stale { token, seen }) if (token.get(), seen.get()) == (5, 6));
        assert!(is_told, "{stale:?}");
        for foreign in [bson!("5"), bson!([5]), bson!({ "a": 5 }), bson!(true)] {
            assert!(is_refused(brought(foreign)));
        }
    }

    #[test]
    fn names_that_cannot_hold_a_token_are_refused() {
        let named = |field: &str| Fence {
            field: field.to_owned(),
            ..fence()
        };
        for field in ["", "_id", "$token", "lock.token", "a\0b"] {
            assert!(named(field).check().is_err(), "{field:?}");
        }
        assert!(named("Fence 1").check().is_ok());
    }

    #[test]
    fn the_query_stays_where_it_was() {
        let query = doc! { "_id": 1, "$or": [{ "a": 1 }], "$and": [{ "b": 2 }] };
        let restricted = fence().restrict(&query);
        let not_later = doc! { "$lte": 5_i64, "$not": { "$type": "array" } };
        let missing = doc! { "$exists": false };
        let fenced = doc! { "$or": [{ "fencingToken": missing }, { "fencingToken": not_later }] };
        let wanted = doc! { "_id": 1, "$or": [{ "a": 1 }], "$and": [fenced, { "$and": [{ "b": 2 }] }] };
        assert_eq!(restricted, wanted);
    }
}
