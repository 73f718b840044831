//! What this process knows about the permits of a semaphore.

use super::slab::Key;

/// The permits of a semaphore by their numbers; a lock has none.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct PermitList(Vec<PermitState>);

/// What this process knows about one permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PermitState {
    Unknown,
    Free,
    /// This claim of the process has the permit, or may get it.
    Own(Key),
    Taken,
}

impl PermitState {
    fn may_be_free(self) -> bool {
        matches!(self, Self::Unknown | Self::Free)
    }

    fn is_own(self) -> bool {
        matches!(self, Self::Own(_))
    }
}

impl PermitList {
    fn count(&self, is_counted: fn(PermitState) -> bool) -> usize {
        self.0.iter().filter(|permit| is_counted(**permit)).count()
    }

    pub(super) fn is_of_lock(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, number: u32) -> Option<PermitState> {
        self.0.get(number as usize).copied()
    }

    /// A caller uses this number of permits.
    pub(super) fn widen(&mut self, width: u32) {
        let more = (width as usize).saturating_sub(self.0.len());
        self.0.extend(std::iter::repeat_n(PermitState::Unknown, more));
    }

    /// The number of calls that can ask at the same time; one for a lock.
    pub(super) fn free(&self) -> usize {
        self.count(PermitState::may_be_free).max(1)
    }

    /// Whether no permit may be free.
    pub(super) fn is_full(&self) -> bool {
        self.count(PermitState::may_be_free) == 0
    }

    /// Whether claims of this process have or may get all other permits.
    pub(super) fn are_others_own(&self) -> bool {
        self.count(PermitState::is_own) + 1 >= self.0.len()
    }

    /// The claims that have or may get the first `width` permits, if all of these permits belong to this process.
    pub(super) fn owners(&self, width: u32) -> Option<impl Iterator<Item = Key>> {
        let owner = |permit: &PermitState| match permit {
            PermitState::Own(key) => Some(*key),
            _ => None,
        };
        let first = &self.0[..self.0.len().min(width as usize)];
        let are_own = first.iter().all(|permit| permit.is_own());
        are_own.then(|| first.iter().filter_map(owner))
    }

    pub(super) fn set(&mut self, number: u32, permit: PermitState) {
        if let Some(before) = self.0.get_mut(number as usize) {
            *before = permit;
        }
    }

    /// The same, unless a claim of this process has or may get the permit.
    pub(super) fn set_unless_own(&mut self, number: u32, permit: PermitState) {
        if self.get(number).is_some_and(|before| !before.is_own()) {
            self.set(number, permit);
        }
    }

    /// The same, if this claim has or may get the permit.
    pub(super) fn set_if_of(&mut self, number: u32, owner: Key, permit: PermitState) {
        if self.get(number) == Some(PermitState::Own(owner)) {
            self.set(number, permit);
        }
    }

    /// These permits are taken, and all others that do not belong to this process are free.
    pub(super) fn set_taken(&mut self, taken: impl Iterator<Item = u32>) {
        for number in 0..u32::try_from(self.0.len()).unwrap_or(u32::MAX) {
            self.set_unless_own(number, PermitState::Free);
        }
        for number in taken {
            self.set_unless_own(number, PermitState::Taken);
        }
    }

    /// A permit that is free, searched from number `start` on. In the first attempt a permit that may be free is
    /// enough.
    pub(super) fn choose(&self, width: u32, is_first: bool, start: u32) -> Option<u32> {
        let width = width.min(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        let may_be_free = |number: &u32| match self.0[*number as usize] {
            PermitState::Free => true,
            PermitState::Unknown => is_first || width == 1,
            _ => false,
        };
        (start..width).chain(0..start.min(width)).find(may_be_free)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::Slab;
    use super::*;

    #[test]
    fn the_permits_of_a_semaphore_are_chosen_by_what_is_known_of_them() {
        let mut slab = Slab::default();
        let (own, other) = (slab.insert(()), slab.insert(()));
        let mut list = PermitList::default();
        assert!(list.is_of_lock() && list.is_full() && list.free() == 1);
        list.widen(1);
        assert_eq!(list.choose(1, false, 0), Some(0), "there is only one");
        list.widen(4);
        list.widen(2);
        assert!(!list.is_of_lock() && !list.is_full() && list.get(4).is_none());
        assert_eq!(
            (list.free(), list.choose(4, true, 2), list.choose(4, false, 2)),
            (4, Some(2), None)
        );
        assert_eq!(list.choose(3, true, 3), Some(0), "not beyond the width");
        assert_eq!(list.choose(9, true, 4), Some(0), "nor beyond the end");
        list.set(1, PermitState::Own(own));
        list.set(2, PermitState::Own(other));
        list.set_taken([0, 1].into_iter());
        assert_eq!(
            [0, 1, 2, 3].map(|number| list.get(number).unwrap()),
            [
                PermitState::Taken,
                PermitState::Own(own),
                PermitState::Own(other),
                PermitState::Free,
            ]
        );
        assert_eq!(
            (list.free(), list.choose(4, false, 0), list.choose(3, true, 0)),
            (1, Some(3), None)
        );
        assert!(!list.is_full() && !list.are_others_own() && list.owners(2).is_none());
        list.set_if_of(1, other, PermitState::Free);
        list.set_if_of(2, other, PermitState::Unknown);
        list.set_unless_own(1, PermitState::Free);
        assert_eq!(
            (list.get(1), list.get(2)),
            (Some(PermitState::Own(own)), Some(PermitState::Unknown))
        );
        for number in [0, 3] {
            list.set(number, PermitState::Own(other));
        }
        assert!(list.are_others_own());
        assert_eq!(list.owners(2).unwrap().collect::<Vec<_>>(), [other, own]);
        assert!(list.owners(3).is_none());
        list.set(2, PermitState::Taken);
        assert!(list.is_full() && list.free() == 1);
    }
}
