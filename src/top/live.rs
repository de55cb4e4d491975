//! The process's own timeline as a source.

use std::time::{Duration, Instant};

use timeline::Timeline;
use top::{Control, Position, SHOWN, Source, Update};

/// Time between two calls for further updates, which change slowly.
const FURTHER_EVERY: Duration = Duration::from_secs(5);

/// Shows the timeline of this process, and the updates that `further` returns, such as the advice.
pub(crate) struct Live<F> {
    timeline: Timeline,
    further: F,
    /// Number of the frame shown last; `None` before the first call.
    seen: Option<u64>,
    asked: Option<Instant>,
    /// Time that is shown, milliseconds since the epoch; `None` for now.
    past: Option<u64>,
    is_moved: bool,
}

impl<F: FnMut() -> Vec<Update>> Live<F> {
    /// A source that has shown nothing yet.
    pub(crate) fn new(timeline: Timeline, further: F) -> Self {
        Self { timeline, further, seen: None, asked: None, past: None, is_moved: false }
    }
}

impl<F> Live<F> {
    fn past_updates(&self, at_ms: u64) -> Vec<Update> {
        let (start_ms, end_ms) = self.timeline.span().unwrap_or_default();
        let shown_ms = u64::try_from(SHOWN.as_millis()).unwrap_or(u64::MAX);
        let frames = self.timeline.frames_between(at_ms.saturating_sub(shown_ms), at_ms);
        let position = Position { at_ms, start_ms, end_ms, speed: 0.0, is_paused: true };
        vec![Update::Position(position), Update::Seek(frames.collect())]
    }
}

impl<F: FnMut() -> Vec<Update>> Source for Live<F> {
    fn updates(&mut self) -> Vec<Update> {
        if let Some(at_ms) = self.past {
            return if std::mem::take(&mut self.is_moved) {
                self.past_updates(at_ms)
            } else {
                Vec::new()
            };
        }
        let mut updates = Vec::new();
        if std::mem::take(&mut self.is_moved) {
            self.seen = None;
            updates.push(Update::Live);
        }
        match &mut self.seen {
            // All frames since the last call: a terminal may block for longer than a second.
            Some(seen) => {
                let frames = self.timeline.frames_after(seen);
                updates.extend(frames.map(|frame| Update::Frame(Box::new(frame))));
            }
            None => {
                self.seen = Some(*self.timeline.subscribe().borrow());
                let frames = self.timeline.frames(SHOWN);
                updates.push(Update::Seek(frames.collect()));
            }
        }
        if self.asked.is_none_or(|at| at.elapsed() >= FURTHER_EVERY) {
            self.asked = Some(Instant::now());
            updates.extend((self.further)());
        }
        updates
    }

    fn control(&mut self, control: Control) {
        let Some((begin_ms, latest_ms)) = self.timeline.span() else { return };
        if let Some(to) = control.target(self.past.unwrap_or(latest_ms), latest_ms) {
            self.is_moved |= self.past.is_some() || to < latest_ms;
            // The first frame ends a second after the start.
            self.past = (to < latest_ms).then(|| to.max(begin_ms + 1000));
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Frame;
    use timeline::TimelineConfig;

    use super::*;

    fn times(updates: Vec<Update>) -> Vec<u64> {
        let frames = updates.into_iter().flat_map(|update| match update {
            Update::Seek(frames) => frames,
            Update::Frame(frame) => vec![*frame],
            Update::Position(_) | Update::Live => Vec::new(),
            other => panic!("{other:?}"),
        });
        frames.map(|frame| frame.at_ms / 1000).collect()
    }

    #[test]
    fn a_view_goes_back_and_returns() {
        let node = "n1".to_owned();
        let timeline = Timeline::new(TimelineConfig { node, containers: 1, pairs: 1 });
        let add = |second: u64| {
            timeline.add(&Frame { at_ms: 1000 * second, seconds: 1.0, ..Frame::default() });
        };
        (1..=100).for_each(add);
        let mut live = Live::new(timeline.clone(), Vec::new);
        assert_eq!(times(live.updates()).last(), Some(&100));
        live.control(Control::Step(-60));
        let updates = live.updates();
        assert!(matches!(updates[0], Update::Position(position) if position.at_ms == 40_000));
        assert_eq!(times(updates), (1..=40).collect::<Vec<_>>());
        add(101);
        assert!(live.updates().is_empty(), "the past stands still");
        live.control(Control::Step(10));
        assert_eq!(times(live.updates()).last(), Some(&50));
        live.control(Control::At("-91s".parse().unwrap()));
        assert_eq!(times(live.updates()).last(), Some(&10));
        live.control(Control::Start);
        assert_eq!(times(live.updates()), [1]);
        live.control(Control::End);
        let updates = live.updates();
        assert_eq!(updates[0], Update::Live);
        assert_eq!(times(updates).last(), Some(&101));
        live.control(Control::Step(10));
        assert!(live.updates().is_empty(), "there is no later time");
    }

    #[test]
    fn a_view_that_was_blocked_gets_all_seconds() {
        let node = "n1".to_owned();
        let timeline = Timeline::new(TimelineConfig { node, containers: 1, pairs: 1 });
        let mut live = Live::new(timeline.clone(), Vec::new);
        let mut after = |seconds: &[u64]| {
            for second in seconds {
                let frame = Frame { at_ms: 1000 * *second, seconds: 1.0, ..Frame::default() };
                timeline.add(&frame);
            }
            times(live.updates())
        };
        assert_eq!(after(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(after(&[4]), [4]);
        assert_eq!(after(&[5, 6, 7, 8, 9]), [5, 6, 7, 8, 9]);
        assert!(after(&[]).is_empty());
    }
}
