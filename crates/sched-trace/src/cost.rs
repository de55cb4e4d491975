//! Cost of the programs: measured by the kernel if enabled, else estimated.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::layout::Cpu;

/// Cost of the hook per switch before any program starts, nanoseconds: the empty program in
/// `benches/switch.rs`. No measurement of the program's own run time includes it.
const HOOK_NS: u64 = 90;
/// Assumed run time of the program until some runs have been timed, nanoseconds: from
/// `benches/switch.rs`.
const NOMINAL_RUN_NS: u64 = 60;

/// Totals over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) switches: u64,
    /// Moves of tasks to other CPUs. A run for one of them costs no more than one for a switch.
    pub(crate) moves: u64,
    pub(crate) timed_runs: u64,
    pub(crate) timed_ns: u64,
    /// Run time measured by the kernel, nanoseconds; constant while `kernel.bpf_stats_enabled` is
    /// off.
    pub(crate) kernel_run_ns: u64,
}

impl Totals {
    pub(crate) fn read(cpus: &[Cpu], kernel_run_time: Option<Duration>) -> Self {
        let sum =
            |field: fn(&Cpu) -> &AtomicU64| cpus.iter().map(|cpu| field(cpu).load(Relaxed)).sum();
        Self {
            switches: sum(|cpu| &cpu.switches),
            moves: sum(|cpu| &cpu.moves),
            timed_runs: sum(|cpu| &cpu.timed_runs),
            timed_ns: sum(|cpu| &cpu.timed_ns),
            kernel_run_ns: kernel_run_time.map_or(0, |time| time.as_nanos() as u64),
        }
    }
}

/// Accumulates the cost.
#[derive(Debug, Default)]
pub(crate) struct CostMeter {
    last: Totals,
    /// CPU time since the start, nanoseconds.
    pub(crate) run_ns: u64,
}

impl CostMeter {
    /// CPU time since the last call.
    pub(crate) fn advance(&mut self, now: Totals) -> Duration {
        let runs = now.switches + now.moves - self.last.switches - self.last.moves;
        let measured_ns = now.kernel_run_ns.saturating_sub(self.last.kernel_run_ns);
        let timed_ns = now.timed_ns.checked_div(now.timed_runs).unwrap_or(NOMINAL_RUN_NS);
        let own_ns = if measured_ns > 0 { measured_ns } else { runs * timed_ns };
        self.last = now;
        let cost_ns = own_ns + runs * HOOK_NS;
        self.run_ns += cost_ns;
        Duration::from_nanos(cost_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_costs_as_much_as_a_switch() {
        let mut meter = CostMeter::default();
        let totals = Totals { switches: 3, moves: 4, ..Totals::default() };
        assert_eq!(meter.advance(totals).as_nanos(), u128::from(7 * (NOMINAL_RUN_NS + HOOK_NS)));
    }

    #[test]
    fn switches_cost_what_sampled_runs_took_and_the_hook() {
        let mut meter = CostMeter::default();
        let mut totals = Totals { switches: 1000, ..Totals::default() };
        assert_eq!(meter.advance(totals).as_nanos(), u128::from(1000 * (NOMINAL_RUN_NS + HOOK_NS)));
        totals = Totals { switches: 3000, timed_runs: 2, timed_ns: 400, ..totals };
        assert_eq!(meter.advance(totals).as_nanos(), u128::from(2000 * (200 + HOOK_NS)));
        assert_eq!(meter.run_ns, 1000 * (NOMINAL_RUN_NS + HOOK_NS) + 2000 * (200 + HOOK_NS));
    }

    #[test]
    fn the_kernels_measure_takes_precedence_while_it_moves() {
        let mut meter = CostMeter::default();
        let totals = Totals {
            switches: 10,
            timed_runs: 1,
            timed_ns: 50,
            kernel_run_ns: 700,
            ..Totals::default()
        };
        assert_eq!(meter.advance(totals).as_nanos(), u128::from(700 + 10 * HOOK_NS));
        let totals = Totals { switches: 20, ..totals };
        assert_eq!(meter.advance(totals).as_nanos(), u128::from(10 * (50 + HOOK_NS)));
    }
}
