//! Rows of a frame as changes since the previous frame.
//!
//! Reader and writer keep the same rows in the same order. A record has the rows that were removed
//! (positions), those that were inserted (position and JSON), and then all values, column by
//! column, as runs of unchanged ones and differences of packed ones.

use std::cmp::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{Input, put, zigzag};
use crate::packed::{pack, unpack};

/// A row: fields that seldom change, which are its head, and values.
pub(crate) trait Row: Clone + Serialize + DeserializeOwned {
    /// Number of values.
    const WIDTH: usize;

    /// Name of a value: readers of other versions find it by the name.
    fn column(column: usize) -> String;
    /// Order of the heads; equal only if all their fields are equal.
    fn order(&self, other: &Self) -> Ordering;
    fn value(&self, column: usize) -> Option<f64>;
    fn set(&mut self, column: usize, value: Option<f64>);

    /// The row without values.
    fn head(&self) -> Self {
        let mut head = self.clone();
        (0..Self::WIDTH).for_each(|column| head.set(column, None));
        head
    }
}

/// Number of frames after which the writer forgets a row that is absent. Until then it may return,
/// as pairs of victim and aggressor often do, without its head being written again.
const FORGOTTEN_AFTER: u32 = 30;

/// Maximum number of values per row in a file.
pub(crate) const MAX_COLUMNS: usize = 256;
/// Maximum number of rows of a table in a file: eight times a full history's.
const MAX_ROWS: usize = 16 << 10;
/// Maximum size of all heads of a table in a file, bytes.
const MAX_HEADS: usize = 16 << 20;

/// The rows of the previous frame, as the writer and the reader keep them.
pub(crate) struct RowTable<R> {
    slots: Vec<RowSlot<R>>,
    /// Values per row, the first one is whether the row is present.
    width: usize,
}

struct RowSlot<R> {
    head: R,
    codes: Vec<u16>,
    /// Length of the head's JSON, bytes. Only for the reader.
    length: usize,
    /// Number of frames since the row was present. Only for the writer.
    absent: u32,
}

impl<R: Row> RowTable<R> {
    /// A table with this number of columns: those of [`Row`] for a writer, those of the file for a
    /// reader.
    pub(crate) fn new(columns: usize) -> Self {
        Self { slots: Vec::new(), width: columns + 1 }
    }

    fn slot(&self, head: R) -> RowSlot<R> {
        RowSlot { head, codes: vec![0; self.width], length: 0, absent: 0 }
    }

