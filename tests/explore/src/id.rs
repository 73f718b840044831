//! The ids of claims and the tokens of holds.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

thread_local! {
    static TEXTS: RefCell<HashMap<Id, Arc<str>>> = RefCell::default();
    static LAST_TOKEN: Cell<i64> = const { Cell::new(0) };
}

/// The id of a claim. Its text is `<process>#<number>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) process: u8,
    pub(crate) number: u16,
}

impl Id {
    /// The text, which is made once.
    pub(crate) fn text(self) -> Arc<str> {
        let made = |texts: &RefCell<HashMap<Self, Arc<str>>>| {
            let mut texts = texts.borrow_mut();
            let text = texts.entry(self).or_insert_with(|| format!("{self:?}").into());
            Arc::clone(text)
        };
        TEXTS.with(made)
    }

    pub(crate) fn of(text: &str) -> Option<Self> {
        let (process, number) = text.split_once('#')?;
        Some(Self {
            process: process.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

impl Debug for Id {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}#{}", self.process, self.number)
    }
}

/// A fencing token. Its hash is relative to the token in the document, because only the order of tokens matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) i64);

impl Token {
    /// Makes this token the one that hashes are relative to.
    pub(crate) fn set_last(self) {
        LAST_TOKEN.set(self.0);
    }
}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_i64(self.0 - LAST_TOKEN.get());
    }
}

impl Debug for Token {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The library's module of this name.
pub(crate) mod lock_id {
    pub(crate) fn owner(id: &str) -> Option<&str> {
        id.split_once('#').map(|(owner, _)| owner)
    }

    /// Nothing is detached here.
    pub(crate) fn has_changed_hands(_: &str) -> bool {
        false
    }
}
