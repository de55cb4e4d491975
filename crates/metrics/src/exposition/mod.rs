//! The page for scrapers: the catalogue's families over the rows of one snapshot, in either format.
//!
//! Rendering allocates nothing once the buffer has grown, except for the agent's own metrics, whose number does not
//! depend on the node. It reads only the snapshot, so a scrape never accesses the kernel.

mod format;
mod gather;
mod gzip;
mod number;
pub(crate) mod samples;

use std::slice;

use snapshot::{ContainerRow, InterferenceRow, NodeSnapshot, PodRow};

pub use format::{Format, accepts_gzip};

use crate::catalogue::{ADVICE, CADVISOR, CONTAINER, Descriptor, INTERFERENCE, Metric, NODE, POD, Row};
use crate::{AdviceRow, AgentMetrics};
use gzip::Gzip;
use samples::Samples;

/// Renders pages into reused buffers.
#[derive(Debug)]
pub struct Exposition {
    max_series: usize,
    page: Vec<u8>,
    /// Bytes to reserve for a page whose buffer was taken.
    next_length: usize,
    gzip: Gzip,
}

/// Rows of a page.
#[derive(Clone, Copy)]
struct Rows<'a> {
    pods: &'a [PodRow],
    containers: &'a [ContainerRow],
    interference: &'a [InterferenceRow],
    advice: &'a [AdviceRow],
}

const NO_ROWS: Rows<'_> = Rows { pods: &[], containers: &[], interference: &[], advice: &[] };

impl Exposition {
    /// Creates an exposition with at most `max_series` series per page, as Prometheus counts them (each bucket is one).
    /// The agent's and the node's own series, some dozens and a few per CPU, are never dropped.
    #[must_use]
    pub fn new(max_series: usize) -> Self {
        Self { max_series, page: Vec::new(), next_length: 0, gzip: Gzip::new() }
    }

    /// Renders the page of one snapshot, valid until the next call.
    ///
    /// Above the limit whole rows are dropped. Pods get the available room first, then containers, then interference,
    /// then advice, each in the snapshot's order, so that the same rows stay from page to page. Dropped series are
    /// added to `cpuwarden_series_dropped_total` on the same page.
    pub fn render(&mut self, snapshot: &NodeSnapshot, agent: &AgentMetrics, format: Format) -> &[u8] {
        let advice = agent.advice().rows();
        let all = Rows {
            pods: &snapshot.pods,
            containers: &snapshot.containers,
            interference: &snapshot.waits.interference,
            advice: &advice,
        };
        if self.write(snapshot, agent, format, all) > self.max_series {
            let kept = self.cut(snapshot, agent, all);
            self.write(snapshot, agent, format, kept);
        }
        &self.page
    }

    /// Renders the page with cAdvisor's names, valid until the next call; drops rows like [`Exposition::render`].
    pub fn render_cadvisor(&mut self, snapshot: &NodeSnapshot, agent: &AgentMetrics, format: Format) -> &[u8] {
        let (mut room, mut dropped) = (self.max_series, 0);
        let containers = fitting(CADVISOR, &snapshot.containers, &mut room, &mut dropped, &mut self.page);
        agent.series_dropped.inc_by(dropped as u64);
        self.page.clear();
        PageWriter { page: &mut self.page, format, series: 0, limit: usize::MAX }.families(CADVISOR, containers);
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

    /// Compresses the page rendered last as one gzip member at level 1, valid until the next call.
    pub fn compressed(&mut self) -> &[u8] {
        self.gzip.compress(&self.page)
    }

    /// Compresses a page as one gzip member at level 1, valid until the next call.
    pub fn compress(&mut self, page: &[u8]) -> &[u8] {
        self.gzip.compress(page)
    }

    /// Writes a page of `rows` and returns its number of series. Stops writing above the limit.
    fn write(&mut self, snapshot: &NodeSnapshot, agent: &AgentMetrics, format: Format, rows: Rows<'_>) -> usize {
        self.page.clear();
        self.page.reserve(self.next_length);
        let mut writer = PageWriter { page: &mut self.page, format, series: 0, limit: usize::MAX };
        gather::write(&mut writer, agent);
        writer.families(NODE, slice::from_ref(snapshot));
        writer.limit = self.max_series;
        writer.families(POD, rows.pods);
        writer.families(CONTAINER, rows.containers);
        writer.families(INTERFERENCE, rows.interference);
        writer.families(ADVICE, rows.advice);
        let series = writer.series;
        self.finish(format);
        series
    }

    fn finish(&mut self, format: Format) {
        if format == Format::OpenMetrics {
            self.page.extend_from_slice(b"# EOF\n");
        }
    }

    /// Rows that fit the limit; counts the series of the others as dropped.
    fn cut<'a>(&mut self, snapshot: &NodeSnapshot, agent: &AgentMetrics, all: Rows<'a>) -> Rows<'a> {
        let fixed = self.write(snapshot, agent, Format::Text, NO_ROWS);
        let mut room = self.max_series.saturating_sub(fixed);
        let mut dropped = 0;
        let pods = fitting(POD, all.pods, &mut room, &mut dropped, &mut self.page);
        let containers = fitting(CONTAINER, all.containers, &mut room, &mut dropped, &mut self.page);
        let interference = fitting(INTERFERENCE, all.interference, &mut room, &mut dropped, &mut self.page);
        let advice = fitting(ADVICE, all.advice, &mut room, &mut dropped, &mut self.page);
        agent.series_dropped.inc_by(dropped as u64);
        Rows { pods, containers, interference, advice }
    }
}

