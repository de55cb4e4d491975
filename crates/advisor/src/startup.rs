//! Throttling in the first minute of each life of a container, and in the rest of it.

use std::time::Duration;

use analysis::Window;
use api::OBJECTIVE;

/// Length of a start. Runtimes compile and load most in their first minute.
const START: Duration = Duration::from_secs(60);

/// Periods of a part of the lives.
#[derive(Debug, Clone, Copy, Default)]
struct Periods {
    length: Duration,
    all: u64,
    throttled: u64,
}

/// Periods by part of the container's lives.
#[derive(Debug, Default)]
pub(crate) struct Startup {
    container_id: String,
    /// Time since the start; `None` if it was before the agent's.
    age: Option<Duration>,
    first: Periods,
    rest: Periods,
}

impl Startup {
    /// For a container that starts now.
    pub(crate) fn begun() -> Self {
        Self { age: Some(Duration::ZERO), ..Self::default() }
    }

    /// Another id is another life.
    pub(crate) fn follow(&mut self, container_id: &str) {
        if self.container_id != container_id {
            if !self.container_id.is_empty() {
                self.age = Some(Duration::ZERO);
            }
            container_id.clone_into(&mut self.container_id);
        }
    }

    pub(crate) fn add(&mut self, window: &Window) {
        let length = Duration::from_nanos(window.length_ns);
        let is_first = self.age.is_some_and(|age| age < START);
        self.age = self.age.map(|age| age + length);
        let part = if is_first { &mut self.first } else { &mut self.rest };
        part.length += length;
        part.all += window.periods.unwrap_or(0);
        part.throttled += window.throttled_periods.unwrap_or(0);
    }

    /// Forgets the periods under another limit.
    pub(crate) fn forget(&mut self) {
        (self.first, self.rest) = (Periods::default(), Periods::default());
    }

    /// Whether the first minute was throttled, and at least another one was not: a container that
    /// lives for a minute is throttled all its life.
    pub(crate) fn is_throttled_only_then(&self) -> bool {
        let accepted = OBJECTIVE * self.rest.all as f64;
        self.first.throttled > 0
            && self.rest.length >= START
            && self.rest.throttled as f64 <= accepted
    }
}
