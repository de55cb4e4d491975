//! CPU time of other processes, and stolen time, on the measured CPUs.

use std::fs;

use testkit::Cgroup;

/// Microseconds per tick of /proc/stat.
const TICK_USEC: u64 = 10_000;

/// Counters at one time, microseconds, of the measured CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    at: u64,
    idle: u64,
    steal: u64,
    /// CPU time of all processes of the bench; `None` if it is not known per CPU (cgroup v2).
    ours: Option<u64>,
    cpus: u64,
}

/// Shares of the time of the measured CPUs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Disturbance {
    /// Used by others than the bench.
    pub(crate) others: f64,
    pub(crate) steal: f64,
}

impl Disturbance {
    pub(crate) fn text(self) -> String {
        let (others, steal) = (self.others * 100.0, self.steal * 100.0);
        format!("others used {others:.1} %, stolen {steal:.1} %")
    }
}

impl Reading {
    pub(crate) fn take(tree: &Cgroup, cpus: &[usize]) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let mut reading =
            Self { at: super::load::now(), idle: 0, steal: 0, ours: None, cpus: cpus.len() as u64 };
        for cpu in cpus {
            let name = format!("cpu{cpu} ");
            let line = stat.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
            let ticks: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
            // user nice system idle iowait irq softirq steal
            reading.idle += (ticks[3] + ticks[4]) * TICK_USEC;
            reading.steal += ticks[7] * TICK_USEC;
        }
        let file = tree.dir("cpuacct").join("cpuacct.usage_percpu");
        if let Ok(text) = fs::read_to_string(file) {
            let all: Vec<u64> = text.split_whitespace().map(|ns| ns.parse().unwrap()).collect();
            reading.ours = Some(cpus.iter().map(|cpu| all[*cpu] / 1000).sum());
        }
        reading
    }

    pub(crate) fn since(&self, before: &Self) -> Disturbance {
        let time = ((self.at - before.at) * self.cpus) as f64;
        let steal = (self.steal - before.steal) as f64 / time;
        let busy = 1.0 - (self.idle - before.idle) as f64 / time;
        let ours = self.ours.zip(before.ours).map(|(now, before)| (now - before) as f64 / time);
        Disturbance { others: ours.map_or(0.0, |ours| (busy - ours - steal).max(0.0)), steal }
    }
}
