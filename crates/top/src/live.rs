//! The process's own timeline as a source.

use std::time::{Duration, Instant};

use timeline::Timeline;

use crate::history::KEPT;
use crate::source::{Source, Update};

/// Time between two calls for further updates, which change slowly.
const FURTHER_EVERY: Duration = Duration::from_secs(5);

/// Shows the timeline of this process, and the updates that `further` returns, such as the advice.
pub struct Live<F> {
    timeline: Timeline,
    further: F,
    /// Number of the frame shown last; `None` before the first call.
    seen: Option<u64>,
    asked: Option<Instant>,
}

impl<F: FnMut() -> Vec<Update>> Live<F> {
    /// A source that has shown nothing yet.
    pub fn new(timeline: Timeline, further: F) -> Self {
        Self { timeline, further, seen: None, asked: None }
    }
}

impl<F: FnMut() -> Vec<Update>> Source for Live<F> {
    fn updates(&mut self) -> Vec<Update> {
        let mut updates = Vec::new();
        let number = *self.timeline.subscribe().borrow();
        if self.seen.is_none() {
            updates.push(Update::Seek(self.timeline.frames(Duration::from_secs(KEPT as u64))));
        } else if self.seen != Some(number)
            && let Some(frame) = self.timeline.latest()
        {
            updates.push(Update::Frame(Box::new(frame)));
        }
        self.seen = Some(number);
        if self.asked.is_none_or(|at| at.elapsed() >= FURTHER_EVERY) {
            self.asked = Some(Instant::now());
            updates.extend((self.further)());
        }
        updates
    }
}
