//! Keeps the program within its budget by running it continuously, in bursts, or not at all. Pure;
//! time is an argument.

use std::time::{Duration, Instant};

use snapshot::TraceMode;

/// Length of a burst.
const BURST: Duration = Duration::from_secs(1);
/// How early a poll may come and still begin or end a burst. Polls come once a second, a few
/// milliseconds early or late: without this, every other burst or pause would last a second longer
/// than its factor says.
const EARLY: Duration = Duration::from_millis(100);
/// Time over the budget after which continuous mode ends.
const OVER_BUDGET_FOR: Duration = Duration::from_secs(3);
/// Number of consecutive bursts well within the budget after which continuous mode resumes.
const CHEAP_BURSTS: u32 = 3;
/// Maximum share of the budget that counts as well within it.
const WELL_WITHIN: f64 = 0.8;
/// Maximum interval between burst starts, in burst lengths. A program that would still exceed the
/// budget is detached.
const RAREST: u32 = 60;
/// Time after which a detached program is tried again.
const RETRY: Duration = Duration::from_secs(600);

/// Cost of the program since the previous step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time of the program.
    pub(crate) cost: Duration,
    /// Elapsed time summed over all CPUs.
    pub(crate) capacity: Duration,
}

/// Action to apply to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Keep,
    Attach,
    Detach,
}

/// State of one program.
#[derive(Debug)]
pub(crate) struct Governor {
    /// Budget as a share of the CPUs' time.
    budget: f64,
    mode: TraceMode,
    phase: Phase,
    cheap_bursts: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Attached since `since`, with the cost of this burst; `over_since`: start of the
    /// uninterrupted time over the budget.
    On { since: Instant, cost: Duration, capacity: Duration, over_since: Option<Instant> },
    /// Detached until `until`.
    Off { until: Instant },
}

impl Phase {
    fn on(since: Instant) -> Self {
        Self::On { since, cost: Duration::ZERO, capacity: Duration::ZERO, over_since: None }
    }
}

impl Governor {
    /// A governor for a newly attached program. `budget`: its share of the CPUs' time.
    pub(crate) fn new(budget: f64, now: Instant) -> Self {
        Self { budget, mode: TraceMode::Continuous, phase: Phase::on(now), cheap_bursts: 0 }
    }

    pub(crate) fn mode(&self) -> TraceMode {
        self.mode
    }

    /// Factor by which the current counts must be multiplied to estimate the whole time.
    pub(crate) fn scale(&self) -> u32 {
        if let TraceMode::Bursts { one_of } = self.mode { one_of } else { 1 }
    }

    /// Decides what to do until the next step.
    pub(crate) fn step(&mut self, now: Instant, usage: Usage) -> Action {
        match self.phase {
            Phase::Off { until } if now + EARLY < until => Action::Keep,
            Phase::Off { .. } => {
                if self.mode == TraceMode::Detached {
                    self.mode = TraceMode::Bursts { one_of: RAREST };
                }
                self.phase = Phase::on(now);
                Action::Attach
            }
            Phase::On { since, cost, capacity, over_since } => {
                let (cost, capacity) = (cost + usage.cost, capacity + usage.capacity);
                if self.mode == TraceMode::Continuous {
                    return self.step_continuous(now, usage, over_since);
                }
                if now.duration_since(since) + EARLY < BURST {
                    self.phase = Phase::On { since, cost, capacity, over_since };
                    return Action::Keep;
                }
                self.end_burst(now, now.duration_since(since), share(cost, capacity))
            }
        }
    }

    /// Records that the program could not be attached.
    pub(crate) fn give_up(&mut self, now: Instant) {
        self.mode = TraceMode::Detached;
        self.phase = Phase::Off { until: now + RETRY };
    }

    fn step_continuous(
        &mut self,
        now: Instant,
        usage: Usage,
        over_since: Option<Instant>,
    ) -> Action {
        let share = share(usage.cost, usage.capacity);
        if share <= self.budget {
            self.phase = Phase::on(now);
            return Action::Keep;
        }
        let over_since = over_since.unwrap_or(now);
        if now.duration_since(over_since) < OVER_BUDGET_FOR {
            self.phase = Phase::On {
                since: now,
                cost: Duration::ZERO,
                capacity: Duration::ZERO,
                over_since: Some(over_since),
            };
            return Action::Keep;
        }
        self.pause(now, BURST, share)
    }

    fn end_burst(&mut self, now: Instant, length: Duration, share: f64) -> Action {
        self.cheap_bursts =
            if share <= self.budget * WELL_WITHIN { self.cheap_bursts + 1 } else { 0 };
        if self.cheap_bursts >= CHEAP_BURSTS {
            self.cheap_bursts = 0;
            self.mode = TraceMode::Continuous;
            self.phase = Phase::on(now);
            return Action::Keep;
        }
        self.pause(now, length, share)
    }

