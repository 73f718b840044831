//! The fingerprint of a situation.

use std::fmt::{self, Debug, Write};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// A hash of 64 bits: each word is mixed in by one multiplication.
pub(crate) struct Fingerprint(u64);

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(0x243F_6A88_85A3_08D3)
    }

    pub(crate) fn of(value: &impl Hash) -> u64 {
        let mut hasher = Self::new();
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        mixed(self.0, FACTOR)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let of_rest = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
        // The first bit tells the length.
        self.write_u64(rest.iter().fold(1, of_rest));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mixed(self.0 ^ word, FACTOR).rotate_left(23) ^ word;
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }
}

fn mixed(one: u64, other: u64) -> u64 {
    let [low, high] = {
        let product = u128::from(one) * u128::from(other);
        let bytes = product.to_le_bytes();
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        [half(0), half(8)]
    };
    low ^ high
}

/// Hashes of 64 bits as the keys of a set: they are hashes already.
#[derive(Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
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
