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
        write_header(self.page, self.format, descriptor);
        Header { start, end: self.page.len() }
    }

    /// Removes the metadata if no sample followed.
    pub(super) fn close(&mut self, header: &Header, series: usize) {
        self.series += series;
        if self.page.len() == header.end {
            self.page.truncate(header.start);
        }
    }
}

/// Appends a family's metadata.
pub(super) fn write_header(page: &mut Vec<u8>, format: Format, descriptor: &Descriptor) {
    let name = match format {
        Format::Text => descriptor.name,
        Format::OpenMetrics => descriptor.family(),
    };
    let mut metadata = |keyword, text| {
        for piece in ["# ", keyword, " ", name, " ", text, "\n"] {
            page.extend_from_slice(piece.as_bytes());
        }
    };
    metadata("HELP", descriptor.help);
    metadata("TYPE", descriptor.kind.as_str());
    if let (Format::OpenMetrics, Some(unit)) = (format, descriptor.unit()) {
        metadata("UNIT", unit);
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

/// Appends everything that the text of [`write_rows`] depends on, except for the rows' identities.
/// Equal bytes mean equal text.
pub(super) fn write_values<R: Row>(
    metric: &'static Metric<R>,
    detail: Detail,
    rows: &[R],
    values: &mut Vec<u8>,
) {
    values.extend_from_slice(&[detail.form as u8, u8::from(detail.traced)]);
    let mut samples = Samples::of_values(values, &metric.descriptor, detail);
    for row in rows {
        samples.next_row();
        (metric.read)(row, &mut samples);
    }
}
