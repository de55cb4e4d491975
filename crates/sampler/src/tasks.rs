//! Threads: their number, the number of runnable ones, and their waits. This cost grows with the
//! number of threads, so each tick scans some containers within a time budget. The cost is
//! exported.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cgroupfs::{Task, TaskReader, ThreadId};
use kernel_text::TaskSchedstat;
use snapshot::{ContainerRow, Threads};

use crate::cgroup::CgroupId;
use crate::contention::{ContainerTimes, Delays, ScanTime, ThreadDelay, ThrottledTime};
use crate::series::add;

/// Divisor of the interval that gives a tick's budget for threads: 0.5 ms per second, 0.05 % of a
/// core.
const BUDGET_OF_INTERVAL: u32 = 2000;
/// Maximum number of threads of one container that are read; above it, their number and the bounds
/// are absent.
const MAX_THREADS: usize = cgroupfs::bounded::ENTRIES - 1;

/// The scan of all containers' threads.
#[derive(Debug)]
pub(crate) struct TaskScan {
    reader: TaskReader,
    containers: HashMap<CgroupId, Delays>,
    threads: Vec<ThreadId>,
    tasks: Vec<Task>,
    cost: ScanCost,
    /// Time since boot when it was created.
    began: Duration,
}

/// Cost of the scans since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanCost {
    pub(crate) time: Duration,
    pub(crate) threads: u64,
    /// Whether some process of a container was found: there is none without the host's PID
    /// namespace.
    pub(crate) any_process: bool,
}

/// Time budget of one tick.
#[derive(Debug)]
pub(crate) struct ScanBudget {
    began: Instant,
    budget: Duration,
}

impl ScanBudget {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { began: Instant::now(), budget: interval / BUDGET_OF_INTERVAL }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.began.elapsed() >= self.budget
    }
}

impl TaskScan {
    pub(crate) fn new(proc_root: &Path) -> Self {
        let reader = TaskReader::new(proc_root);
        let (containers, cost) = (HashMap::new(), ScanCost::default());
        let (threads, tasks) = (Vec::new(), Vec::new());
        Self { reader, containers, threads, tasks, cost, began: since_boot() }
    }

    pub(crate) fn cost(&self) -> ScanCost {
        self.cost
    }

    pub(crate) fn forget(&mut self, id: CgroupId) {
        self.containers.remove(&id);
    }

    /// Scans all threads of a container. `tick`: time since the sampler's start; `throttled`: the
    /// container's throttled time so far.
    ///
    /// # Errors
    /// Fails if something exists but could not be read. The scan is then discarded, and the next
    /// one counts what it missed: a thread left out of one scan would count as new in the next.
    pub(crate) fn scan(
        &mut self,
        id: CgroupId,
        directory: &Path,
        tick: Duration,
        throttled: ThrottledTime,
        row: &mut ContainerRow,
    ) -> io::Result<()> {
        let began = Instant::now();
        let scan_began = since_boot();
        let result = self.read(directory);
        if result.is_ok() {
            let now = ScanTime { tick, began: scan_began, ended: since_boot() };
            self.apply(id, now, throttled, row);
        }
        self.cost.time += began.elapsed();
        result
    }

    /// Lists a container's threads and reads them, unless there are too many.
    fn read(&mut self, directory: &Path) -> io::Result<()> {
        self.threads.clear();
        self.tasks.clear();
        self.reader.threads(directory, &mut self.threads)?;
        self.cost.any_process |= !self.threads.is_empty();
        if self.threads.len() <= MAX_THREADS {
            for &thread in &self.threads {
                self.tasks.extend(self.reader.task(thread)?);
            }
        }
        self.cost.threads += self.tasks.len() as u64;
        Ok(())
    }

    /// Updates a row from the threads read.
    fn apply(
        &mut self,
        id: CgroupId,
        now: ScanTime,
        throttled: ThrottledTime,
        row: &mut ContainerRow,
    ) {
        let Self { containers, threads, tasks, began, .. } = self;
        row.threads = match threads.len() {
            0 => Threads::NoneVisible,
            count if count <= MAX_THREADS => Threads::Counted(count as u64),
            _ => Threads::TooMany,
        };
        row.first_pid = threads.first().map(|&(pid, _)| pid);
        row.runnable_threads = None;
        if tasks.is_empty() {
            return;
        }
        row.runnable_threads = Some(tasks.iter().filter(|task| task.runnable).count() as u64);
        let times = ContainerTimes { throttled, usage_ns: row.usage_ns };
        let mut scan = containers.entry(id).or_default().begin_scan(now, times);
        for &Task { tid, schedstat, started, runnable } in &*tasks {
            let TaskSchedstat { run_ns, run_delay_ns: delay_ns } = schedstat;
            scan.thread(ThreadDelay { tid, delay_ns, run_ns, runnable, started });
        }
        let contention = scan.end();
        // In the first scan the waits of threads that are older than the agent are history.
        let delay_ns = contention.map_or_else(|| young_delay_ns(tasks, *began), |it| it.delay_ns);
        add(&mut row.run_delay_ns, Some(delay_ns));
        add(&mut row.contention_lower_ns, contention.map(|contention| contention.lower_ns));
        add(&mut row.contention_upper_ns, contention.map(|contention| contention.upper_ns));
    }
}

/// Run delay of the threads that started after `began`.
fn young_delay_ns(tasks: &[Task], began: Duration) -> u64 {
    let is_young = |task: &&Task| task.started.is_some_and(|started| started >= began);
    tasks.iter().filter(is_young).map(|task| task.schedstat.run_delay_ns).sum()
}

/// Time since boot, as in a thread's `stat`.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
