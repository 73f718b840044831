//! One value or several, without an allocation for one.

use std::ops::{Deref, DerefMut};

/// The values of a lock, or those of a set: one for each of its names. There is at least one.
#[derive(Debug, Clone)]
pub(crate) enum Few<T> {
    One([T; 1]),
    Several(Box<[T]>),
}

impl<T> Few<T> {
    pub(crate) fn one(value: T) -> Self {
        Self::One([value])
    }

    /// The results of this function for each value.
    pub(crate) fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> Few<U> {
        match self {
            Self::One([value]) => Few::one(of(value)),
            Self::Several(values) => Few::Several(values.iter().map(of).collect()),
        }
    }

    /// One value or several, of which there is at least one.
    pub(crate) fn collected(values: impl IntoIterator<Item = T>) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(one), None) => Self::one(one),
            (first, second) => Self::Several(first.into_iter().chain(second).chain(values).collect()),
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Several(values.into_boxed_slice())
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

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(value) => value,
            Self::Several(values) => values,
        }
    }
}
