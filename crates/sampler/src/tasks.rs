//! Threads: how many, how many want a CPU, and how long they waited. The one cost that grows with threads, so it is
//! taken in turns within a budget of time a tick, and its cost is exported.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cgroupfs::{TaskReader, ThreadId};

use crate::cgroup::CgroupId;
use crate::contention::Delays;
use crate::series::add;
use crate::snapshot::ContainerRow;

/// Part of the interval that a tick's threads may take: 0.5 ms at one second, 0.05 % of a core.
const BUDGET_OF_INTERVAL: u32 = 2000;
/// Threads of one container that are read; where there are more, their number and the bounds are absent.
const MOST_THREADS: usize = cgroupfs::bounded::ENTRIES - 1;

/// The scan over all containers' threads.
#[derive(Debug)]
pub(crate) struct TaskScan {
    reader: TaskReader,
    containers: HashMap<CgroupId, Delays>,
    threads: Vec<ThreadId>,
    cost: ScanCost,
}

/// What the scans have cost since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanCost {
    pub(crate) time: Duration,
    pub(crate) threads: u64,
    /// Some process of a container was seen: without the host's PID namespace there is none.
    pub(crate) any_process: bool,
}

/// The budget of one tick.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Instant,
    budget: Duration,
}

impl Turn {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { began: Instant::now(), budget: interval / BUDGET_OF_INTERVAL }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= self.budget
    }
}

impl TaskScan {
    pub(crate) fn new(proc_root: &Path) -> Self {
        let reader = TaskReader::new(proc_root);
        Self { reader, containers: HashMap::new(), threads: Vec::new(), cost: ScanCost::default() }
    }

    pub(crate) fn cost(&self) -> ScanCost {
        self.cost
    }

    pub(crate) fn forget(&mut self, id: CgroupId) {
        self.containers.remove(&id);
    }

    /// Looks at all threads of a container.
    pub(crate) fn scan(&mut self, id: CgroupId, directory: &Path, row: &mut ContainerRow) {
        let began = Instant::now();
        let delays = self.containers.entry(id).or_default();
        let threads = &mut self.threads;
        threads.clear();
        self.reader.threads(directory, threads);
        self.cost.any_process |= !threads.is_empty();
        row.threads = (1..=MOST_THREADS).contains(&threads.len()).then_some(threads.len() as u64);
        row.first_pid = threads.first().map(|&(pid, _)| pid);
        row.runnable_threads = None;
        if !threads.is_empty() && threads.len() <= MOST_THREADS {
            let denied_ns = row.cfs.map_or(0, |cfs| cfs.throttled_ns) + row.throttled_ancestor_ns.unwrap_or(0);
            let mut look = delays.look();
            let (mut runnable, mut read) = (0, 0);
            for &mut thread in threads {
                let Some(task) = self.reader.task(thread) else { continue };
                look.thread(task.tid, task.schedstat.run_delay_ns);
                runnable += u64::from(task.runnable);
                read += 1;
            }
            let contention = look.end(denied_ns);
            row.runnable_threads = (read > 0).then_some(runnable);
            if read > 0 {
                // From the first look on: what was waited before is history.
                add(&mut row.run_delay_ns, Some(contention.map_or(0, |contention| contention.delay_ns)));
            }
            if let Some(contention) = contention.filter(|_| read > 0) {
                add(&mut row.contention_lower_ns, Some(contention.lower_ns));
                add(&mut row.contention_upper_ns, Some(contention.upper_ns));
            }
            self.cost.threads += read;
        }
        self.cost.time += began.elapsed();
    }
}
