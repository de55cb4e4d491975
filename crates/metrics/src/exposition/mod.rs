//! The page for scrapers: the selected families of the catalogue over the rows of one snapshot, in
//! either format.
//!
//! Rendering allocates nothing once the buffer has grown, except for the agent's own metrics, whose
//! number does not depend on the node. It reads only the snapshot, so a scrape never accesses the
//! kernel.

mod cap;
mod format;
mod gather;
mod gzip;
mod number;
mod pieces;
pub(crate) mod samples;
mod writer;

use std::slice;

use snapshot::{ContainerRow, InterferenceRow, NodeSnapshot, PodRow};

pub use format::{Format, accepts_gzip};
pub use gzip::decompress;

use crate::catalogue::{
    ADVICE, CADVISOR, CONTAINER, CadvisorGroup, CatalogueTable, FamilyId, Form, INTERFERENCE, NODE,
    POD, Preset, SLOWED, Selection, Step, steps,
};
use crate::{AdviceRow, AgentMetrics, SlowedRow};
use cap::Cap;
use gzip::{Deflated, Gzip};
use pieces::{Pieces, Work};
use samples::Detail;
use writer::{PageWriter, write_rows};

/// Renders pages into reused buffers.
#[derive(Debug)]
pub struct Exposition {
    selection: Selection,
    /// The selection less what the cap drops.
    shown: Selection,
    cap: Cap,
    /// Forms of the families on the page of cAdvisor's names before the cap.
    cadvisor: [Form; CADVISOR.len()],
    cadvisor_cap: Cap,
    page: Vec<u8>,
    /// Bytes to reserve for a page whose buffer was taken.
    next_length: usize,
    gzip: Gzip,
    /// The node's and the agent's part of a compressed page.
    own: Deflated,
    pieces: Pieces,
    end: Deflated,
    values: Vec<u8>,
}

/// Rows of a page.
#[derive(Clone, Copy)]
struct Rows<'a> {
    pods: &'a [PodRow],
    containers: &'a [ContainerRow],
    interference: &'a [InterferenceRow],
    slowed: &'a [SlowedRow],
    advice: &'a [AdviceRow],
}

const NO_ROWS: Rows<'_> =
    Rows { pods: &[], containers: &[], interference: &[], slowed: &[], advice: &[] };

impl Exposition {
    /// Creates an exposition of all families with at most `max_series` series per page, as
    /// Prometheus counts them (each bucket is one). The agent's and the node's own series, some
    /// dozens and a few per CPU, are never dropped.
    #[must_use]
    pub fn new(max_series: usize) -> Self {
        Self::with_selection(max_series, Selection::preset(Preset::Full))
    }

    /// Creates an exposition of the selected families, as [`Exposition::new`] does of all.
    #[must_use]
    pub fn with_selection(max_series: usize, selection: Selection) -> Self {
        // Any table serves as a placeholder: this page has only one.
        let cadvisor = (0..CADVISOR.len())
            .rev()
            .map(|index| FamilyId { table: CatalogueTable::Container, index });
        let cadvisor = cadvisor.map(|family| Step { family, to: Form::Absent }).collect();
        Self {
            cap: Cap::new(max_series, steps(&selection)),
            cadvisor: [Form::Whole; CADVISOR.len()],
            cadvisor_cap: Cap::new(max_series, cadvisor),
            shown: selection.clone(),
            selection,
            page: Vec::new(),
            next_length: 0,
            gzip: Gzip::new(),
            own: Deflated::default(),
            pieces: Pieces::default(),
            end: Deflated::default(),
            values: Vec::new(),
        }
    }

    /// Limits the page of cAdvisor's names, which has all of its groups otherwise.
    #[must_use]
    pub fn with_cadvisor_groups(mut self, groups: &[CadvisorGroup]) -> Self {
        for (form, metric) in self.cadvisor.iter_mut().zip(CADVISOR) {
            if !groups.iter().any(|group| group.contains(&metric.descriptor)) {
                *form = Form::Absent;
            }
        }
        self
    }

