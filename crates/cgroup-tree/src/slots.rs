//! Ids of cgroups, and tables that are keyed by them.

use std::ops::{Index, IndexMut};

/// Id of a cgroup. A slot is reused after the cgroup is removed; its generation then differs, so an
/// id never refers to another cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId {
    slot: u32,
    generation: u32,
}

impl CgroupId {
    /// Position in a [`Slots`] table: small, and at most once in use at a time.
    #[must_use]
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// The id as one number, such as for the data of an epoll event.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        (u64::from(self.slot) << 32) | u64::from(self.generation)
    }

    /// Inverse of [`CgroupId::to_u64`].
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self { slot: (number >> 32) as u32, generation: number as u32 }
    }
}

/// Source of new ids.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// The last generation of each slot.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Ids {
    /// Returns an id that was never in use; prefers the slot that was freed last.
    pub(crate) fn take(&mut self) -> CgroupId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            (self.generations.len() - 1) as u32
        });
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        CgroupId { slot, generation: *generation }
    }

    pub(crate) fn give_back(&mut self, id: CgroupId) {
        self.free.push(id.slot);
    }
}

/// Values of some of the tree's cgroups. A lookup with the id of a removed cgroup finds nothing,
/// even if its slot is in use again.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<Option<(CgroupId, T)>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Sets the value of a cgroup; returns the previous value of its slot.
    pub fn insert(&mut self, id: CgroupId, value: T) -> Option<T> {
        if self.entries.len() <= id.slot() {
            self.entries.resize_with(id.slot() + 1, || None);
        }
        self.entries[id.slot()].replace((id, value)).map(|(_, value)| value)
    }

    /// Removes the value of a cgroup.
    pub fn remove(&mut self, id: CgroupId) -> Option<T> {
        let entry = self.entries.get_mut(id.slot())?;
        entry.take_if(|(known, _)| *known == id).map(|(_, value)| value)
    }

    /// The value of a cgroup.
    #[must_use]
    pub fn get(&self, id: CgroupId) -> Option<&T> {
        let (known, value) = self.entries.get(id.slot())?.as_ref()?;
        (*known == id).then_some(value)
    }

    /// The value of a cgroup.
    pub fn get_mut(&mut self, id: CgroupId) -> Option<&mut T> {
        let (known, value) = self.entries.get_mut(id.slot())?.as_mut()?;
        (*known == id).then_some(value)
    }

    /// Whether the cgroup has a value.
    #[must_use]
    pub fn contains(&self, id: CgroupId) -> bool {
        self.get(id).is_some()
    }

    /// The cgroup in this slot.
    #[must_use]
    pub fn id_at(&self, slot: usize) -> Option<CgroupId> {
        self.entries.get(slot)?.as_ref().map(|(id, _)| *id)
    }

    /// Number of slots, used or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// All values, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (CgroupId, &T)> + Clone {
        self.entries.iter().flatten().map(|(id, value)| (*id, value))
    }

    /// All values, in the order of their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (CgroupId, &mut T)> {
        self.entries.iter_mut().flatten().map(|(id, value)| (*id, value))
    }
}

impl<T> Index<CgroupId> for Slots<T> {
    type Output = T;

    /// # Panics
    /// A cgroup without a value.
    fn index(&self, id: CgroupId) -> &T {
        match self.get(id) {
            Some(value) => value,
            None => panic!("{id:?} has no value"),
        }
    }
}

impl<T> IndexMut<CgroupId> for Slots<T> {
    /// # Panics
    /// A cgroup without a value.
    fn index_mut(&mut self, id: CgroupId) -> &mut T {
        match self.get_mut(id) {
            Some(value) => value,
            None => panic!("{id:?} has no value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_cgroups_id_is_invalid_after_its_slot_is_reused() {
        let (mut ids, mut slots) = (Ids::default(), Slots::default());
        let old = ids.take();
        slots.insert(old, "old");
        assert_eq!(slots.remove(old), Some("old"));
        ids.give_back(old);
        let new = ids.take();
        assert_eq!((new.slot(), slots.insert(new, "new")), (old.slot(), None));
        assert_ne!(new, old);
        assert_eq!((slots.get(old), slots.get(new)), (None, Some(&"new")));
        assert_eq!((slots.remove(old), slots.id_at(0)), (None, Some(new)));
    }

    #[test]
    fn an_id_survives_the_conversion_to_a_number() {
        let mut ids = Ids::default();
        let first = ids.take();
        let second = ids.take();
        ids.give_back(first);
        for id in [first, second, ids.take()] {
            assert_eq!(CgroupId::from_u64(id.to_u64()), id);
        }
    }
}
