//! What this process knows about the permits of a semaphore.

use super::slab::Key;

/// The permits of a semaphore by their numbers; a lock has none.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct PermitList {
    list: Vec<Permit>,
    /// The number of permits that may be free.
    free: usize,
    /// The number of permits that claims of this process have or may get.
    own: usize,
}

/// What this process knows about one permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Permit {
    Unknown,
    Free,
    /// This claim of the process has the permit, or may get it.
    Own(Key),
    Taken,
}

impl Permit {
    fn may_be_free(self) -> bool {
        matches!(self, Self::Unknown | Self::Free)
    }

    fn is_own(self) -> bool {
        matches!(self, Self::Own(_))
    }
}

impl PermitList {
    pub(super) fn is_of_lock(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn get(&self, number: u32) -> Option<Permit> {
        self.list.get(number as usize).copied()
    }

    /// A caller uses this number of permits.
    pub(super) fn widen(&mut self, width: u32) {
        let more = (width as usize).saturating_sub(self.list.len());
        self.list.extend(std::iter::repeat_n(Permit::Unknown, more));
        self.free += more;
    }

    /// The number of calls that can ask at the same time; one for a lock.
    pub(super) fn free(&self) -> usize {
        self.free.max(1)
    }

    /// Whether no permit may be free.
    pub(super) fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Whether claims of this process have or may get all other permits.
    pub(super) fn are_others_own(&self) -> bool {
        self.own + 1 >= self.list.len()
    }

    /// The claims that have or may get the first `width` permits, if all of these permits belong to this process.
    pub(super) fn owners(&self, width: u32) -> Option<impl Iterator<Item = Key>> {
        let owner = |permit: &Permit| match permit {
            Permit::Own(key) => Some(*key),
            _ => None,
        };
        let first = &self.list[..self.list.len().min(width as usize)];
        let are_own = self.own >= first.len() && first.iter().all(|permit| permit.is_own());
        are_own.then(|| first.iter().filter_map(owner))
    }

    pub(super) fn set(&mut self, number: u32, permit: Permit) {
        let Some(before) = self.list.get_mut(number as usize) else {
            return;
        };
        self.free -= usize::from(before.may_be_free());
        self.own -= usize::from(before.is_own());
        *before = permit;
        self.free += usize::from(permit.may_be_free());
        self.own += usize::from(permit.is_own());
    }

    /// The same, unless a claim of this process has or may get the permit.
    pub(super) fn set_unless_own(&mut self, number: u32, permit: Permit) {
        if self.get(number).is_some_and(|before| !before.is_own()) {
            self.set(number, permit);
        }
    }

    /// The same, if this claim has or may get the permit.
    pub(super) fn set_if_of(&mut self, number: u32, owner: Key, permit: Permit) {
        if self.get(number) == Some(Permit::Own(owner)) {
            self.set(number, permit);
        }
    }

    /// Permits that others had may be free by now: the change stream does not report the end of a lease or of a minimum
    /// hold.
    pub(super) fn doubt_taken(&mut self) {
        for permit in self.list.iter_mut().filter(|permit| **permit == Permit::Taken) {
            *permit = Permit::Unknown;
            self.free += 1;
        }
    }

    /// These permits are taken, and all others that do not belong to this process are free.
    pub(super) fn set_taken(&mut self, taken: impl Iterator<Item = u32>) {
        for number in 0..u32::try_from(self.list.len()).unwrap_or(u32::MAX) {
            self.set_unless_own(number, Permit::Free);
        }
        for number in taken {
            self.set_unless_own(number, Permit::Taken);
        }
    }

    /// A permit that is free, searched from number `start` on. In the first attempt a permit that may be free is
    /// enough.
    pub(super) fn choose(&self, width: u32, is_first: bool, start: u32) -> Option<u32> {
        let width = width.min(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let may_be_free = |number: &u32| match self.list[*number as usize] {
            Permit::Free => true,
            Permit::Unknown => is_first || width == 1,
            _ => false,
        };
        if self.free == 0 {
            return None;
        }
        (start..width).chain(0..start.min(width)).find(may_be_free)
    }
}