    /// Renders the page of one snapshot, valid until the next call.
    ///
    /// Above the limit whole families are dropped, in the order of the reference, and the other
    /// series of all containers stay. Dropped series are added to `cpuwarden_series_dropped_total`
    /// on the same page.
    pub fn render(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
    ) -> &[u8] {
        self.within_cap(snapshot, agent, format, Self::write);
        &self.page
    }

    /// Renders the same page as one gzip member at level 1, valid until the next call: only the
    /// pieces that have changed since the last one.
    pub fn render_compressed(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
    ) -> &[u8] {
        self.within_cap(snapshot, agent, format, Self::update_pieces);
        self.page.clear();
        self.finish(format);
        self.gzip.deflate(&self.page, &mut self.end);
        let pieces = self.pieces.shown(format);
        self.gzip.join(std::iter::once(&self.own).chain(pieces).chain([&self.end]))
    }

    /// Writes a page, and again with fewer families if it exceeds the limit.
    fn within_cap(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
        write: fn(&mut Self, &NodeSnapshot, &AgentMetrics, Format, Rows<'_>) -> usize,
    ) {
        let (advice, slowed) = (agent.advice().rows(), agent.slowed().rows());
        let rows = Rows {
            pods: &snapshot.pods,
            containers: &snapshot.containers,
            interference: &snapshot.waits.interference,
            slowed: &slowed,
            advice: &advice,
        };
        // Above the cap at the last page, this page is probably above it too.
        let is_within = self.cap.taken().is_empty() && {
            let series = write(self, snapshot, agent, format, rows);
            self.cap.admits(series)
        };
        if !is_within {
            self.fit(snapshot, agent, rows);
            write(self, snapshot, agent, format, rows);
        }
    }

    /// Renders the page with cAdvisor's names, valid until the next call; drops families like
    /// [`Exposition::render`].
    pub fn render_cadvisor(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
    ) -> &[u8] {
        let (rows, page) = (&snapshot.containers, &mut self.page);
        let mut count = |step: &Step, form| {
            page.clear();
            if form == Form::Absent {
                0
            } else {
                write_rows(&CADVISOR[step.family.index], Detail::WHOLE, rows, page)
            }
        };
        let mut forms = self.cadvisor;
        let form = |step: &Step| self.cadvisor[step.family.index];
        let all = self.cadvisor_cap.all().iter().map(|step| count(step, form(step))).sum();
        let dropped = self.cadvisor_cap.fit(all, form, count);
        agent.series_dropped.inc_by(dropped as u64);
        self.cadvisor_cap.taken().iter().for_each(|step| forms[step.family.index] = step.to);
        self.page.clear();
        PageWriter { page: &mut self.page, format, traced: false, series: 0, limit: usize::MAX }
            .families(CADVISOR, &forms, rows);
        self.finish(format);
        &self.page
    }

    /// Takes the page rendered last; the next one gets a new buffer.
    pub fn take_page(&mut self) -> Vec<u8> {
        let length = self.page.len();
        let page = std::mem::take(&mut self.page);
        self.next_length = length;
        page
    }

    /// Takes the page compressed last, without a copy.
    pub fn take_compressed(&mut self) -> Vec<u8> {
        self.gzip.take()
    }

    /// Compresses a page as one gzip member at level 1, valid until the next call.
    pub fn compress(&mut self, page: &[u8]) -> &[u8] {
        self.gzip.compress(page)
    }

    /// Writes a page of `rows` and returns its number of series. Stops writing above the limit.
    fn write(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
        rows: Rows<'_>,
    ) -> usize {
        self.page.clear();
        self.page.reserve(self.next_length);
        let series = self.write_own(snapshot, agent, format);
        let (page, traced, limit) = (&mut self.page, is_traced(snapshot), self.cap.max_series());
        let mut writer = PageWriter { page, format, traced, series, limit };
        writer.families(POD, self.shown.of(CatalogueTable::Pod), rows.pods);
        writer.families(CONTAINER, self.shown.of(CatalogueTable::Container), rows.containers);
        writer.families(
            INTERFERENCE,
            self.shown.of(CatalogueTable::Interference),
            rows.interference,
        );
        writer.families(SLOWED, self.shown.of(CatalogueTable::Slowed), rows.slowed);
        writer.families(ADVICE, self.shown.of(CatalogueTable::Advice), rows.advice);
        let series = writer.series;
        self.finish(format);
        series
    }

    /// Appends the families of the agent and of the node; returns their number of series.
    fn write_own(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
    ) -> usize {
        let (page, traced) = (&mut self.page, is_traced(snapshot));
        let mut writer = PageWriter { page, format, traced, series: 0, limit: usize::MAX };
        gather::write(&mut writer, agent, self.shown.of(CatalogueTable::Agent));
        writer.families(NODE, self.shown.of(CatalogueTable::Node), slice::from_ref(snapshot));
        writer.series
    }

    /// Brings the pieces up to date with a page; returns its number of series.
    fn update_pieces(
        &mut self,
        snapshot: &NodeSnapshot,
        agent: &AgentMetrics,
        format: Format,
        rows: Rows<'_>,
    ) -> usize {
        self.page.clear();
        let series = self.write_own(snapshot, agent, format);
        self.gzip.deflate(&self.page, &mut self.own);
        let mut work = Work {
            shown: &self.shown,
            traced: is_traced(snapshot),
            format,
            text: &mut self.page,
            values: &mut self.values,
            gzip: &mut self.gzip,
        };
        series + self.pieces.update(rows, &mut work)
    }

    fn finish(&mut self, format: Format) {
        if format == Format::OpenMetrics {
            self.page.extend_from_slice(b"# EOF\n");
        }
    }

    /// Chooses the families that fit the limit; counts the series of the others as dropped.
    fn fit(&mut self, snapshot: &NodeSnapshot, agent: &AgentMetrics, rows: Rows<'_>) {
        let mut series = self.write(snapshot, agent, Format::Text, NO_ROWS);
        let (selection, page, traced) = (&self.selection, &mut self.page, is_traced(snapshot));
        let mut count = |family, form| rows.series(family, Detail { form, traced }, page);
        for table in CatalogueTable::OF_ROWS {
            let forms = selection.of(table).iter().enumerate();
            series +=
                forms.map(|(index, &form)| count(FamilyId { table, index }, form)).sum::<usize>();
        }
        let form = |step: &Step| selection.form(step.family);
        let dropped = self.cap.fit(series, form, |step, form| count(step.family, form));
        agent.series_dropped.inc_by(dropped as u64);
        self.shown.copy_from(&self.selection);
        self.cap.taken().iter().for_each(|step| self.shown.set(step.family, step.to));
    }
}

fn is_traced(snapshot: &NodeSnapshot) -> bool {
    snapshot.waits.trace.is_some()
}

impl Rows<'_> {
    /// Number of series of a family. Overwrites `scratch`.
    fn series(
        &self,
        FamilyId { table, index }: FamilyId,
        detail: Detail,
        scratch: &mut Vec<u8>,
    ) -> usize {
        scratch.clear();
        if detail.form == Form::Absent {
            return 0;
        }
        match table {
            CatalogueTable::Container => {
                write_rows(&CONTAINER[index], detail, self.containers, scratch)
            }
            CatalogueTable::Advice => write_rows(&ADVICE[index], detail, self.advice, scratch),
            CatalogueTable::Pod => write_rows(&POD[index], detail, self.pods, scratch),
            CatalogueTable::Slowed => write_rows(&SLOWED[index], detail, self.slowed, scratch),
            CatalogueTable::Interference => {
                write_rows(&INTERFERENCE[index], detail, self.interference, scratch)
            }
            CatalogueTable::Node | CatalogueTable::Agent => 0,
        }
    }
}
