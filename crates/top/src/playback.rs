//! Playback of a recording: position, speed and pause.

use std::time::{Duration, Instant};

use api::Frame;

use crate::history::SHOWN;
use crate::source::{Control, Position, Source, Update};

/// Speeds, as frames' time per time.
const SPEEDS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
/// Position of the normal speed.
const NORMAL: usize = 2;

/// Frames of a recording.
pub trait Recording {
    /// Start and end, milliseconds since the epoch.
    fn span(&self) -> (u64, u64);

    /// The frames that end after `after_ms` and not after `until_ms`, oldest first.
    ///
    /// # Errors
    /// A text that names the file and the reason why it cannot be read.
    fn frames(&mut self, after_ms: u64, until_ms: u64) -> Result<Vec<Frame>, String>;

    /// Earliest end of a frame after this time.
    fn next_after(&self, at_ms: u64) -> Option<u64>;
}

/// A playback skips longer times without a frame: the agent did not run, or the clock was wrong.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// Plays a recording as a [`Source`].
#[derive(Debug)]
pub struct Playback<R> {
    recording: R,
    at_ms: u64,
    /// Length of the history before a position.
    before: Duration,
    speed: usize,
    is_paused: bool,
    /// Time up to which the position has advanced; `None` before the first update.
    advanced: Option<Instant>,
    is_moved: bool,
}

impl<R: Recording> Playback<R> {
    /// Begins at this time, or at the nearest end of the recording.
    pub fn new(recording: R, at_ms: u64) -> Self {
        let mut playback = Self {
            recording,
            at_ms,
            before: SHOWN,
            speed: NORMAL,
            is_paused: false,
            advanced: None,
            is_moved: true,
        };
        playback.move_to(at_ms);
        playback
    }

    /// Sets the length of the history before a position; five minutes by default.
    #[must_use]
    pub fn with_history(mut self, before: Duration) -> Self {
        self.before = before;
        self
    }

    fn move_to(&mut self, at_ms: u64) {
        let (start, end) = self.recording.span();
        self.at_ms = at_ms.clamp(start, end.max(start));
        self.is_moved = true;
    }

    fn position(&self) -> Update {
        let (start_ms, end_ms) = self.recording.span();
        let speed = SPEEDS[self.speed];
        let (at_ms, is_paused) = (self.at_ms, self.is_paused);
        Update::Position(Position { at_ms, start_ms, end_ms, speed, is_paused })
    }

    /// Updates at a time.
    fn updates_at(&mut self, now: Instant) -> Vec<Update> {
        let passed = self.advanced.replace(now).map_or(Duration::ZERO, |last| now - last);
        let mut updates = Vec::new();
        if self.is_moved {
            self.is_moved = false;
            updates.push(self.position());
            let before_ms = u64::try_from(self.before.as_millis()).unwrap_or(u64::MAX);
            let first = self.at_ms.saturating_sub(before_ms);
            updates.push(match self.recording.frames(first, self.at_ms) {
                Ok(frames) => Update::Seek(frames),
                Err(error) => Update::Status(error),
            });
            return updates;
        }
        if self.is_paused {
            return updates;
        }
        let (_, end) = self.recording.span();
        let played_ms = (passed.as_secs_f64() * SPEEDS[self.speed] * 1000.0) as u64;
        let gap_ms = u64::try_from(LONGEST_GAP.as_millis()).unwrap_or(u64::MAX);
        let to = match self.recording.next_after(self.at_ms) {
            Some(next) if next - self.at_ms > gap_ms => next,
            _ => self.at_ms.saturating_add(played_ms).min(end),
        };
        match self.recording.frames(self.at_ms, to) {
            Ok(frames) => {
                updates.extend(frames.into_iter().map(|frame| Update::Frame(Box::new(frame))));
            }
            Err(error) => updates.push(Update::Status(error)),
        }
        if to != self.at_ms {
            self.at_ms = to;
            self.is_paused = to == end;
            updates.push(self.position());
        }
        updates
    }
}

impl<R: Recording> Source for Playback<R> {
    fn updates(&mut self) -> Vec<Update> {
        self.updates_at(Instant::now())
    }