/// The longest prefix of `rows` whose series fit into `room`, which is reduced by them. After the first row that does
/// not fit, no further row is taken. Overwrites `scratch`.
fn fitting<'a, R: Row>(
    table: &'static [Metric<R>],
    rows: &'a [R],
    room: &mut usize,
    dropped: &mut usize,
    scratch: &mut Vec<u8>,
) -> &'a [R] {
    let mut kept = 0;
    for row in rows {
        let series = series_of(table, row, scratch);
        if series <= *room {
            *room -= series;
            kept += 1;
        } else {
            *room = 0;
            *dropped += series;
        }
    }
    &rows[..kept]
}

fn series_of<R: Row>(table: &'static [Metric<R>], row: &R, scratch: &mut Vec<u8>) -> usize {
    scratch.clear();
    let mut series = 0;
    for metric in table {
        let mut samples = Samples::new(scratch, &metric.descriptor, row.labels());
        (metric.read)(row, &mut samples);
        series += samples.series();
    }
    series
}

/// A page being written.
struct PageWriter<'p> {
    page: &'p mut Vec<u8>,
    format: Format,
    /// Number of series written so far.
    series: usize,
    /// Number of series above which no further family is started.
    limit: usize,
}

/// Position of a family's metadata on the page.
struct Header {
    start: usize,
    end: usize,
}

impl PageWriter<'_> {
    fn families<R: Row>(&mut self, table: &'static [Metric<R>], rows: &[R]) {
        for Metric { descriptor, read } in table {
            if self.series > self.limit {
                return;
            }
            let header = self.open(descriptor);
            let mut samples = Samples::new(self.page, descriptor, "");
            for row in rows {
                samples.set_row(row.labels());
                read(row, &mut samples);
            }
            let series = samples.series();
            self.close(&header, series);
        }
    }

    fn open(&mut self, descriptor: &Descriptor) -> Header {
        let start = self.page.len();
        let name = match self.format {
            Format::Text => descriptor.name,
            Format::OpenMetrics => descriptor.family(),
        };
        self.metadata("HELP", name, descriptor.help);
        self.metadata("TYPE", name, descriptor.kind.as_str());
        if let (Format::OpenMetrics, Some(unit)) = (self.format, descriptor.unit()) {
            self.metadata("UNIT", name, unit);
        }
        Header { start, end: self.page.len() }
    }

    /// Removes the metadata if no sample followed.
    fn close(&mut self, header: &Header, series: usize) {
        self.series += series;
        if self.page.len() == header.end {
            self.page.truncate(header.start);
        }
    }

    fn metadata(&mut self, keyword: &str, name: &str, text: &str) {
        for piece in ["# ", keyword, " ", name, " ", text, "\n"] {
            self.page.extend_from_slice(piece.as_bytes());
        }
    }
}
