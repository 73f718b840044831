//! Values under keys that are never used twice: the key of a removed value finds nothing.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

/// The key of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    /// The number of earlier values with this index.
    generation: u32,
}

/// Values, each under its key.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// Each slot has its own place in memory, so that no value moves when the slab grows: moving 10,000 values would
    /// take milliseconds.
    slots: Vec<Box<Slot<T>>>,
    /// The indexes of the slots without a value.
    free: Vec<u32>,
}

/// A place for a value, and the number of earlier values in it.
#[derive(Debug, Clone)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let value = Some(value);
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = value;
            let generation = slot.generation;
            return Key { index, generation };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let generation = 0;
        self.slots.push(Box::new(Slot { generation, value }));
        Key { index, generation }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let value = slot.value.take_if(|_| slot.generation == key.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(index, slot)| {
            let generation = slot.generation;
            Some((Key { index, generation }, slot.value.as_ref()?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

/// The value of a key that cannot have been removed: a room stays while it has claims or calls, and a room refers only
/// to existing claims and calls.
impl<T> Index<Key> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key) -> &T {
        self.get(key).expect("what has the key keeps its value")
    }
}

impl<T> IndexMut<Key> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("what has the key keeps its value")
    }
}

/// Hashes the values and their indexes. Slabs that differ only in the numbers of earlier values have the same hash.
impl<T: Hash> Hash for Slab<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for slot in &self.slots {
            slot.value.hash(state);
        }
    }
}
