//! Values under keys that are never used twice: the key of a removed value finds nothing.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

/// The key of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    /// The number of earlier values with this index.
    generation: u32,
}

/// The values.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// The slots, in parts of the same size, so that no value moves when the slab grows: moving 10,000 values would
    /// take milliseconds.
    parts: Vec<Vec<Slot<T>>>,
    /// The indexes of the slots without a value.
    free: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The number of slots in a part.
const PART: usize = 128;

impl Key {
    /// The key of nothing.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let slot = &mut self.parts[index as usize / PART][index as usize % PART];
        slot.value = Some(value);
        let generation = slot.generation;
        Key { index, generation }
    }

    /// Adds a slot, and returns its index.
    fn grow(&mut self) -> u32 {
        if self.parts.last().is_none_or(|part| part.len() == PART) {
            self.parts.push(Vec::new());
        }
        let before = (self.parts.len() - 1) * PART;
        let part = &mut self.parts[before / PART];
        part.push(Slot {
            generation: 0,
            value: None,
        });
        u32::try_from(before + part.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let part = self.parts.get(key.index as usize / PART)?;
        let slot = part.get(key.index as usize % PART)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slot(key)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slot(key)?;
        let value = slot.value.take_if(|_| slot.generation == key.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let part = self.parts.get_mut(key.index as usize / PART)?;
        part.get_mut(key.index as usize % PART)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = (0..).zip(self.parts.iter().flatten());
        slots.filter_map(|(index, slot)| {
            let generation = slot.generation;
            Some((Key { index, generation }, slot.value.as_ref()?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let slots: usize = self.parts.iter().map(Vec::len).sum();
        slots == self.free.len()
    }
}

/// The value of a key that cannot have been removed: a room stays while it has claims or calls, and a room refers only
/// to existing claims and calls.
impl<T> Index<Key> for Slab<T> {
    type Output = T;

    fn index(&self, key: Key) -> &T {
        self.get(key).expect("what has the key keeps its value")
    }
}

impl<T> IndexMut<Key> for Slab<T> {
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("what has the key keeps its value")
    }
}

/// Hashes the values and their indexes. Slabs that differ only in the numbers of earlier values have the same hash.
impl<T: Hash> Hash for Slab<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for slot in self.parts.iter().flatten() {
            slot.value.hash(state);
        }
    }
}
