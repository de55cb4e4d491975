//! The agent on real cgroups, observed tick by tick.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::exposition::{Exposition, Sample};
use super::{Agent, RealTree, eventually};

impl Agent {
    /// Starts the agent on a tree of real cgroups, without names.
    pub(crate) fn on(tree: &RealTree, more: &[&str]) -> Self {
        let kubepods = tree.kubepods().path().to_str().unwrap();
        // On an emulated CPU everything is expensive, which must not lengthen an interval.
        let mut args = vec!["--kubepods", kubepods, "--pod-source=none", "--cpu-budget=1000"];
        args.extend(more);
        // Most tests do not use the trace, and verifying its program of 3,000 instructions takes
        // time.
        if !more.iter().any(|arg| arg.starts_with("--sched-trace")) {
            args.push("--sched-trace=off");
        }
        Self::start(&args)
    }

    /// The page after this number of further complete ticks.
    pub(crate) fn after_ticks(&self, ticks: u64) -> Exposition {
        // A tick is counted after it was published; one more, for the tick in progress.
        let wanted = self.metrics().ticks() + ticks + 1;
        eventually("ticks of the agent", || self.metrics().ticks() >= wanted);
        self.metrics()
    }

    /// The first page with this number of ticks, which shows the tick after them.
    pub(crate) fn until_tick(&self, tick: u64) -> Exposition {
        eventually("a tick of the agent", || self.metrics().ticks() >= tick);
        self.metrics()
    }

    /// Process id of the agent.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; returns the exit status and the time until the exit.
    pub(crate) fn signal(mut self, signal: rustix::process::Signal) -> (ExitStatus, Duration) {
        let began = Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap();
        let status = self.child.wait().unwrap();
        (status, began.elapsed())
    }
}

impl Exposition {
    /// Number of completed ticks.
    pub(crate) fn ticks(&self) -> u64 {
        self.value("cpuwarden_sample_duration_seconds_count", &[]).unwrap_or(0.0) as u64
    }

    /// All samples with these labels.
    pub(crate) fn with(&self, labels: &[(&str, &str)]) -> Vec<Sample> {
        self.samples().filter(|sample| sample.has(labels)).collect()
    }

    /// The value of the only sample of this name with these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let samples = self.with_prefix(name).filter(|sample| sample.name == name);
        let found: Vec<f64> =
            samples.filter(|sample| sample.has(labels)).map(|sample| sample.value).collect();
        assert!(found.len() <= 1, "{name}{labels:?} is {found:?}");
        found.first().copied()
    }

    /// A value in seconds as nanoseconds: counters are exposed with nanosecond precision.
    pub(crate) fn nanoseconds(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        self.value(name, labels).map(|seconds| (seconds * 1e9).round() as u64)
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == *value)
    }
}
