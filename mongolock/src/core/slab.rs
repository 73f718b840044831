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

/// The number of slots that are allocated together.
const PART: usize = 64;

/// Values, each under its key.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    /// The slots are allocated in parts, so that no value moves when the slab grows: moving 10,000 values would take
    /// milliseconds.
    parts: Vec<Vec<Slot<T>>>,
    /// The number of slots.
    size: u32,
    /// The indexes of the slots without a value.
    free: Vec<u32>,
}

/// A place for a value, and the number of earlier values in it.
#[derive(Debug, Clone)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The part of the slot with this index, and its place in the part.
fn place_of(index: u32) -> (usize, usize) {
    (index as usize / PART, index as usize % PART)
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            size: 0,
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or(self.size);
        let (part, place) = place_of(index);
        if index == self.size {
            if place == 0 {
                self.parts.push(Vec::with_capacity(PART));
            }
            let (generation, value) = (0, None);
            self.parts[part].push(Slot { generation, value });
            self.size += 1;
        }
        let slot = &mut self.parts[part][place];
        slot.value = Some(value);
        let generation = slot.generation;
        Key { index, generation }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (part, place) = place_of(key.index);
        let slot = self.parts.get(part)?.get(place)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (part, place) = place_of(key.index);
        let slot = self.parts.get_mut(part)?.get_mut(place)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let (part, place) = place_of(key.index);
        let slot = &mut self.parts[part][place];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
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
        self.size as usize == self.free.len()
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
        for slot in self.parts.iter().flatten() {
            slot.value.hash(state);
        }
    }
}
