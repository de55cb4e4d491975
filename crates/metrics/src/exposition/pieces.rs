//! The rows' part of a compressed page, kept in pieces: the samples of one family in one block of
//! rows. A piece is rendered and compressed only if its values differ from those of the last page.

use std::sync::Arc;

use snapshot::{ContainerIdentity, PodIdentity};

use super::gzip::{Deflated, Gzip};
use super::samples::Detail;
use super::writer::{write_header, write_rows, write_values};
use super::{Format, Rows};
use crate::catalogue::{
    ADVICE, CONTAINER, CatalogueTable, Form, INTERFERENCE, Metric, NamedRow, POD, SLOWED, Selection,
};

/// Rows of a block. A compressed piece costs 5 µs in addition to its text, and contains the labels
/// of its first row in full.
const ROWS: usize = 128;

/// Pieces of all tables, in the page's order.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pod: Table<PodIdentity>,
    container: Table<ContainerIdentity>,
    interference: Table<PodIdentity>,
    slowed: Table<PodIdentity>,
    advice: Table<ContainerIdentity>,
}

/// Selection and format of a page, with the buffers in which its pieces are rendered.
pub(super) struct Work<'w> {
    pub(super) shown: &'w Selection,
    pub(super) traced: bool,
    pub(super) format: Format,
    pub(super) text: &'w mut Vec<u8>,
    pub(super) values: &'w mut Vec<u8>,
    pub(super) gzip: &'w mut Gzip,
}

/// Pieces of one table, whose rows have identities `I`.
#[derive(Debug)]
struct Table<I> {
    /// Metadata of each family, by format; empty until the family has a series.
    headers: Vec<[Deflated; 2]>,
    blocks: Vec<Block<I>>,
}

impl<I> Default for Table<I> {
    fn default() -> Self {
        Self { headers: Vec::new(), blocks: Vec::new() }
    }
}

/// Pieces of a block of rows.
#[derive(Debug)]
struct Block<I> {
    /// Identities of the rows. They cannot change, so the same identity has the same labels.
    identities: Vec<Arc<I>>,
    /// One piece per family.
    pieces: Vec<Piece>,
}

