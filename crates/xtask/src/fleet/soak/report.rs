//! The report of a soak: a table of means, and whether a figure has grown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::super::FleetError;

/// Names of the figures that must stay.
const STAYING: [&str; 5] = ["resident KiB", "kernel KiB", "descriptors", "series", "recording KiB"];
/// Number of lines of the table.
const LINES: usize = 20;
/// Number of readings in a line: a single moment varies with what has just started.
const PER_LINE: usize = 12;
/// Number of readings in a run.
pub(super) const READINGS: u32 = (LINES * PER_LINE) as u32;
/// Time after which the agent has what it keeps, seconds: its history is ten minutes long.
const WARM: u64 = 630;
/// Growth of a figure from the first quarter after that to the last one, at which the run fails.
const MOST_GROWTH: f64 = 1.1;

type Staying = [f64; STAYING.len()];

/// Figures of the agent at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Seconds since the start.
    pub seconds: u64,
    /// Ticks of the sampler.
    pub ticks: u64,
    /// Container starts.
    pub starts: u64,
    /// As in [`STAYING`]; NaN if not known.
    staying: Staying,
}

impl Reading {
    /// Reads the rest from a page of the agent's metrics and from the files of its recording.
    #[must_use]
    pub fn new(
        [seconds, ticks, starts]: [u64; 3],
        page: &str,
        kernel_kib: Option<f64>,
        recording: &Path,
    ) -> Self {
        let staying = [
            value(page, "process_resident_memory_bytes") / 1024.0,
            kernel_kib.unwrap_or(f64::NAN),
            value(page, "process_open_fds"),
            page.lines().filter(|line| !line.starts_with('#')).count() as f64,
            size_kib(recording).unwrap_or(f64::NAN),
        ];
        Self { seconds, ticks, starts, staying }
    }
}

/// Value of a metric without labels; NaN if it is not on the page.
pub(super) fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}

/// Size of the files of a directory, KiB.
fn size_kib(directory: &Path) -> Option<f64> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len());
    Some(sizes.sum::<u64>() as f64 / 1024.0)
}

/// The readings so far. Each line is printed when it is complete, also for a run that is ended
/// before its time.
#[derive(Debug)]
pub struct Report {
    text: String,
    readings: Vec<Reading>,
    /// Size that the recording may have, KiB.
    recording_limit: f64,
}

impl Report {
    /// Prints the head of the table.
    #[must_use]
    pub fn new(about: &str, recording_limit: u64) -> Self {
        let names = STAYING.map(|name| format!(" {name:>13}")).concat();
        let head = format!("{about}\n\n{:>8} {:>9} {:>9}{names}\n", "seconds", "ticks", "starts");
        print!("{head}");
        let recording_limit = recording_limit as f64 / 1024.0;
        Self { text: head, readings: Vec::new(), recording_limit }
    }

    /// Number of readings so far.
    #[must_use]
    pub fn readings(&self) -> usize {
        self.readings.len()
    }

    /// Adds a reading.
    pub fn add(&mut self, reading: Reading) {
        self.readings.push(reading);
        if self.readings.len().is_multiple_of(PER_LINE) {
            let last = &self.readings[self.readings.len() - PER_LINE..];
            let Reading { seconds, ticks, starts, .. } = reading;
            let figures = columns(of_each(last, mean));
            self.print(&format!("{seconds:>8} {ticks:>9} {starts:>9}{figures}\n"));
        }
    }

    /// Prints the end of the table. Returns all of it.
    ///
    /// # Errors
    /// A figure has grown.
    pub fn end(mut self) -> (String, Result<(), FleetError>) {
        let Some([first, last]) = quarters(&self.readings) else { return (self.text, Ok(())) };
        let rows = [
            ("first quarter, mean", of_each(first, mean)),
            ("last quarter, mean", of_each(last, mean)),
            ("first quarter, lowest", of_each(first, lowest)),
            ("last quarter, lowest", of_each(last, lowest)),
        ];
        let rows = rows.map(|(name, figures)| format!("{name:<28}{}\n", columns(figures))).concat();
        let grown = self.grown(first, last);
        self.print(&format!("\nAfter {WARM} s:\n{rows}"));
        let what = grown.map(|what| FleetError::Grown { what: what.to_owned() });
        (self.text, what.map_or(Ok(()), Err))
    }