    /// Detaches for a multiple of the burst's length that brings the average within the budget.
    fn pause(&mut self, now: Instant, burst: Duration, share: f64) -> Action {
        let one_of = (share / self.budget).ceil();
        if one_of > f64::from(RAREST) {
            self.give_up(now);
            return Action::Detach;
        }
        // Even after a burst within the budget, further ones are needed before continuous mode
        // resumes.
        let one_of = (one_of as u32).max(2);
        self.mode = TraceMode::Bursts { one_of };
        self.phase = Phase::Off { until: now + burst * (one_of - 1) };
        Action::Detach
    }
}

fn share(cost: Duration, capacity: Duration) -> f64 {
    if capacity.is_zero() { 0.0 } else { cost.as_secs_f64() / capacity.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A governor with a budget of 1 %, stepped once per second, for a program that takes `share`
    /// of four CPUs while attached.
    struct Clock {
        governor: Governor,
        now: Instant,
        attached: bool,
        attached_secs: u32,
    }

    impl Clock {
        fn new() -> Self {
            let now = Instant::now();
            Self { governor: Governor::new(0.01, now), now, attached: true, attached_secs: 0 }
        }

        fn run(&mut self, secs: u32, share: f64) -> TraceMode {
            for _ in 0..secs {
                self.attached_secs += u32::from(self.attached);
                self.step_at(self.now + Duration::from_secs(1), share);
            }
            self.governor.mode()
        }

        fn step_at(&mut self, now: Instant, share: f64) {
            let capacity = (now - self.now) * 4;
            self.now = now;
            let cost = if self.attached { capacity.mul_f64(share) } else { Duration::ZERO };
            match self.governor.step(self.now, Usage { cost, capacity }) {
                Action::Keep => {}
                Action::Attach => assert!(!std::mem::replace(&mut self.attached, true)),
                Action::Detach => assert!(std::mem::replace(&mut self.attached, false)),
            }
        }
    }

    #[test]
    fn within_the_budget_the_trace_runs_and_a_peak_is_tolerated() {
        let mut clock = Clock::new();
        assert_eq!(clock.run(100, 0.01), TraceMode::Continuous);
        clock.run(3, 0.05);
        assert_eq!(clock.run(10, 0.005), TraceMode::Continuous);
        assert_eq!(clock.attached_secs, 113);
    }

    #[test]
    fn above_it_runs_in_bursts_that_average_out_to_the_budget() {
        let mut clock = Clock::new();
        assert_eq!(clock.run(4, 0.075), TraceMode::Bursts { one_of: 8 });
        clock.attached_secs = 0;
        clock.run(800, 0.075);
        assert_eq!(clock.governor.scale(), 8);
        assert!((95..=105).contains(&clock.attached_secs), "{}", clock.attached_secs);
    }

    /// Polls are a few milliseconds early or late, as timers are.
    #[test]
    fn each_burst_stands_for_the_time_since_the_one_before() {
        for (share, one_of) in [(0.015, 2), (0.025, 3), (0.035, 4), (0.075, 8)] {
            let mut clock = Clock::new();
            clock.run(4, share);
            assert_eq!(clock.governor.mode(), TraceMode::Bursts { one_of });
            let (start, mut estimate) = (clock.now, Duration::ZERO);
            for poll in 0..50 * u64::from(one_of) {
                let before = clock.now;
                let late = Duration::from_millis([0, 7, 3, 9, 1, 5][poll as usize % 6]);
                let (scale, was_attached) = (clock.governor.scale(), clock.attached);
                clock.step_at(start + Duration::from_secs(poll + 1) + late, share);
                if was_attached {
                    estimate += (clock.now - before) * scale;
                }
            }
            let ratio = estimate.as_secs_f64() / (clock.now - start).as_secs_f64();
            assert!((ratio - 1.0).abs() < 0.03, "one of {one_of}: {ratio}");
        }
    }

    #[test]
    fn bursts_end_after_several_cheap_ones_and_not_after_one() {
        let mut clock = Clock::new();
        clock.run(4, 0.035);
        assert_eq!(clock.run(4, 0.001), TraceMode::Bursts { one_of: 2 });
        clock.run(8, 0.02);
        assert_eq!(clock.governor.mode(), TraceMode::Bursts { one_of: 2 });
        assert_eq!(clock.run(12, 0.001), TraceMode::Continuous);
        assert!(clock.attached);
    }

    #[test]
    fn the_trace_detaches_if_bursts_exceed_the_budget_and_retries() {
        let mut clock = Clock::new();
        assert_eq!(clock.run(4, 0.9), TraceMode::Detached);
        assert!(!clock.attached);
        assert_eq!(clock.run(599, 0.9), TraceMode::Detached);
        assert_eq!(clock.run(1, 0.9), TraceMode::Bursts { one_of: 60 });
        assert_eq!(clock.run(1, 0.9), TraceMode::Detached);
    }

    #[test]
    fn a_program_that_cannot_be_attached_again_is_tried_later() {
        let mut clock = Clock::new();
        clock.run(4, 0.05);
        clock.governor.give_up(clock.now);
        clock.attached = false;
        assert_eq!(clock.run(599, 0.0), TraceMode::Detached);
        assert_eq!(clock.run(1, 0.0), TraceMode::Bursts { one_of: 60 });
    }
}
