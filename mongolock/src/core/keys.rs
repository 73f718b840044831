//! Keys in an order: usually there is one at most, which takes no memory of its own.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::slab::Key;

/// Keys in an order.
#[derive(Debug, Clone, Default)]
pub(super) enum Keys {
    #[default]
    Empty,
    One([Key; 1]),
    /// With the number of those at the front that are removed: they are taken out together, because moving the keys
    /// behind each of them would take long.
    Several(Box<(usize, Vec<Key>)>),
}

impl Deref for Keys {
    type Target = [Key];

    #[inline]
    fn deref(&self) -> &[Key] {
        match self {
            Self::Empty => &[],
            Self::One(key) => key,
            Self::Several(several) => &several.1[several.0..],
        }
    }
}

impl Keys {
    pub(super) fn push(&mut self, key: Key) {
        match self {
            Self::Empty => *self = Self::One([key]),
            Self::One([first]) => *self = Self::Several(Box::new((0, vec![*first, key]))),
            Self::Several(several) => several.1.push(key),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Key> {
        let first = *self.first()?;
        match self {
            Self::Several(several) if several.0 + 1 < several.1.len() => {
                several.0 += 1;
                if several.0 * 2 > several.1.len() {
                    several.1.drain(..std::mem::take(&mut several.0));
                }
            }
            _ => *self = Self::Empty,
        }
        Some(first)
    }

    /// Removes a key. Usually it is the first one, and there may be many.
    pub(super) fn remove(&mut self, key: Key) {
        if self.first() == Some(&key) {
            self.pop_front();
        } else if let Self::Several(several) = self {
            several.1.drain(..std::mem::take(&mut several.0));
            several.1.retain(|other| *other != key);
        }
    }
}

impl Hash for Keys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::slab::Slab;
    use super::*;

    #[test]
    fn they_have_the_order_of_a_queue() {
        let (mut slab, mut keys, mut expected) = (Slab::default(), Keys::default(), VecDeque::new());
        for step in 0_u32..5000 {
            let drawn = step.wrapping_mul(0x9e37_79b9) >> 29;
            let grows = step / 200 % 2 == 0;
            match drawn {
                0..=4 if grows => {
                    let key = slab.insert(());
                    expected.push_back(key);
                    keys.push(key);
                }
                0..=5 => assert_eq!(keys.pop_front(), expected.pop_front()),
                6 => {
                    let place = step as usize % expected.len().max(1);
                    if let Some(key) = expected.remove(place) {
                        keys.remove(key);
                    }
                }
                _ => {
                    // A caller may come back into a queue that it was in.
                    if let Some(key) = keys.pop_front() {
                        assert_eq!(Some(key), expected.pop_front());
                        expected.push_back(key);
                        keys.push(key);
                    }
                }
            }
            assert!(keys.iter().eq(&expected), "step {step}");
        }
    }
}
