//! Sample lines of one metric family: the row's cached labels, the metric's own labels, and the
//! value. Hot loop of a page.

use snapshot::labels::escape;

use super::number;
use crate::catalogue::{Descriptor, Form};

/// Receives the samples of one row from a metric's read function.
#[derive(Debug)]
pub(crate) struct Samples<'a> {
    page: &'a mut Vec<u8>,
    /// Whether the page consists of the values themselves: see [`tag`].
    only_values: bool,
    descriptor: &'static Descriptor,
    /// The row's labels, escaped, without braces.
    row_labels: &'a str,
    detail: Detail,
    /// Number of series written so far.
    series: usize,
}

/// Amount of detail that a read function writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detail {
    pub(crate) form: Form,
    /// Whether the node's waits are traced.
    pub(crate) traced: bool,
}

impl Detail {
    /// Everything.
    pub(crate) const WHOLE: Self = Self { form: Form::Whole, traced: false };
}

/// Value of one of the metric's own labels.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Label<'v> {
    Text(&'v str),
    /// A text of the row's identity: the same as long as the row has the same one.
    Identity(&'v str),
    /// Path of a cgroup below the mount, which is written with a leading slash.
    Cgroup(&'v str),
    Id(u32),
    /// The label is omitted; a query treats it as empty.
    Absent,
}

impl<'v> From<&'v str> for Label<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Label<'_> {
    fn from(id: u32) -> Self {
        Self::Id(id)
    }
}

impl From<Option<u32>> for Label<'_> {
    fn from(id: Option<u32>) -> Self {
        id.map_or(Self::Absent, Self::Id)
    }
}

/// Upper bound of a bucket.
pub(crate) trait Bound {
    /// Appends the value of the label `le`.
    fn write(self, page: &mut Vec<u8>);
}

impl Bound for f64 {
    fn write(self, page: &mut Vec<u8>) {
        number::bound(page, self);
    }
}

/// Value of the label `le`, formatted once: half of a page's lines are buckets.
#[derive(Debug)]
pub(crate) struct BoundText(Vec<u8>);

impl BoundText {
    pub(crate) fn new(bound: f64) -> Self {
        let mut text = Vec::new();
        number::bound(&mut text, bound);
        Self(text)
    }
}

impl Bound for &BoundText {
    fn write(self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.0);
    }
}

/// A sample with its labels, whose value is still missing.
#[must_use]
pub(crate) struct Sample<'s, 'a, const N: usize> {
    samples: &'s mut Samples<'a>,
    labels: [Label<'s>; N],
    /// Further labels of the row's identity, escaped, without braces.
    more: &'s str,
}

impl<'a> Samples<'a> {
    pub(crate) fn new(
        page: &'a mut Vec<u8>,
        descriptor: &'static Descriptor,
        detail: Detail,
    ) -> Self {
        Self { page, only_values: false, descriptor, row_labels: "", detail, series: 0 }
    }

    /// Receives the values themselves, not their text: several times faster.
    pub(super) fn of_values(
        values: &'a mut Vec<u8>,
        descriptor: &'static Descriptor,
        detail: Detail,
    ) -> Self {
        Self { only_values: true, ..Self::new(values, descriptor, detail) }
    }

    /// Whether the family has all its series on this page.
    pub(crate) fn is_whole(&self) -> bool {
        self.detail.form == Form::Whole
    }

    /// Whether the node's waits are traced.
    pub(crate) fn is_traced(&self) -> bool {
        self.detail.traced
    }

    /// Continues with the next row, whose labels are escaped and without braces.
    pub(crate) fn set_row(&mut self, row_labels: &'a str) {
        self.row_labels = row_labels;
    }

    /// Continues with the next row of values.
    pub(super) fn next_row(&mut self) {
        self.page.push(tag::ROW);
    }

    pub(crate) fn series(&self) -> usize {
        self.series
    }

    /// Starts a sample with the metric's own labels, in the order of its descriptor.
    pub(crate) fn with<'s, L, const N: usize>(&'s mut self, labels: [L; N]) -> Sample<'s, 'a, N>
    where
        L: Into<Label<'s>>,
    {
        debug_assert_eq!(N, self.descriptor.labels.len(), "labels of {}", self.descriptor.name);
        Sample { samples: self, labels: labels.map(Into::into), more: "" }
    }

    /// Writes an exact integer.
    pub(crate) fn count(&mut self, value: Option<u64>) {
        self.unlabeled().count(value);
    }

    /// Writes nanoseconds as exact seconds.
    pub(crate) fn seconds(&mut self, ns: Option<u64>) {
        self.unlabeled().seconds(ns);
    }

    /// Writes a float in its shortest form.
    pub(crate) fn number(&mut self, value: Option<f64>) {
        self.unlabeled().number(value);
    }

