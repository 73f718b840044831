//! One value or several, without an allocation for one.

use std::ops::Deref;
use std::sync::Arc;

/// The values of a lock, or those of a set: one for each of its names. There is at least one, except in the target of
/// a set without names, which is refused.
#[derive(Debug, Clone)]
pub(crate) enum Few<T> {
    One([T; 1]),
    Several(Arc<[T]>),
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(one), None) => Self::One([one]),
            (first, second) => Self::Several(first.into_iter().chain(second).chain(values).collect()),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(value) => value,
            Self::Several(values) => values,
        }
    }
}
