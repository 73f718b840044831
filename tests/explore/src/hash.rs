//! The fingerprint of a situation.

use std::fmt::{self, Debug, Write};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};

use foldhash::quality::FixedState;

/// A hash of 64 bits, which is the same in every run.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

/// A value of the library that can have no hash of its own, because it keeps an error of the driver or a weak reference: its hash
/// is that of its text.
#[derive(Clone, Default)]
pub(crate) struct ByText<T>(pub(crate) T);

impl<T> Deref for ByText<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for ByText<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Debug> Hash for ByText<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut text = Text(state);
        let written = write!(text, "{:?}", self.0);
        debug_assert!(written.is_ok(), "a hash takes any text");
    }
}

struct Text<'a, H>(&'a mut H);

impl<H: Hasher> Write for Text<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
