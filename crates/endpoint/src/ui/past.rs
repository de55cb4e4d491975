//! The frames of a window of time: of the history in memory, or of the recording before it.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use api::{Frame, KEPT, Overview};
use timeline::recording::{Error, FileEncoder, FrameTotals, Recording, Thinner, earliest_ms};
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};

use super::parameters::Parameters;
use super::views::Views;

/// Maximum number of frames in a file: the agent's memory holds all of it.
const MAX_FILE_FRAMES: u64 = 1800;
/// Time before a window in which its last frame may be: the recording of earlier times has one frame
/// per ten seconds.
const LOOK_BACK_MS: u64 = 15_000;

/// Length of a frame.
const FRAME_MS: u64 = 1000;
/// Length of the history in memory.
const MEMORY_MS: u64 = KEPT as u64 * FRAME_MS;
/// Deviation of that length: frames are not exactly a second long.
const SLACK_MS: u64 = 2000;

/// A window without frames, or not for this client.
#[derive(Debug)]
pub(super) enum NoWindow {
    /// Only for clients on the node, or with a token.
    Forbidden,
    /// No frame is of that time; the range that has frames, milliseconds since the epoch.
    Empty(Option<(u64, u64)>),
    /// The recording cannot be read.
    Unreadable(Error),
}

/// What a view shows of a window.
pub(super) struct Window {
    /// The frames, or means of them, as a history.
    pub(super) timeline: Timeline,
    /// The mean of all frames, with all containers that ran.
    pub(super) mean: Frame,
}

/// A window of time, milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct Times {
    after_ms: u64,
    until_ms: u64,
}

impl Views {
    /// Earliest time that a client can request, and the end of the latest frame.
    pub(super) fn span(&self, is_local: bool) -> Option<(u64, u64)> {
        let (begin_ms, latest_ms) = self.timeline.span()?;
        let recorded = self.recorded.as_deref().filter(|_| is_local).and_then(earliest_ms);
        Some((recorded.map_or(begin_ms, |recorded| recorded.min(begin_ms)), latest_ms))
    }

    /// The window that the parameters name.
    ///
    /// # Errors
    /// It has no frames, or none for this client.
    pub(super) fn window(&self, parameters: &Parameters) -> Result<Window, NoWindow> {
        let timeline = Timeline::new(TimelineConfig {
            node: String::new(),
            containers: MAX_CONTAINERS,
            pairs: MAX_PAIRS,
        });
        let mut thinner = Thinner::new(parameters.step());
        let mut mean = Thinner::of_all();
        let mut last = None;
        let times = self.times(parameters)?;
        self.each_frame(times, LOOK_BACK_MS, parameters.is_local, |frame| {
            if frame.at_ms > times.after_ms {
                thinner.add(&frame).for_each(|frame| timeline.add(&frame));
                mean.add(&frame).for_each(drop);
            } else {
                last = Some(frame);
            }
        })?;
        thinner.finish().into_iter().for_each(|frame| timeline.add(&frame));
        let mean = match (mean.finish(), last) {
            (Some(mean), _) => mean,
            (None, Some(last)) => {
                timeline.add(&last);
                last
            }
            (None, None) => return Err(NoWindow::Empty(self.span(parameters.is_local))),
        };
        Ok(Window { timeline, mean })
    }

    /// Sums over the containers in the window.
    ///
    /// # Errors
    /// As [`Views::window`].
    pub(super) fn overview(&self, parameters: &Parameters) -> Result<Overview, NoWindow> {
        let times = self.times(parameters)?;
        let mut sums = Sums { step: parameters.step().as_secs_f64(), ..Sums::default() };
        let parts = self.parts(times, times.after_ms, parameters.is_local)?;
        if let Some((path, Times { after_ms, until_ms })) = parts.recorded {
            let times = Times { after_ms, until_ms };
            let read = self.open(path, times, parameters.is_local).and_then(|recording| {
                let read = recording.each_total(after_ms, until_ms, |totals| sums.add(&totals));
                read.map_err(NoWindow::Unreadable)
            });
            parts.accept(read)?;
        }
        if let Some(Times { after_ms, until_ms }) = parts.in_memory {
            let frames = self.timeline.frames_between(after_ms, until_ms);
            frames.for_each(|frame| sums.add(&FrameTotals::of(&frame)));
        }
        sums.end_span();
        match sums.overview.at_ms.is_empty() {
            true => Err(NoWindow::Empty(self.span(parameters.is_local))),
            false => Ok(sums.overview),
        }
    }

    /// The window as a file for `cpuwarden replay`. Longer windows have means.
    ///
    /// # Errors
    /// As [`Views::window`].
    pub(super) fn file(&self, parameters: &Parameters) -> Result<Vec<u8>, NoWindow> {
        let times = self.times(parameters)?;
        let step = parameters.span.as_secs().div_ceil(MAX_FILE_FRAMES);
        let mut thinner = Thinner::new(Duration::from_secs(step));
        let mut file = FileEncoder::new(&self.origin).map_err(NoWindow::Unreadable)?;
        let (mut written, mut count) = (Ok(()), 0_usize);
        let mut add = |frame: &Frame| {
            count += 1;
            if written.is_ok() {
                written = file.add(frame);
            }
        };
        self.each_frame(times, 0, parameters.is_local, |frame| match step {
            0 | 1 => add(&frame),
            _ => thinner.add(&frame).for_each(|mean| add(&mean)),
        })?;
        thinner.finish().iter().for_each(&mut add);
        written.map_err(NoWindow::Unreadable)?;
        match count {
            0 => Err(NoWindow::Empty(self.span(parameters.is_local))),
            _ => Ok(file.finish()),
        }
    }