    /// Appends the changes since the previous frame.
    pub(crate) fn encode<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a R>,
        into: &mut Vec<u8>,
    ) -> serde_json::Result<()>
    where
        R: 'a,
    {
        let mut rows: Vec<&R> = rows.into_iter().collect();
        rows.sort_by(|a, b| a.order(b));
        let Merged { slots, rows, removed, inserted } = self.merge(&rows);
        self.slots = slots;
        put_positions(&removed, into);
        put_positions(&inserted, into);
        for at in inserted {
            let head = serde_json::to_vec(&self.slots[at].head)?;
            put(head.len() as u64, into);
            into.extend_from_slice(&head);
        }
        self.encode_values(&rows, into);
        Ok(())
    }

    /// Merges the rows of the frame, in order, with the known ones.
    fn merge<'a>(&mut self, rows: &[&'a R]) -> Merged<'a, R> {
        let mut merged = Merged::default();
        let mut rows = rows.iter().copied().peekable();
        for (at, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            while let Some(new) = rows.next_if(|row| row.order(&slot.head).is_lt()) {
                merged.insert(self.slot(new.head()), new);
            }
            let row = rows.next_if(|row| row.order(&slot.head).is_eq());
            slot.absent = if row.is_some() { 0 } else { slot.absent + 1 };
            if slot.absent > FORGOTTEN_AFTER {
                merged.removed.push(at);
            } else {
                merged.slots.push(slot);
                merged.rows.push(row);
            }
        }
        for new in rows {
            merged.insert(self.slot(new.head()), new);
        }
        merged
    }

    fn encode_values(&mut self, rows: &[Option<&R>], into: &mut Vec<u8>) {
        let mut unchanged = 0;
        for column in 0..self.width {
            for (slot, row) in self.slots.iter_mut().zip(rows) {
                let before = slot.codes[column];
                let code = match (column, row) {
                    (0, row) => u16::from(row.is_some()),
                    (_, None) => before,
                    (_, Some(row)) => pack(row.value(column - 1)),
                };
                if code == before {
                    unchanged += 1;
                    continue;
                }
                put(unchanged, into);
                put(zigzag(i32::from(code) - i32::from(before)), into);
                slot.codes[column] = code;
                unchanged = 0;
            }
        }
        if unchanged > 0 {
            put(unchanged, into);
        }
    }

    /// Applies changes, and returns the rows. `columns` has the place of each column of the file in
    /// [`Row`], if it is known here. `None` if the bytes do not encode such changes.
    pub(crate) fn decode(
        &mut self,
        input: &mut Input<'_>,
        columns: &[Option<usize>],
    ) -> Option<Vec<R>> {
        self.update(input)?;
        let present = self.slots.iter().filter(|slot| slot.codes[0] != 0);
        Some(present.map(|slot| slot.row(columns)).collect())
    }

    /// Applies changes. `None` if the bytes do not encode such changes.
    pub(crate) fn update(&mut self, input: &mut Input<'_>) -> Option<()> {
        let removed = positions(input, self.slots.len())?;
        let mut at = 0;
        let mut gone = removed.iter().peekable();
        self.slots.retain(|_| {
            let is_gone = gone.next_if(|removed| **removed == at).is_some();
            at += 1;
            !is_gone
        });
        self.decode_inserted(input)?;
        self.decode_values(input)
    }

    /// Sum of a value over all present rows; `None` if no row has it. `columns` as in
    /// [`RowTable::decode`].
    pub(crate) fn sum(&self, columns: &[Option<usize>], column: usize) -> Option<f64> {
        let at = 1 + columns.iter().position(|known| *known == Some(column))?;
        let present = self.slots.iter().filter(|slot| slot.codes[0] != 0);
        present.filter_map(|slot| unpack(slot.codes[at])).reduce(|sum, value| sum + value)
    }

    /// Size of the rows in memory, bytes, at most.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.slots.iter().map(|slot| size_of::<RowSlot<R>>() + slot.length);
        rows.sum()
    }

    fn decode_inserted(&mut self, input: &mut Input<'_>) -> Option<()> {
        // Each inserted row has at least a byte.
        let inserted = positions(input, self.slots.len() + input.0.len())?;
        let total = self.slots.len() + inserted.len();
        if total > MAX_ROWS {
            return None;
        }
        let mut old = std::mem::take(&mut self.slots).into_iter();
        let mut inserted = inserted.into_iter().peekable();
        for at in 0..total {
            if inserted.next_if_eq(&at).is_some() {
                let length = input.size()?;
                let head = serde_json::from_slice(input.bytes(length)?).ok()?;
                self.slots.push(RowSlot { length, ..self.slot(head) });
            } else {
                self.slots.push(old.next()?);
            }
        }
        let heads: usize = self.slots.iter().map(|slot| slot.length).sum();
        (heads <= MAX_HEADS).then_some(())
    }

    fn decode_values(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (rows, mut at) = (self.slots.len(), 0);
        let total = rows * self.width;
        while at < total {
            at = input.size()?.checked_add(at).filter(|at| *at <= total)?;
            if at == total {
                break;
            }
            let code = &mut self.slots[at % rows].codes[at / rows];
            *code = u16::try_from(i32::from(*code).checked_add(input.signed()?)?).ok()?;
            at += 1;
        }
        Some(())
    }
}

impl<R: Row> RowSlot<R> {
    fn row(&self, columns: &[Option<usize>]) -> R {
        let mut row = self.head.clone();
        for (&code, &column) in self.codes.iter().skip(1).zip(columns) {
            if let Some(column) = column {
                row.set(column, unpack(code));
            }
        }
        row
    }
}

/// The known rows and those of a frame, in order.
struct Merged<'a, R> {
    slots: Vec<RowSlot<R>>,
    /// The row of each slot in this frame.
    rows: Vec<Option<&'a R>>,
    /// Positions before the merge.
    removed: Vec<usize>,
    /// Positions after the merge.
    inserted: Vec<usize>,
}

impl<R> Default for Merged<'_, R> {
    fn default() -> Self {
        Self { slots: Vec::new(), rows: Vec::new(), removed: Vec::new(), inserted: Vec::new() }
    }
}

impl<'a, R> Merged<'a, R> {
    fn insert(&mut self, slot: RowSlot<R>, row: &'a R) {
        self.inserted.push(self.slots.len());
        self.slots.push(slot);
        self.rows.push(Some(row));
    }
}

/// Appends ascending positions: their number, and the gap before each.
fn put_positions(positions: &[usize], into: &mut Vec<u8>) {
    put(positions.len() as u64, into);
    let mut next = 0;
    for &position in positions {
        put((position - next) as u64, into);
        next = position + 1;
    }
}

/// Ascending positions below `end`.
fn positions(input: &mut Input<'_>, end: usize) -> Option<Vec<usize>> {
    let count = input.size().filter(|count| *count <= end)?;
    let mut next = 0_usize;
    let mut position = || {
        let position = next.checked_add(input.size()?).filter(|position| *position < end)?;
        next = position + 1;
        Some(position)
    };
    (0..count).map(|_| position()).collect()
}
