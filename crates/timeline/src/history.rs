//! Series of packed values in a bounded number of slots.

use std::collections::HashMap;

use api::{KEPT, Measure};

use crate::packed::{pack, unpack};
use crate::runs::{Runs, run_bytes};

/// Maximum memory of one container's history, bytes: if a value changes in each frame.
pub const BYTES_PER_CONTAINER: usize = KEPT * run_bytes(Measure::ALL.len());
/// Maximum memory of the history of one pair of victim and aggressor, bytes.
pub const BYTES_PER_PAIR: usize = KEPT * run_bytes(1);

/// Series by key, each with `width` values per frame. `T` is the state that the caller keeps with a
/// series.
#[derive(Debug)]
pub(crate) struct SeriesRing<T> {
    width: usize,
    /// Buffer for the packed values of a frame.
    row: Vec<u16>,
    slots: Vec<Option<SeriesSlot<T>>>,
    by_key: HashMap<Box<str>, usize>,
    /// Slots in the order in which they were returned in this frame, and in the one before.
    order: Vec<usize>,
    order_before: Vec<usize>,
    /// Position in `order_before` after the slot that was last returned.
    next: usize,
    /// The last frame in which no slot was free: none becomes free before the next frame.
    full: u64,
    /// Number of series for which there was no slot.
    pub(crate) dropped: u64,
}

#[derive(Debug)]
struct SeriesSlot<T> {
    key: Box<str>,
    state: T,
    /// Number of the last frame with a value.
    last: u64,
    runs: Runs,
}

impl<T> SeriesRing<T> {
    pub(crate) fn new(capacity: usize, width: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(capacity, || None);
        Self {
            width,
            row: Vec::with_capacity(width),
            slots,
            by_key: HashMap::new(),
            order: Vec::new(),
            order_before: Vec::new(),
            next: 0,
            full: 0,
            dropped: 0,
        }
    }

    /// Prepares all series for the next frame, and forgets those without a value in the ring.
    pub(crate) fn advance(&mut self, frame: u64) {
        self.next = 0;
        std::mem::swap(&mut self.order, &mut self.order_before);
        self.order.clear();
        for place in &mut self.slots {
            let Some(slot) = place else { continue };
            if slot.last + KEPT as u64 <= frame {
                self.by_key.remove(&slot.key);
                *place = None;
            }
        }
    }

    /// Returns the slot of the key, or makes one with this state. `None` if all slots are in use:
    /// a series that has ended gives up its slot for a new one.
    pub(crate) fn slot(
        &mut self,
        key: &str,
        frame: u64,
        state: impl FnOnce() -> T,
    ) -> Option<usize> {
        if let Some(&at) = self.by_key.get(key) {
            if let Some(before) = self.order_before.iter().position(|&slot| slot == at) {
                self.next = before + 1;
            }
            self.order.push(at);
            return Some(at);
        }
        let Some(at) = self.free(frame) else {
            self.dropped += 1;
            return None;
        };
        if let Some(old) = self.slots[at].take() {
            self.by_key.remove(&old.key);
        }
        let (state, runs) = (state(), Runs::default());
        self.slots[at] = Some(SeriesSlot { key: key.into(), state, last: frame, runs });
        self.by_key.insert(key.into(), at);
        self.order.push(at);
        Some(at)
    }

    /// Returns the slot that followed the last returned one in the frame before, if its state is that
    /// of the wanted series: a frame's series mostly come in the order of the one before, and then
    /// need no search.
    pub(crate) fn next_slot(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<usize> {
        let at = *self.order_before.get(self.next)?;
        let slot = self.slots[at].as_ref()?;
        is_wanted(&slot.state).then(|| {
            self.next += 1;
            self.order.push(at);
            at
        })
    }

    /// A slot without a series, or that of the series that ended first.
    fn free(&mut self, frame: u64) -> Option<usize> {
        if self.full == frame {
            return None;
        }
        let empty = self.slots.iter().position(Option::is_none);
        let free = empty.or_else(|| {
            let slots = self.slots.iter().enumerate();
            let ended = slots.filter_map(|(at, slot)| Some((slot.as_ref()?.last, at)));
            ended.filter(|&(last, _)| last + 1 < frame).min().map(|(_, at)| at)
        });
        if free.is_none() {
            self.full = frame;
        }
        free
    }

    /// Sets the values of a series in the frame, in the order of its measures.
    pub(crate) fn set(
        &mut self,
        at: usize,
        frame: u64,
        values: impl IntoIterator<Item = Option<f64>>,
    ) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.last + 1 < frame {
            self.row.clear();
            self.row.resize(self.width, pack(None));
            slot.runs.push(slot.last + 1, &self.row);
        }
        self.row.clear();
        self.row.extend(values.into_iter().map(pack));
        slot.runs.push(frame, &self.row);
        slot.last = frame;
    }