    /// Writes a histogram from counts per bucket; counts beyond the last bound are of values above
    /// it.
    pub(crate) fn histogram(&mut self, bounds: &[BoundText], counts: &[u64], sum: f64) {
        let mut cumulative = 0;
        let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
            cumulative += count;
            (bound, cumulative)
        });
        self.cumulative_histogram(buckets, counts.iter().sum(), sum);
    }

    /// Writes a histogram from finite bounds, each with the number of values at or below it, and
    /// the total count and sum.
    pub(crate) fn cumulative_histogram<B: Bound>(
        &mut self,
        buckets: impl Iterator<Item = (B, u64)>,
        count: u64,
        sum: f64,
    ) {
        if self.only_values {
            for (_, cumulative) in buckets {
                self.value(cumulative);
            }
            self.value(count);
            self.value(sum.to_bits());
            return;
        }
        let start = self.page.len();
        self.name("_bucket");
        self.page.push(b'{');
        if !self.row_labels.is_empty() {
            self.page.extend_from_slice(self.row_labels.as_bytes());
            self.page.push(b',');
        }
        self.page.extend_from_slice(b"le=\"");
        let prefix = start..self.page.len();
        for (bound, cumulative) in buckets {
            bound.write(self.page);
            self.page.extend_from_slice(b"\"} ");
            number::integer(self.page, cumulative);
            self.page.push(b'\n');
            self.page.extend_from_within(prefix.clone());
            self.series += 1;
        }
        self.page.extend_from_slice(b"+Inf\"} ");
        number::integer(self.page, count);
        self.end_line();
        self.start_line("_sum", &[], "");
        number::float(self.page, sum);
        self.end_line();
        self.start_line("_count", &[], "");
        number::integer(self.page, count);
        self.end_line();
    }

    fn unlabeled(&mut self) -> Sample<'_, 'a, 0> {
        Sample { samples: self, labels: [], more: "" }
    }

    fn name(&mut self, suffix: &str) {
        self.page.extend_from_slice(self.descriptor.name.as_bytes());
        self.page.extend_from_slice(suffix.as_bytes());
    }

    fn start_line(&mut self, suffix: &str, labels: &[Label<'_>], more: &str) {
        self.name(suffix);
        let mut separator = b'{';
        if !self.row_labels.is_empty() {
            self.page.push(separator);
            self.page.extend_from_slice(self.row_labels.as_bytes());
            separator = b',';
        }
        for (name, value) in self.descriptor.labels.iter().zip(labels) {
            if matches!(value, Label::Absent) {
                continue;
            }
            self.page.push(separator);
            separator = b',';
            self.label(name, *value);
        }
        if !more.is_empty() {
            self.page.push(separator);
            separator = b',';
            self.page.extend_from_slice(more.as_bytes());
        }
        self.page.extend_from_slice(if separator == b',' { b"} " } else { b" " });
    }

    fn label(&mut self, name: &str, value: Label<'_>) {
        self.page.extend_from_slice(name.as_bytes());
        self.page.extend_from_slice(b"=\"");
        if let Label::Cgroup(_) = value {
            self.page.push(b'/');
        }
        match value {
            Label::Text(text) | Label::Identity(text) | Label::Cgroup(text) => {
                escape(text, |piece| self.page.extend_from_slice(piece.as_bytes()));
            }
            Label::Id(id) => number::integer(self.page, u64::from(id)),
            Label::Absent => {}
        }
        self.page.push(b'"');
    }

    fn end_line(&mut self) {
        self.page.push(b'\n');
        self.series += 1;
    }

    fn value(&mut self, bits: u64) {
        self.page.push(tag::VALUE);
        self.page.extend_from_slice(&bits.to_le_bytes());
    }

    fn label_value(&mut self, value: Label<'_>) {
        match value {
            Label::Text(text) | Label::Cgroup(text) => {
                self.page.push(tag::TEXT);
                self.page.extend_from_slice(text.as_bytes());
                // No text contains this byte.
                self.page.push(0xff);
            }
            Label::Id(id) => {
                self.page.push(tag::ID);
                self.page.extend_from_slice(&id.to_le_bytes());
            }
            Label::Identity(_) => self.page.push(tag::OF_IDENTITY),
            Label::Absent => self.page.push(tag::NO_LABEL),
        }
    }
}

/// First bytes of the parts of a sequence of values. Each part ends by itself, so that no two
/// sequences are the same bytes.
mod tag {
    /// The next row.
    pub(super) const ROW: u8 = 0;
    /// A sample without a value, which has no line.
    pub(super) const NO_VALUE: u8 = 1;
    /// Eight bytes: a value, after its labels.
    pub(super) const VALUE: u8 = 2;
    /// A label up to the byte 0xff.
    pub(super) const TEXT: u8 = 3;
    /// A label of four bytes.
    pub(super) const ID: u8 = 4;
    /// A label whose value is in the row's identity.
    pub(super) const OF_IDENTITY: u8 = 5;
    /// A label that is left out.
    pub(super) const NO_LABEL: u8 = 6;
}

/// A value of a sample.
trait Value {
    fn bits(self) -> u64;
}

impl Value for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Value for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl<'s, const N: usize> Sample<'s, '_, N> {
    /// Adds labels of the row's identity, escaped and without braces.
    pub(crate) fn and(self, more: &'s str) -> Self {
        Self { more, ..self }
    }

    /// Writes an exact integer.
    pub(crate) fn count(self, value: Option<u64>) {
        self.write(value, number::integer);
    }

    /// Writes nanoseconds as exact seconds.
    pub(crate) fn seconds(self, ns: Option<u64>) {
        self.write(ns, number::seconds);
    }

    /// Writes a float in its shortest form.
    pub(crate) fn number(self, value: Option<f64>) {
        self.write(value, number::float);
    }

    fn write<T: Value>(self, value: Option<T>, write: fn(&mut Vec<u8>, T)) {
        if self.samples.only_values {
            let Some(value) = value else { return self.samples.page.push(tag::NO_VALUE) };
            self.labels.iter().for_each(|&label| self.samples.label_value(label));
            return self.samples.value(value.bits());
        }
        let Some(value) = value else { return };
        self.samples.start_line("", &self.labels, self.more);
        write(self.samples.page, value);
        self.samples.end_line();
    }
}
