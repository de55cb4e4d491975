//! Records the frames of a timeline as they arrive.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::Frame;

use super::error::Error;
use super::ring::{Ring, RingConfig};
use super::segment::Origin;
use crate::timeline::Timeline;

/// Time between two polls for new frames: part of what a killed process loses.
const LOOK: Duration = Duration::from_millis(100);
/// Time until recording is tried again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Writes the frames of a timeline to a [`Ring`].
pub struct Recorder {
    config: RingConfig,
    origin: Origin,
    /// `None` before the first frame, and after a failure.
    ring: Option<Ring>,
    /// Time of the next attempt after a failure.
    retry_at: Option<Instant>,
}

impl Recorder {
    /// A recorder whose directory is opened with the first frame.
    #[must_use]
    pub fn new(config: RingConfig, origin: Origin) -> Self {
        Self { config, origin, ring: None, retry_at: None }
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// See [`Ring::open`].
    pub fn open(&mut self) -> Result<(), Error> {
        self.ring = Some(Ring::open(self.config.clone(), self.origin.clone())?);
        Ok(())
    }

    /// Writes all frames of the timeline, each when it ends, until the other end of `stopped` is
    /// dropped. Frames that arrived while the disk was slow are still in the timeline. `report`
    /// takes the outcome of each attempt; after a failure the next one is a minute later.
    ///
    /// # Errors
    /// Those of `report`, which end the recording.
    pub fn run<E>(
        mut self,
        timeline: &Timeline,
        stopped: &Receiver<()>,
        mut report: impl FnMut(Result<(), Error>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = 0;
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            for frame in timeline.frames_after(&mut last) {
                if let Some(outcome) = self.append(&frame, Instant::now()) {
                    report(outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a frame; `None` if it is too early for another attempt.
    fn append(&mut self, frame: &Frame, now: Instant) -> Option<Result<(), Error>> {
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return None;
        }
        let appended = self.try_append(frame);
        self.retry_at = appended.is_err().then(|| now + RETRY_AFTER);
        if appended.is_err() {
            self.ring = None;
        }
        Some(appended)
    }

    fn try_append(&mut self, frame: &Frame) -> Result<(), Error> {
        if self.ring.is_none() {
            self.open()?;
        }
        self.ring.as_mut().map_or(Ok(()), |ring| ring.append(frame))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::TimelineConfig;
    use crate::recording::{LEAST_SIZE, Recording};

    fn frame(second: u64) -> Frame {
        Frame { at_ms: 1000 * second, seconds: 1.0, ..Frame::default() }
    }

    #[test]
    fn a_failure_stops_recording_and_a_later_frame_starts_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let ring = dir.path().join("ring");
        // Not a directory.
        std::fs::write(&ring, "").unwrap();
        let mut recorder =
            Recorder::new(RingConfig::new(ring.clone(), LEAST_SIZE), Origin::default());
        let began = Instant::now();
        let mut append = |second| {
            let outcome = recorder.append(&frame(second), began + Duration::from_secs(second));
            outcome.map(|outcome| outcome.map_err(|error| error.to_string()))
        };
        let reason = append(1).unwrap().unwrap_err();
        assert!(reason.contains(ring.to_str().unwrap()), "{reason}");
        std::fs::remove_file(&ring).unwrap();
        assert_eq!(append(60), None, "tried again at once");
        assert_eq!([append(61), append(62)], [Some(Ok(())), Some(Ok(()))]);
        assert_eq!(Recording::open(&ring).unwrap().times(), [61_000, 62_000]);
    }

    #[test]
    fn frames_are_written_until_it_is_stopped_also_those_that_came_together() {
        let dir = tempfile::tempdir().unwrap();
        let node = "n1".to_owned();
        let timeline = Timeline::new(TimelineConfig { node, containers: 1, pairs: 1 });
        (1..=3).for_each(|second| timeline.add(&frame(second)));
        let config = RingConfig::new(dir.path().to_owned(), LEAST_SIZE);
        let recorder = Recorder::new(config, Origin::default());
        let ((stop, stopped), (written, writes)) = (channel(), channel());
        let recorded = timeline.clone();
        let recording = std::thread::spawn(move || {
            recorder.run(&recorded, &stopped, |outcome| outcome.map(|()| written.send(()).unwrap()))
        });
        let wait = |count| (0..count).for_each(|_| writes.recv_timeout(LOOK * 600).unwrap());
        wait(3);
        (4..=5).for_each(|second| timeline.add(&frame(second)));
        wait(2);
        drop(stop);
        recording.join().unwrap().unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        assert_eq!(recording.times(), [1000, 2000, 3000, 4000, 5000]);
    }

    #[test]
    fn an_error_of_the_report_ends_the_recording() {
        let node = "n1".to_owned();
        let timeline = Timeline::new(TimelineConfig { node, containers: 1, pairs: 1 });
        timeline.add(&frame(1));
        let config = RingConfig::new("/proc/none".into(), LEAST_SIZE);
        let recorder = Recorder::new(config, Origin::default());
        let (_stop, stopped) = channel();
        let error = recorder.run(&timeline, &stopped, |outcome| outcome).unwrap_err();
        assert!(error.to_string().contains("cannot create /proc/none"), "{error}");
    }
}