    fn times(&self, parameters: &Parameters) -> Result<Times, NoWindow> {
        let (_, latest_ms) = self.timeline.span().ok_or(NoWindow::Empty(None))?;
        let until_ms = parameters.until_ms.unwrap_or(latest_ms);
        let span_ms = u64::try_from(parameters.span.as_millis()).unwrap_or(u64::MAX);
        Ok(Times { after_ms: until_ms.saturating_sub(span_ms), until_ms })
    }

    /// Locates the frames of a window and of the time before it since `after_ms`. The window alone
    /// decides whether the recording is needed.
    fn parts(&self, times: Times, after_ms: u64, is_local: bool) -> Result<Parts<'_>, NoWindow> {
        let all = Times { after_ms, ..times };
        let in_memory = Parts { recorded: None, in_memory: Some(all) };
        let Some(path) = self.recorded.as_deref() else { return Ok(in_memory) };
        let span = self.timeline.span().filter(|_| !self.is_replay);
        if let Some((begin_ms, latest_ms)) = span {
            // The last ten minutes, although the agent may not have run for as long.
            let is_recent = times.after_ms + SLACK_MS + MEMORY_MS >= latest_ms;
            if begin_ms <= times.after_ms || !is_local && is_recent {
                return Ok(in_memory);
            }
        }
        if !is_local {
            return Err(NoWindow::Forbidden);
        }
        // Within the oldest frame in memory: the end of the frame before it may be rounded.
        let split_ms = span.map_or(u64::MAX, |(begin_ms, _)| begin_ms + FRAME_MS / 2);
        Ok(Parts {
            recorded: Some((path, Times { until_ms: times.until_ms.min(split_ms), ..all })),
            in_memory: (split_ms < times.until_ms).then_some(Times { after_ms: split_ms, ..times }),
        })
    }

    /// Calls `take` with the frames of the window and of a time before it.
    fn each_frame(
        &self,
        times: Times,
        before_ms: u64,
        is_local: bool,
        mut take: impl FnMut(Frame),
    ) -> Result<(), NoWindow> {
        let parts = self.parts(times, times.after_ms.saturating_sub(before_ms), is_local)?;
        if let Some((path, times)) = parts.recorded {
            let read = self.open(path, times, is_local).and_then(|recording| {
                let read = recording.each_between(times.after_ms, times.until_ms, &mut take);
                read.map_err(NoWindow::Unreadable)
            });
            parts.accept(read)?;
        }
        if let Some(Times { after_ms, until_ms }) = parts.in_memory {
            self.timeline.frames_between(after_ms, until_ms).for_each(take);
        }
        Ok(())
    }

    fn open(&self, path: &Path, times: Times, is_local: bool) -> Result<Recording, NoWindow> {
        let opened = Recording::open_between(path, times.after_ms, times.until_ms);
        opened.map_err(|error| match error {
            Error::NoRecording(_) | Error::NoFrame(_) => NoWindow::Empty(self.span(is_local)),
            // Its directory could not be created.
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                NoWindow::Empty(self.span(is_local))
            }
            error => NoWindow::Unreadable(error),
        })
    }
}

/// Sources of the frames of a window.
struct Parts<'a> {
    /// The recording, and the time before the oldest frame in memory.
    recorded: Option<(&'a Path, Times)>,
    in_memory: Option<Times>,
}

impl Parts<'_> {
    /// Accepts that nothing could be read of the recording if a part of the window is in memory: the
    /// disk may be nearly full, or its directory not writable.
    fn accept(&self, read: Result<(), NoWindow>) -> Result<(), NoWindow> {
        read.or_else(|none| if self.in_memory.is_some() { Ok(()) } else { Err(none) })
    }
}

/// Sums over spans of at least this length.
#[derive(Default)]
struct Sums {
    step: f64,
    /// End and length of the current span, and values times seconds.
    at_ms: u64,
    seconds: f64,
    lost: f64,
    usage_cores: Option<f64>,
    pressure: Option<f64>,
    overview: Overview,
}

impl Sums {
    fn add(&mut self, totals: &FrameTotals) {
        let (seconds, gap_ms) = (totals.seconds, totals.at_ms.saturating_sub(self.at_ms));
        if gap_ms as f64 > (self.step.max(seconds) + 2.5) * 1000.0 {
            self.end_span();
        }
        self.at_ms = totals.at_ms;
        self.seconds += seconds;
        self.lost += totals.lost * seconds;
        let add = |sum: &mut Option<f64>, value: Option<f64>| {
            if let Some(value) = value {
                *sum.get_or_insert_default() += value * seconds;
            }
        };
        add(&mut self.usage_cores, totals.usage_cores);
        add(&mut self.pressure, totals.pressure);
        if self.seconds + seconds / 2.0 >= self.step {
            self.end_span();
        }
    }

    /// Adds the current span to the answer.
    fn end_span(&mut self) {
        if self.seconds <= 0.0 {
            return;
        }
        let seconds = std::mem::take(&mut self.seconds);
        // Four digits suffice for a chart.
        let mean = |sum: f64| (sum / seconds * 1e4).round() / 1e4;
        let overview = &mut self.overview;
        overview.at_ms.push(self.at_ms);
        overview.seconds.push((seconds * 1e3).round() / 1e3);
        overview.lost.push(mean(std::mem::take(&mut self.lost)));
        overview.usage_cores.push(self.usage_cores.take().map(mean));
        overview.pressure.push(self.pressure.take().map(mean));
    }
}
