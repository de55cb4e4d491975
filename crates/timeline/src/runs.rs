//! Values of one series, frame by frame, in memory that grows with the number of changes.

use std::collections::VecDeque;

use api::KEPT;

/// Rows of packed values. A run is a row that holds from its frame until the next run's; a series
/// that does not change has one.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// First frame of each run, modulo 2^16; all of them are at most [`KEPT`] frames old.
    firsts: VecDeque<u16>,
    /// Values of the runs, one row after the other.
    values: VecDeque<u16>,
}

/// Number of runs up to which memory grows step by step. A series with more changes is likely to
/// change on: it gets all its memory at once, because many reallocations would fragment the heap,
/// and the kernel provides each page when it is first written.
const FEW: usize = 16;

/// Memory of a run, bytes.
pub(crate) const fn run_bytes(width: usize) -> usize {
    (1 + width) * size_of::<u16>()
}

impl Runs {
    /// Adds the row of this frame, which is later than all others. The frames since the last one
    /// have its values.
    pub(crate) fn push(&mut self, frame: u64, row: &[u16]) {
        self.forget(frame, row.len());
        let last = self.values.len().saturating_sub(row.len());
        if !self.firsts.is_empty() && self.values.range(last..).eq(row) {
            return;
        }
        let runs = self.firsts.len();
        if runs == self.firsts.capacity() {
            let step = if runs < FEW { runs.max(4) } else { KEPT.saturating_sub(runs).max(1) };
            self.firsts.reserve_exact(step);
            self.values.reserve_exact(step * row.len());
        }
        self.firsts.push_back(frame as u16);
        self.values.extend(row);
    }

    /// The value of a measure in a frame that is not older than [`KEPT`] frames; `latest` is the
    /// frame of the last row. 0 before the first row.
    pub(crate) fn value(&self, measure: usize, width: usize, frame: u64, latest: u64) -> u16 {
        let age = |frame: u16| (latest as u16).wrapping_sub(frame);
        let began = self.firsts.partition_point(|first| age(*first) >= age(frame as u16));
        let run = began.checked_sub(1);
        run.and_then(|run| self.values.get(run * width + measure)).copied().unwrap_or(0)
    }

    /// Forgets the runs that ended before the frames that are kept.
    pub(crate) fn forget(&mut self, frame: u64, width: usize) {
        let oldest = frame.saturating_sub(KEPT as u64 - 1);
        let age = |first: u16| (frame as u16).wrapping_sub(first);
        let is_old = |first: u16| age(first) >= age(oldest as u16);
        while self.firsts.get(1).is_some_and(|second| is_old(*second)) {
            self.firsts.pop_front();
            self.values.drain(..width);
        }
        if let Some(first) = self.firsts.front_mut()
            && is_old(*first)
        {
            *first = oldest as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_series_that_does_not_change_has_one_run() {
        let mut runs = Runs::default();
        (1..=200_000).for_each(|frame| runs.push(frame, &[1, 2]));
        assert_eq!((runs.firsts.len(), runs.values.len()), (1, 2));
        assert!(runs.values.capacity() <= 2 * FEW);
        assert_eq!(runs.value(1, 2, 200_000 - KEPT as u64 + 1, 200_000), 2);
        runs.push(200_001, &[1, 3]);
        assert_eq!([200_000, 200_001].map(|frame| runs.value(1, 2, frame, 200_001)), [2, 3]);
    }

    #[test]
    fn memory_is_bounded_if_each_frame_changes() {
        let mut runs = Runs::default();
        for frame in 1..=3 * KEPT as u64 {
            runs.push(frame, &[frame as u16, 0]);
            assert!(runs.firsts.len() <= KEPT);
        }
        assert_eq!((runs.firsts.capacity(), runs.values.capacity()), (KEPT, 2 * KEPT));
    }

    proptest! {
        #[test]
        fn every_kept_frame_has_its_row(
            start in 0_u64..200_000,
            rows in prop::collection::vec(0_u16..3, 1..2_000),
        ) {
            let mut runs = Runs::default();
            for (frame, row) in (start..).zip(&rows) {
                runs.push(frame, &[*row, 7]);
            }
            let latest = start + rows.len() as u64 - 1;
            for (frame, row) in (start..=latest).rev().zip(rows.iter().rev()).take(KEPT) {
                prop_assert_eq!(runs.value(0, 2, frame, latest), *row);
            }
        }
    }
}