    fn control(&mut self, control: Control) {
        let (start, end) = self.recording.span();
        match control {
            Control::Step(seconds) => {
                self.is_paused = true;
                self.move_to(self.at_ms.saturating_add_signed(seconds.saturating_mul(1000)));
            }
            Control::At(moment) => self.move_to(moment.before(end)),
            Control::Start => self.move_to(start),
            Control::End => self.move_to(end),
            Control::Faster => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            Control::Slower => self.speed = self.speed.saturating_sub(1),
            Control::Pause(is_paused) => self.is_paused = is_paused,
        }
        // Also reports a new speed.
        self.is_moved = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame at the end of each second from 1 to 600.
    struct TenMinutes;

    impl Recording for TenMinutes {
        fn span(&self) -> (u64, u64) {
            (1000, 600_000)
        }

        fn frames(&mut self, after_ms: u64, until_ms: u64) -> Result<Vec<Frame>, String> {
            let seconds = (1..=600).map(|second| second * 1000);
            let wanted = seconds.filter(|at| (after_ms + 1..=until_ms).contains(at));
            Ok(wanted.map(|at_ms| Frame { at_ms, seconds: 1.0, ..Frame::default() }).collect())
        }

        fn next_after(&self, at_ms: u64) -> Option<u64> {
            (1..=600).map(|second| second * 1000).find(|at| *at > at_ms)
        }
    }

    /// Two seconds of 1970, and two of 2026.
    struct WrongClock;

    const TIMES: [u64; 4] = [1000, 2000, 1_795_316_400_000, 1_795_316_401_000];

    impl Recording for WrongClock {
        fn span(&self) -> (u64, u64) {
            (TIMES[0], TIMES[3])
        }

        fn frames(&mut self, after_ms: u64, until_ms: u64) -> Result<Vec<Frame>, String> {
            let wanted = TIMES.into_iter().filter(|at| (after_ms + 1..=until_ms).contains(at));
            Ok(wanted.map(|at_ms| Frame { at_ms, seconds: 1.0, ..Frame::default() }).collect())
        }

        fn next_after(&self, at_ms: u64) -> Option<u64> {
            TIMES.into_iter().find(|at| *at > at_ms)
        }
    }

    #[test]
    fn a_playback_skips_the_years_of_a_wrong_clock() {
        let mut playback = Playback::new(WrongClock, 0);
        let start = Instant::now();
        let played: Vec<u64> = (0..4)
            .flat_map(|second| times(&playback.updates_at(start + Duration::from_secs(second))))
            .collect();
        assert_eq!(played, TIMES.map(|at| at / 1000));
    }

    fn times(updates: &[Update]) -> Vec<u64> {
        let frames = updates.iter().flat_map(|update| match update {
            Update::Seek(frames) => frames.clone(),
            Update::Frame(frame) => vec![(**frame).clone()],
            _ => Vec::new(),
        });
        frames.map(|frame| frame.at_ms / 1000).collect()
    }

    #[test]
    fn a_playback_begins_with_the_history_before_the_time() {
        let mut playback = Playback::new(TenMinutes, 400_000);
        let start = Instant::now();
        assert_eq!(times(&playback.updates_at(start)), (101..=400).collect::<Vec<_>>());
        assert_eq!(times(&playback.updates_at(start + Duration::from_millis(1500))), [401]);
        playback.control(Control::Faster);
        playback.updates_at(start + Duration::from_millis(1500));
        assert_eq!(times(&playback.updates_at(start + Duration::from_secs(3))), [402, 403, 404]);
    }

    #[test]
    fn steps_stop_at_the_ends_and_pause() {
        let mut playback = Playback::new(TenMinutes, 0);
        assert_eq!(times(&playback.updates()), [1]);
        playback.control(Control::Step(60));
        assert_eq!(times(&playback.updates()).last(), Some(&61));
        assert_eq!(playback.updates_at(Instant::now() + Duration::from_secs(9)), []);
        playback.control(Control::Step(-3600));
        assert_eq!(times(&playback.updates()), [1]);
        playback.control(Control::End);
        assert_eq!(times(&playback.updates()).last(), Some(&600));
    }
}
