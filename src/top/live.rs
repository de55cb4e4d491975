//! The process's own timeline as a source.

use std::time::{Duration, Instant};

use timeline::Timeline;
use top::{SHOWN, Source, Update};

/// Time between two calls for further updates, which change slowly.
const FURTHER_EVERY: Duration = Duration::from_secs(5);

/// Shows the timeline of this process, and the updates that `further` returns, such as the advice.
pub(crate) struct Live<F> {
    timeline: Timeline,
    further: F,
    /// Number of the frame shown last; `None` before the first call.
    seen: Option<u64>,
    asked: Option<Instant>,
}

impl<F: FnMut() -> Vec<Update>> Live<F> {
    /// A source that has shown nothing yet.
    pub(crate) fn new(timeline: Timeline, further: F) -> Self {
        Self { timeline, further, seen: None, asked: None }
    }
}

impl<F: FnMut() -> Vec<Update>> Source for Live<F> {
    fn updates(&mut self) -> Vec<Update> {
        let mut updates = Vec::new();
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
            other => panic!("{other:?}"),
        });
        frames.map(|frame| frame.at_ms / 1000).collect()
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
