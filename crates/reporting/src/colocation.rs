//! Best-effort pods that yield CPU, and CPU limits that burst.

use std::sync::Arc;
use std::time::Duration;

use api::{BestEffort, Colocation, ContainerName};
use metrics::AgentMetrics;
use watchdog::Part;
use yielding::rules::Step;
use yielding::{BestEffortReport, Mode, Report, Round};

use crate::burst::{self, Bursts};
use crate::events::EventSender;
use crate::writes::{Seen, export_writes, reason_not};

/// Takes the state of co-location for the views.
pub type Show = Box<dyn Fn(Colocation) + Send>;

/// Reports the passes over best-effort pods and bursts: to the log, the metrics and the views, and
/// as Events.
pub struct ColocationReporter {
    metrics: Arc<AgentMetrics>,
    events: Option<EventSender>,
    show: Show,
    interval: Duration,
    best_effort_seen: Seen,
    steps: Steps,
    burst_seen: Seen,
    bursts: Bursts,
}

impl ColocationReporter {
    /// A reporter of passes with this interval. `events` is `None` without `--events`; `show` takes
    /// the state for the views.
    #[must_use]
    pub fn new(
        metrics: Arc<AgentMetrics>,
        events: Option<EventSender>,
        show: Show,
        interval: Duration,
    ) -> Self {
        Self {
            metrics,
            events,
            show,
            interval,
            best_effort_seen: Seen::default(),
            steps: Steps::default(),
            burst_seen: Seen::default(),
            bursts: Bursts::default(),
        }
    }

    /// Reports a round. Returns whether the thread works: a panic is only counted.
    pub fn report(&mut self, round: &Round) -> bool {
        match round {
            Round::Waited => {}
            Round::Passed(report) => self.report_pass(report),
            Round::Panicked => {
                self.metrics.subsystem_restarted(Part::Yielding.as_str());
                return false;
            }
        }
        true
    }

    fn report_pass(&mut self, report: &Report) {
        (self.show)(colocation(report));
        if let Some(report) = &report.best_effort {
            log(&mut self.best_effort_seen, report);
            export(&self.metrics, report, self.interval);
            if let (Some(events), Some((step, reason))) = (&self.events, self.steps.next(report)) {
                events.best_effort(step, &reason);
            }
        }
        if let Some(report) = &report.burst {
            burst::log(&mut self.burst_seen, report);
            burst::export(self.metrics.burst(), report);
            if let Some(events) = &self.events {
                for (one, burst) in self.bursts.next(report) {
                    events.burst([&one.namespace, &one.pod, &one.uid], &burst);
                }
            }
        }
    }
}

/// The state for the views.
fn colocation(report: &Report) -> Colocation {
    let best_effort = report.best_effort.as_ref().map(|report| BestEffort {
        step: report.target.step().number(),
        enforcing: report.mode == Mode::Enforcing,
    });
    let restricted = report.best_effort.iter().flat_map(|report| &report.restricted);
    let written = report.burst.iter().filter(|report| report.mode == Mode::Enforcing);
    let name = |uid: &str, container: &str| ContainerName {
        uid: uid.to_owned(),
        container: container.to_owned(),
    };
    let bursts = written.flat_map(|report| &report.containers);
    Colocation {
        best_effort,
        yields: restricted.map(ToString::to_string).collect(),
        bursts: bursts.map(|one| name(&one.uid, &one.container)).collect(),
    }
}

/// Steps that are written, for Events.
#[derive(Debug, Default)]
struct Steps {
    written: Step,
}

impl Steps {
    /// The step of a pass with its reason, if it differs from the one before: without enforcement
    /// there is none.
    fn next(&mut self, report: &BestEffortReport) -> Option<(Step, String)> {
        let step = match report.mode {
            Mode::Enforcing => report.target.step(),
            Mode::Observing(_) => Step::None,
        };
        if std::mem::replace(&mut self.written, step) == step {
            return None;
        }
        let reason = match (&report.mode, &report.transition) {
            (Mode::Observing(reason), _) => reason.to_string(),
            (Mode::Enforcing, Some(change)) => change.reason.to_string(),
            (Mode::Enforcing, None) if step == Step::None => {
                "the controller was restarted".to_owned()
            }
            (Mode::Enforcing, None) => "the step is written again".to_owned(),
        };
        Some((step, reason))
    }
}

fn log(seen: &mut Seen, report: &BestEffortReport) {
    if seen.is_new_mode(&report.mode) {
        match &report.mode {
            Mode::Enforcing => tracing::info!("best-effort pods yield while others wait"),
            Mode::Observing(reason) => {
                tracing::info!(%reason, "observing best-effort pods; writing nothing");
            }
        }
    }
    if let Some(change) = &report.transition {
        let (from, to) = (change.from.step().number(), change.to.step().number());
        let target = format!("{:?}", change.to);
        tracing::info!(from, to, reason = %change.reason, target, "changed the restrictions of best-effort pods");
    }
    for error in seen.new_errors(&report.writes) {
        tracing::warn!(error, "failed to write a setting of a best-effort pod");
    }
}

fn export(metrics: &AgentMetrics, report: &BestEffortReport, interval: Duration) {
    let metrics = metrics.best_effort();
    let step = report.target.step().number();
    metrics.set_step(step, interval);
    metrics.set_enforcing(reason_not(&report.mode).as_deref());
    if let Some(harm) = &report.harm {
        metrics.set_harm(harm.lost);
    } else if !report.traced {
        metrics.remove_harm();
    }
    // A pass without a new sample has none.
    if let Some(cores) = report.budget_cores {
        metrics.set_budget(cores);
    }
    if let Some(change) = &report.transition {
        metrics.add_transition(change.to.step().number(), change.reason.name());
    }
    export_writes(&report.writes, |setting, result, times| {
        metrics.add_writes(setting, result, times);
    });
}

#[cfg(test)]
mod tests {
    use yielding::Why;
    use yielding::rules::{Harm, Reason, Target, Transition};

    use super::*;

    fn pass(mode: &Mode, idle: bool, changed: bool) -> BestEffortReport {
        let target = Target { idle, ..Target::default() };
        let from = Target { idle: idle != changed, ..Target::default() };
        let harm = Harm { lost: 0.2, victim: "shop/cart-0".to_owned() };
        let transition = Transition { from, to: target, reason: Reason::Harm(harm) };
        BestEffortReport {
            mode: mode.clone(),
            target,
            transition: changed.then_some(transition),
            traced: true,
            harm: None,
            budget_cores: None,
            pods: 1,
            restricted: Vec::new(),
            writes: Default::default(),
        }
    }

    #[test]
    fn a_written_step_is_reported_once_and_its_end_with_the_reason() {
        let (mut steps, observing) = (Steps::default(), Mode::Observing(Why::Drained));
        let mut next = |mode: &Mode, idle, changed| steps.next(&pass(mode, idle, changed));
        assert_eq!(next(&observing, true, true), None, "computed, not written");
        let again = (Step::Idle, "the step is written again".to_owned());
        assert_eq!(next(&Mode::Enforcing, true, false), Some(again));
        assert_eq!(next(&Mode::Enforcing, true, false), None);
        assert_eq!(
            next(&observing, true, false),
            Some((Step::None, "a drain is requested".to_owned()))
        );
        assert_eq!(next(&observing, false, true), None);
        let (step, reason) = next(&Mode::Enforcing, true, true).unwrap();
        assert!(step == Step::Idle && reason.contains("shop/cart-0 waits"), "{reason}");
    }
}
