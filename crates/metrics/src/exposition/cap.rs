//! The cap on a page's series: above it, families leave the page one after the other, always in the
//! same order.

use crate::catalogue::{Form, Step};

/// A dropped family comes back when the page with it is this part smaller than the cap, so that it
/// does not come and go with every container.
const ROOM_TO_RETURN: usize = 20;

/// The steps of making a page smaller, and how many of them are in force.
#[derive(Debug)]
pub(super) struct Cap {
    max_series: usize,
    steps: Vec<Step>,
    taken: usize,
}

impl Cap {
    pub(super) fn new(max_series: usize, steps: Vec<Step>) -> Self {
        Self { max_series, steps, taken: 0 }
    }

    /// Whether a page of this size may be exposed as it is.
    pub(super) fn admits(&self, series: usize) -> bool {
        self.taken == 0 && series <= self.max_series
    }

    pub(super) fn max_series(&self) -> usize {
        self.max_series
    }

    /// All steps.
    pub(super) fn all(&self) -> &[Step] {
        &self.steps
    }

    /// Steps in force.
    pub(super) fn taken(&self) -> &[Step] {
        &self.steps[..self.taken]
    }

    /// Takes as many steps as a page of `series` needs; returns the number of series that they
    /// drop. `count` returns the number of series of a family in a form; `form` its form before any
    /// step.
    pub(super) fn fit(
        &mut self,
        series: usize,
        form: impl Fn(&Step) -> Form,
        mut count: impl FnMut(&Step, Form) -> usize,
    ) -> usize {
        let before = |steps: &[Step], step: &Step| {
            let earlier = steps.iter().rfind(|earlier| earlier.family == step.family);
            earlier.map_or_else(|| form(step), |earlier| earlier.to)
        };
        let (mut taken, mut left) = (0, series);
        while taken < self.steps.len() && left > self.limit(taken) {
            let step = &self.steps[taken];
            left -= count(step, before(&self.steps[..taken], step)) - count(step, step.to);
            taken += 1;
        }
        self.taken = taken;
        series - left
    }

    /// Maximum number of series with `taken` steps. Fewer steps than for the last page need room.
    fn limit(&self, taken: usize) -> usize {
        if taken < self.taken {
            self.max_series - self.max_series / ROOM_TO_RETURN
        } else {
            self.max_series
        }
    }
}
