//! Writer of a page: metadata and samples of family after family.

use super::Format;
use super::samples::{Detail, Samples};
use crate::catalogue::{Descriptor, Form, Metric, Row};

/// A page being written.
pub(super) struct PageWriter<'p> {
    pub(super) page: &'p mut Vec<u8>,
    pub(super) format: Format,
    /// Whether the node's waits are traced.
    pub(super) traced: bool,
    /// Number of series written so far.
    pub(super) series: usize,
    /// Number of series above which no further family is started.
    pub(super) limit: usize,
}

/// Position of a family's metadata on the page.
pub(super) struct Header {
    start: usize,
    end: usize,
}

impl PageWriter<'_> {
    /// Writes the families of a table, each in its form.
    pub(super) fn families<R: Row>(
        &mut self,
        table: &'static [Metric<R>],
        forms: &[Form],
        rows: &[R],
    ) {
        for (metric, &form) in table.iter().zip(forms) {
            if self.series > self.limit {
                return;
            }
            if form != Form::Absent {
                let header = self.open(&metric.descriptor);
                let series =
                    write_rows(metric, Detail { form, traced: self.traced }, rows, self.page);
                self.close(&header, series);
            }
        }
    }

    pub(super) fn open(&mut self, descriptor: &Descriptor) -> Header {
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
    pub(super) fn close(&mut self, header: &Header, series: usize) {
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

/// Appends a family's samples of all rows; returns their number.
pub(super) fn write_rows<R: Row>(
    metric: &'static Metric<R>,
    detail: Detail,
    rows: &[R],
    page: &mut Vec<u8>,
) -> usize {
    let mut samples = Samples::new(page, &metric.descriptor, detail);
    for row in rows {
        samples.set_row(row.labels());
        (metric.read)(row, &mut samples);
    }
    samples.series()
}
