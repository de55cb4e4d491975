//! The program together with its governor and roll-up, driven by polling.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use snapshot::{Losses, TraceMode};

use crate::barrier::wait_for_runs;
use crate::batch::{Pending, drain_cgroups, drain_pairs};
use crate::cost::{CostMeter, Totals};
use crate::cpus::Cpus;
use crate::error::StartError;
use crate::governor::{Action, Governor, Usage};
use crate::heap;
use crate::layout::Cpu;
use crate::program::Program;
use crate::rollup::Rollup;
use crate::types::KernelTypes;
use crate::waits::{Owners, RunDelay, WaitReport};

/// Options of the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Mount point of sysfs: `/sys`.
    pub sys_root: PathBuf,
    /// Maximum share of the time of all online CPUs for the program, above 0:
    /// `--sched-trace-budget`.
    pub budget: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { sys_root: "/sys".into(), budget: 0.01 }
    }
}

/// The running trace. Dropping it detaches and unloads the program.
#[derive(Debug)]
pub struct SchedTrace {
    program: Program,
    cpus: Cpus,
    governor: Governor,
    cost: CostMeter,
    pending: Pending,
    rollup: Rollup,
    polled: Instant,
    report: WaitReport,
}

impl SchedTrace {
    /// Reads the kernel's types, loads the program and attaches it.
    ///
    /// # Errors
    /// A [`StartError`] with a one-word reason if the program cannot run here; nothing is left
    /// behind.
    pub fn start(options: &Options) -> Result<Self, StartError> {
        let started = KernelTypes::read(&options.sys_root)
            .and_then(|types| Self::start_with(options, &types));
        heap::give_back();
        started
    }

    /// As [`start`](Self::start), with the kernel's types.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_with(options: &Options, types: &KernelTypes) -> Result<Self, StartError> {
        let cpus = Cpus::read(&options.sys_root)?;
        let mut program = Program::load(&options.sys_root, types, &cpus)?;
        program.attach()?;
        let now = Instant::now();
        Ok(Self {
            governor: Governor::new(options.budget.max(f64::MIN_POSITIVE), now),
            cost: CostMeter::default(),
            pending: Pending::default(),
            rollup: Rollup::new(!cpus.siblings.is_empty()),
            polled: now,
            report: WaitReport::empty(),
            program,
            cpus,
        })
    }

    /// Collects the counts since the last poll, and decides whether the program continues. Call it
    /// once per second, but not on the sampler's thread: it takes tens of milliseconds, in which it
    /// waits for runs of the program to end.
    ///
    /// `now` never goes back. `delays` are the run delays read since the last poll.
    pub fn poll(
        &mut self,
        now: Instant,
        owners: &mut dyn Owners,
        delays: &[RunDelay],
    ) -> &WaitReport {
        let elapsed = now.saturating_duration_since(self.polled);
        self.polled = now;
        self.settle();
        self.collect(owners, elapsed, delays);
        let usage = Usage { cost: self.advance_cost(), capacity: elapsed * self.cpus.online };
        self.govern(now, usage);
        if owners.any_gone() {
            self.rollup.retain(owners);
        }
        self.write_report();
        &self.report
    }

    /// Result of the last poll.
    #[must_use]
    pub fn report(&self) -> &WaitReport {
        &self.report
    }

    /// Reads the half that was filled since the last poll. It no longer changes once the runs of the
    /// program have ended that began before the flip.
    fn collect(&mut self, owners: &mut dyn Owners, elapsed: Duration, delays: &[RunDelay]) {
        let tables = &self.program.tables;
        let retired = tables.half();
        tables.flip();
        wait_for_runs();
        let scale = self.governor.scale();
        self.rollup.retry(&mut self.pending, owners);
        let cgroups = drain_cgroups(tables.cgroups(retired), scale);
        let pairs = drain_pairs(tables.pairs(retired), scale);
        self.rollup.add(cgroups, pairs, &mut self.pending, owners);
        self.rollup.end_poll(elapsed.as_secs_f64());
        if self.governor.mode() == TraceMode::Continuous {
            self.rollup.reconcile(delays);
        }
    }

    /// Counts the waits in progress, so that what is read next is up to date, and a burst that ends
    /// loses none.
    fn settle(&self) {
        let busy = self.program.tables.cpus.iter().enumerate().filter(|(_, cpu)| !cpu.is_idle());
        busy.for_each(|(cpu, _)| self.program.settle(cpu as u32));
    }

    fn advance_cost(&mut self) -> Duration {
        self.cost.advance(Totals::read(&self.program.tables.cpus, self.program.run_time()))
    }

    fn govern(&mut self, now: Instant, usage: Usage) {
        let before = self.governor.mode();
        let action = self.governor.step(now, usage);
        if action == Action::Detach {
            self.program.detach();
        }
        if action == Action::Attach && self.program.attach().is_err() {
            self.governor.give_up(now);
        }
        let is_continuous = self.governor.mode() == TraceMode::Continuous;
        if is_continuous != (before == TraceMode::Continuous) {
            self.rollup.interrupt();
        }
    }

    fn write_report(&mut self) {
        let sum = |field: fn(&Cpu) -> &AtomicU64| -> u64 {
            self.program.tables.cpus.iter().map(|cpu| field(cpu).load(Relaxed)).sum()
        };
        self.report.mode = self.governor.mode();
        self.report.containers.clear();
        self.report.containers.extend(self.rollup.containers());
        self.report.containers.sort_unstable_by_key(|traced| traced.container);
        self.report.interference.clear();
        self.report.interference.extend(self.rollup.interference());
        self.report.lost = self.rollup.take_lost();
        self.report.losses = Losses {
            lost_waits: sum(|cpu| &cpu.lost_waits),
            lost_ns: sum(|cpu| &cpu.lost_ns),
            evicted_histories: sum(|cpu| &cpu.evicted),
            unknown_cgroup_ns: self.rollup.unknown_cgroup_ns,
        };
        self.report.switches = sum(|cpu| &cpu.switches);
        self.report.run_ns = self.cost.run_ns;
    }
}
