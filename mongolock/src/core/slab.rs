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

/// The values.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// The slots, in small parts, so that no value moves when the slab grows: moving 10,000 values would take
    /// milliseconds.
    parts: Vec<Box<[Slot<T>; PART as usize]>>,
    /// The indexes of the slots without a value.
    free: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The number of slots in a part.
const PART: u32 = 4;

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
        let slot = &mut self.parts[(index / PART) as usize][(index % PART) as usize];
        slot.value = Some(value);
        let generation = slot.generation;
        Key { index, generation }
    }

    /// Adds slots, and returns the index of the first one.
    fn grow(&mut self) -> u32 {
        let first = u32::try_from(self.parts.len()).unwrap_or(u32::MAX) * PART;
        let empty = |_| Slot {
            generation: 0,
            value: None,
        };
        self.parts.push(Box::new(std::array::from_fn(empty)));
        self.free.extend((first + 1..first + PART).rev());
        first
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let part = self.parts.get((key.index / PART) as usize)?;
        let slot = &part[(key.index % PART) as usize];
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    #[inline]
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

    #[inline]
    fn slot(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let part = self.parts.get_mut((key.index / PART) as usize)?;
        Some(&mut part[(key.index % PART) as usize])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = (0..).zip(self.slots());
        slots.filter_map(|(index, slot)| {
            let generation = slot.generation;
            Some((Key { index, generation }, slot.value.as_ref()?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.len() * PART as usize == self.free.len()
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.parts.iter().flat_map(|part| part.iter())
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
        for slot in self.slots() {
            slot.value.hash(state);
        }
    }
}