impl<I> Default for Block<I> {
    fn default() -> Self {
        Self { identities: Vec::new(), pieces: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Piece {
    /// Everything that the text contains except for the rows' identities.
    values: Vec<u8>,
    series: usize,
    deflated: Deflated,
}

impl Pieces {
    /// Brings the pieces up to date with the rows of a page; returns their number of series.
    pub(super) fn update(&mut self, rows: Rows<'_>, work: &mut Work<'_>) -> usize {
        self.pod.update(POD, CatalogueTable::Pod, rows.pods, work)
            + self.container.update(CONTAINER, CatalogueTable::Container, rows.containers, work)
            + self.interference.update(
                INTERFERENCE,
                CatalogueTable::Interference,
                rows.interference,
                work,
            )
            + self.slowed.update(SLOWED, CatalogueTable::Slowed, rows.slowed, work)
            + self.advice.update(ADVICE, CatalogueTable::Advice, rows.advice, work)
    }

    /// The pieces in the page's order, those without a series left out.
    pub(super) fn shown(&self, format: Format) -> impl Iterator<Item = &Deflated> + Clone {
        self.pod
            .shown(format)
            .chain(self.container.shown(format))
            .chain(self.interference.shown(format))
            .chain(self.slowed.shown(format))
            .chain(self.advice.shown(format))
    }
}

impl<I> Table<I> {
    fn update<R: NamedRow<Identity = I>>(
        &mut self,
        families: &'static [Metric<R>],
        table: CatalogueTable,
        rows: &[R],
        work: &mut Work<'_>,
    ) -> usize {
        let forms = work.shown.of(table);
        self.blocks.resize_with(rows.len().div_ceil(ROWS), Block::default);
        for (block, rows) in self.blocks.iter_mut().zip(rows.chunks(ROWS)) {
            block.update(families, forms, rows, work);
        }
        self.headers.resize_with(families.len(), Default::default);
        let mut all = 0;
        for (index, metric) in families.iter().enumerate() {
            let series: usize = self.blocks.iter().map(|block| block.pieces[index].series).sum();
            let header = &mut self.headers[index][work.format as usize];
            if series > 0 && header.is_empty() {
                work.text.clear();
                write_header(work.text, work.format, &metric.descriptor);
                work.gzip.deflate(work.text, header);
            }
            all += series;
        }
        all
    }

    fn shown(&self, format: Format) -> impl Iterator<Item = &Deflated> + Clone {
        self.headers.iter().enumerate().flat_map(move |(index, headers)| {
            let pieces = self.blocks.iter().map(move |block| &block.pieces[index]);
            let mut pieces = pieces.filter(|piece| piece.series > 0).peekable();
            let header = pieces.peek().map(|_| &headers[format as usize]);
            header.into_iter().chain(pieces.map(|piece| &piece.deflated))
        })
    }
}

impl<I> Block<I> {
    fn update<R: NamedRow<Identity = I>>(
        &mut self,
        families: &'static [Metric<R>],
        forms: &[Form],
        rows: &[R],
        work: &mut Work<'_>,
    ) {
        let is_same = self.has_rows(rows);
        if !is_same {
            self.identities.clear();
            self.identities.extend(rows.iter().map(|row| Arc::clone(row.identity())));
        }
        self.pieces.resize_with(families.len(), Piece::default);
        for ((metric, &form), piece) in families.iter().zip(forms).zip(&mut self.pieces) {
            if form == Form::Absent {
                *piece = Piece::default();
            } else {
                piece.update(metric, Detail { form, traced: work.traced }, rows, is_same, work);
            }
        }
    }

    fn has_rows<R: NamedRow<Identity = I>>(&self, rows: &[R]) -> bool {
        let is_same = |(own, row): (&Arc<I>, &R)| Arc::ptr_eq(own, row.identity());
        self.identities.len() == rows.len() && self.identities.iter().zip(rows).all(is_same)
    }
}

impl Piece {
    fn update<R: NamedRow>(
        &mut self,
        metric: &'static Metric<R>,
        detail: Detail,
        rows: &[R],
        has_rows: bool,
        work: &mut Work<'_>,
    ) {
        work.values.clear();
        write_values(metric, detail, rows, work.values);
        if has_rows && *work.values == self.values {
            return;
        }
        self.values.clone_from(work.values);
        work.text.clear();
        self.series = write_rows(metric, detail, rows, work.text);
        if self.series > 0 {
            work.gzip.deflate(work.text, &mut self.deflated);
        }
    }
}

#[cfg(test)]
mod tests {
    use snapshot::ContainerRow;

    use super::*;
    use crate::catalogue::Preset;

    /// Positions (block, family) of the pieces that a page of these rows rendered.
    fn rendered(
        table: &mut Table<ContainerIdentity>,
        rows: &[ContainerRow],
    ) -> Vec<(usize, usize)> {
        const KEPT: usize = usize::MAX >> 32;
        for piece in table.blocks.iter_mut().flat_map(|block| &mut block.pieces) {
            piece.series = KEPT;
        }
        let mut work = Work {
            shown: &Selection::preset(Preset::Standard),
            traced: false,
            format: Format::Text,
            text: &mut Vec::new(),
            values: &mut Vec::new(),
            gzip: &mut Gzip::new(),
        };
        table.update(CONTAINER, CatalogueTable::Container, rows, &mut work);
        let pieces = table.blocks.iter().enumerate().flat_map(|(block, Block { pieces, .. })| {
            pieces.iter().enumerate().map(move |(family, piece)| ((block, family), piece.series))
        });
        pieces.filter(|(_, series)| (1..KEPT).contains(series)).map(|(at, _)| at).collect()
    }

    #[test]
    fn only_the_families_of_a_container_that_ran_are_rendered() {
        let row = |n: u64| ContainerRow {
            identity: Arc::new(ContainerIdentity::default()),
            live: true,
            user_ns: Some(n),
            system_ns: Some(n),
            pressure_waiting_ns: Some(n),
            ..ContainerRow::default()
        };
        let mut rows: Vec<_> = (0..2 * ROWS as u64 + 1).map(row).collect();
        let mut table = Table::default();
        let all = rendered(&mut table, &rows);
        assert_eq!(all.len(), 3 * 3, "{all:?}");
        assert_eq!(rendered(&mut table, &rows), []);
        rows[ROWS].user_ns = Some(7);
        let usage = CONTAINER.iter().position(|metric| {
            metric.descriptor.name == "cpuwarden_container_cpu_usage_seconds_total"
        });
        assert_eq!(rendered(&mut table, &rows), [(1, usage.unwrap())]);
        rows.truncate(ROWS);
        assert_eq!(rendered(&mut table, &rows), []);
    }
}