    /// Repeats the values of the last frame, which must be the one before.
    pub(crate) fn repeat(&mut self, at: usize, frame: u64) {
        if let Some(slot) = &mut self.slots[at] {
            slot.runs.forget(frame, self.width);
            slot.last = frame;
        }
    }

    /// The value of a measure in a frame that is still in the history.
    pub(crate) fn value(&self, at: usize, measure: usize, frame: u64) -> Option<f64> {
        let slot = self.slots[at].as_ref().filter(|slot| frame <= slot.last)?;
        unpack(slot.runs.value(measure, self.width, frame, slot.last))
    }

    /// Number of the last frame with a value of this series.
    pub(crate) fn last(&self, at: usize) -> u64 {
        self.slots[at].as_ref().map_or(0, |slot| slot.last)
    }

    pub(crate) fn state_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots[at].as_mut().map(|slot| &mut slot.state)
    }

    /// All series: slot and state.
    pub(crate) fn series(&self) -> impl Iterator<Item = (usize, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| Some((at, &slot.as_ref()?.state)))
    }
}

/// Position of a frame in the ring.
pub(crate) fn position(frame: u64) -> usize {
    // Below KEPT.
    (frame % KEPT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_value_is_replaced_and_a_silent_series_is_forgotten() {
        let mut table = SeriesRing::new(2, 1);
        table.advance(1);
        let at = table.slot("a", 1, || ()).unwrap();
        table.set(at, 1, [Some(2.0)]);
        for frame in 2..=KEPT as u64 {
            table.advance(frame);
            assert_eq!(table.value(at, 0, frame), None);
        }
        assert!((table.value(at, 0, 1).unwrap() - 2.0).abs() < 0.01);
        table.advance(KEPT as u64 + 1);
        assert_eq!(table.value(at, 0, 1), None);
        assert_eq!(table.series().count(), 0);
    }

    #[test]
    fn series_in_the_same_order_are_found_without_a_search() {
        let mut table = SeriesRing::new(3, 1);
        table.advance(1);
        for key in ["a", "b", "c"] {
            table.slot(key, 1, || key).unwrap();
        }
        table.advance(2);
        let mut next = |wanted| table.next_slot(|key| *key == wanted);
        assert_eq!([next("a"), next("b")], [Some(0), Some(1)]);
        assert_eq!(next("b"), None, "the next one is `c`");
        assert_eq!(next("c"), Some(2));
        assert_eq!(next("a"), None, "there is no more slot");
        assert_eq!(table.slot("a", 2, || "new"), Some(0));
        assert_eq!(table.next_slot(|key| *key == "b"), Some(1), "after the one that was searched");
    }

    #[test]
    fn a_series_that_comes_between_others_is_the_only_one_that_is_searched() {
        let mut table = SeriesRing::new(3, 1);
        table.advance(1);
        for key in ["a", "c"] {
            table.slot(key, 1, || key).unwrap();
        }
        for frame in 2..=3 {
            table.advance(frame);
            let found = ["a", "b", "c"].map(|wanted| {
                let known = table.next_slot(|key| *key == wanted);
                (known.is_some(), known.or_else(|| table.slot(wanted, frame, || wanted)).unwrap())
            });
            assert_eq!(found, [(true, 0), (frame == 3, 2), (true, 1)]);
        }
    }

    #[test]
    fn a_full_table_replaces_only_series_that_have_ended() {
        let mut table = SeriesRing::new(1, 1);
        table.advance(1);
        let at = table.slot("a", 1, || 'a').unwrap();
        table.set(at, 1, [Some(1.0)]);
        table.advance(2);
        assert_eq!(table.slot("b", 2, || 'b'), None, "`a` had a value in the frame before");
        assert_eq!(table.dropped, 1);
        table.advance(3);
        assert_eq!(table.slot("b", 3, || 'b'), Some(0));
        assert_eq!(table.value(0, 0, 1), None, "the values of `a` are gone");
        assert_eq!(table.series().map(|(_, state)| *state).collect::<String>(), "b");
    }
}