    /// The first figure that is larger in the last quarter than in the first, by its mean and by its
    /// lowest reading. What leaks is in every reading; what varies with the churn is not.
    fn grown(&self, first: &[Reading], last: &[Reading]) -> Option<&'static str> {
        // A recording grows until it is full.
        let may_have = [0.0, 0.0, 0.0, 0.0, self.recording_limit];
        let is_larger = |at: usize, of: fn(&[f64]) -> f64| {
            let [first, last] = [first, last].map(|readings| of_each(readings, of)[at]);
            last > MOST_GROWTH * first.max(may_have[at])
        };
        let at = (0..STAYING.len()).find(|&at| is_larger(at, mean) && is_larger(at, lowest))?;
        Some(STAYING[at])
    }

    fn print(&mut self, text: &str) {
        print!("{text}");
        self.text += text;
    }
}

/// The first and the last quarter of the readings after the start; `None` if there are none.
fn quarters(readings: &[Reading]) -> Option<[&[Reading]; 2]> {
    let warm = &readings[readings.iter().position(|reading| reading.seconds >= WARM)?..];
    let quarter = warm.len().div_ceil(4);
    Some([&warm[..quarter], &warm[warm.len() - quarter..]])
}

/// A statistic of each figure, over the readings that have it.
fn of_each(readings: &[Reading], statistic: fn(&[f64]) -> f64) -> Staying {
    let mut of = [f64::NAN; STAYING.len()];
    for (at, of) in of.iter_mut().enumerate() {
        let values = readings.iter().map(|reading| reading.staying[at]);
        *of = statistic(&values.filter(|value| !value.is_nan()).collect::<Vec<_>>());
    }
    of
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

fn columns(figures: Staying) -> String {
    figures.iter().fold(String::new(), |mut text, figure| {
        // Writing to a string cannot fail.
        let _ = write!(text, " {figure:>13.0}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of readings with these resident sizes, 300 s apart; the first is at 0 s.
    fn report(sizes: &[f64], descriptors: &[f64], recording: f64) -> Report {
        let mut report = Report::new("test", 1 << 20);
        for (at, &size) in sizes.iter().enumerate() {
            let fds = descriptors[at % descriptors.len()];
            let staying = [size, f64::NAN, fds, 1000.0, recording * (at + 1) as f64];
            report.add(Reading { seconds: at as u64 * 300, ticks: 0, starts: 0, staying });
        }
        report
    }

    fn grown(report: Report) -> Option<String> {
        report.end().1.err().map(|error| error.to_string())
    }

    #[test]
    fn growth_after_the_start_is_reported() {
        let of = |sizes: &[f64]| grown(report(sizes, &[40.0], 1.0));
        assert_eq!(of(&[5.0, 9.0, 9.5, 10.0, 10.0, 10.0, 10.5, 10.5, 10.9]), None);
        let said = of(&[10.0, 10.0, 10.0, 10.0, 11.5, 11.5]);
        assert_eq!(said.as_deref(), Some("the agent's resident KiB grew by more than a tenth"));
        assert_eq!(of(&[5.0, 9.0]), None, "too short");
    }

    #[test]
    fn a_figure_that_varies_is_not_one_that_grows() {
        // By chance the last quarter has more of the larger values.
        let varying = [400.0, 400.0, 400.0, 400.0, 400.0, 785.0, 400.0, 785.0, 785.0, 400.0];
        assert_eq!(grown(report(&[10.0; 10], &varying, 1.0)), None);
        let leaked = varying.map(|fds| fds + 100.0);
        let leaking: Vec<_> = varying[..6].iter().chain(&leaked[6..]).copied().collect();
        let said = grown(report(&[10.0; 10], &leaking, 1.0));
        assert_eq!(said.as_deref(), Some("the agent's descriptors grew by more than a tenth"));
    }

    #[test]
    fn a_recording_grows_up_to_its_limit() {
        assert_eq!(grown(report(&[10.0; 10], &[40.0], 100.0)), None);
        let said = grown(report(&[10.0; 10], &[40.0], 200.0));
        assert_eq!(said.as_deref(), Some("the agent's recording KiB grew by more than a tenth"));
    }

    #[test]
    fn a_line_has_means_and_the_end_has_quarters() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("1.rec"), [0; 2048]).unwrap();
        let mut report = Report::new("test", 1 << 20);
        for at in 0..PER_LINE as u64 {
            let page = format!(
                "# HELP x\nprocess_resident_memory_bytes {}\nprocess_open_fds 7\n",
                2048 * at
            );
            report.add(Reading::new([100 * at, at, at], &page, None, directory.path()));
        }
        let (text, outcome) = report.end();
        assert!(outcome.is_err(), "{text}");
        let line = text.lines().nth(3).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["1100", "11", "11", "11", "NaN", "7", "2", "2"], "{text}");
        assert!(text.contains("After 630 s:\nfirst quarter, mean"), "{text}");
    }
}
