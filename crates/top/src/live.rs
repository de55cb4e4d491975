//! The process's own timeline as a source.

use std::time::{Duration, Instant};

use timeline::Timeline;

use crate::history::KEPT;
use crate::source::{Advice, Source, Update};

/// Time between two readings of the advice, which changes slowly.
const ADVICE_EVERY: Duration = Duration::from_secs(5);

/// Shows the timeline of this process, and the advice that `advice` returns.
pub struct Live<A> {
    timeline: Timeline,
    advice: A,
    /// Number of the frame shown last; `None` before the first call.
    seen: Option<u64>,
    advised: Option<Instant>,
}

impl<A: FnMut() -> Vec<Advice>> Live<A> {
    /// A source that has shown nothing yet.
    pub fn new(timeline: Timeline, advice: A) -> Self {
        Self { timeline, advice, seen: None, advised: None }
    }
}

impl<A: FnMut() -> Vec<Advice>> Source for Live<A> {
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
        if self.advised.is_none_or(|at| at.elapsed() >= ADVICE_EVERY) {
            self.advised = Some(Instant::now());
            updates.push(Update::Advice((self.advice)()));
        }
        updates
    }
}
