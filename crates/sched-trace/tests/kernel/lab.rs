//! Pods of spinners on one CPU, a trace of them, and what the kernel itself says of their waits.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kernel_text::TaskSchedstat;
use rustix::process::{Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use sched_trace::{
    Aggressor, ContainerId, Options, Owner, Owners, PodId, RunDelay, SchedTrace, WaitReport,
};
use snapshot::{ContainerWaits, Histogram, SmtShares};
use testkit::{Cgroup, OwnedCgroup, READY, Running, Workload, load, turn};

use crate::lost::Lost;

/// For how long the spinners spin.
pub(crate) const SPAN: Duration = Duration::from_secs(3);
/// A stopped process is stopped when it has left its throttled run queue, a period later; beyond
/// any reason.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Checks the condition every 2 ms until it holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        sleep(Duration::from_millis(2));
    }
}

/// Words of a process of one thread that runs without a pause.
fn spin_words() -> [String; 3] {
    let script = format!("echo '{READY}'; read -r go; {}", load::SPIN_IN_SHELL);
    ["sh".to_owned(), "-c".to_owned(), script]
}

/// Owners of a test's cgroups; all other cgroups belong to the system.
#[derive(Debug, Default)]
struct Known(HashMap<u64, Owner>);

impl Owners for Known {
    fn owner(&mut self, cgroup: u64) -> Owner {
        self.0.get(&cgroup).copied().unwrap_or(Owner::System)
    }

    fn has_container(&self, id: ContainerId) -> bool {
        self.0
            .values()
            .any(|owner| matches!(owner, Owner::Container { container, .. } if *container == id))
    }

    fn has_pod(&self, id: PodId) -> bool {
        self.0.values().any(|owner| *owner == Owner::Pod(id))
    }
}

/// A container, with its processes.
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    pub(crate) cgroup: Cgroup,
    spinners: Vec<Spinner>,
}

/// A pod of one container or several.
pub(crate) struct Pod {
    pub(crate) id: PodId,
    pub(crate) cgroup: Cgroup,
}

pub(crate) struct Lab {
    /// Until it is dropped.
    trace: Option<SchedTrace>,
    is_shared: bool,
    known: Known,
    /// Lost time of each pod since the start of the lab.
    lost: HashMap<PodId, Lost>,
    /// The pods' parent, removed with them.
    root: OwnedCgroup,
    next_id: u64,
    _turn: MutexGuard<'static, ()>,
}

/// The trace of all tests with the same options: to load one takes seconds in the node.
static SHARED: Mutex<Option<SchedTrace>> = Mutex::new(None);

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_shared {
            *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = self.trace.take();
        }
    }
}

/// Run and wait times of a container's tasks, and the trace's attribution of the waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) found: ContainerWaits,
    /// Sums over the tasks, `/proc/PID/schedstat`.
    pub(crate) run_ns: u64,
    pub(crate) delay_ns: u64,
    /// Throttled time of the container's own quota, from `cpu.stat`.
    pub(crate) throttled_ns: u64,
}

fn start(budget: f64) -> SchedTrace {
    let options = Options { budget, ..Options::default() };
    SchedTrace::start(&options).unwrap_or_else(|error| panic!("{}: {error:?}", error.reason()))
}

impl Lab {
    /// With a trace that may take what it needs.
    pub(crate) fn new() -> Self {
        let turn = turn();
        let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self::around(shared.unwrap_or_else(|| start(1.0)), true, turn)
    }

    /// With a trace of its own. `budget`: its share of the CPUs.
    pub(crate) fn with_budget(budget: f64) -> Self {
        let turn = turn();
        Self::around(start(budget), false, turn)
    }

    fn around(trace: SchedTrace, is_shared: bool, turn: MutexGuard<'static, ()>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        // Its children together get the CPU before everything else on the machine.
        let name = format!("cpuwarden-sched-trace-{}-{number}", std::process::id());
        let root = OwnedCgroup::create(name);
        root.set_highest_weight();
        // Numbers are never used again, so not by the next test either.
        Self {
            trace: Some(trace),
            is_shared,
            known: Known::default(),
            lost: HashMap::new(),
            root,
            next_id: number * 1000,
            _turn: turn,
        }
    }

    /// Replaces the trace by one that knows nothing yet. Only for a lab with a trace of its own.
    pub(crate) fn restart_trace(&mut self, budget: f64) {
        assert!(!self.is_shared, "other tests use this trace");
        self.trace = None;
        self.trace = Some(start(budget));
    }

    /// Lets the rest of the machine have its part of the CPUs.
    pub(crate) fn take_turns_with_others(&self) {
        self.root.set_default_weight();
    }

    pub(crate) fn trace(&mut self) -> &mut SchedTrace {
        self.trace.as_mut().expect("it is there until the drop")
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn pod(&mut self, name: &str) -> Pod {
        let pod = Pod { id: PodId(self.id()), cgroup: self.root.child(name) };
        self.known.0.insert(pod.cgroup.inode(), Owner::Pod(pod.id));
        pod
    }

    pub(crate) fn container(&mut self, pod: &Pod, name: &str) -> Container {
        let container = Container {
            id: ContainerId(self.id()),
            cgroup: pod.cgroup.child(name),
            spinners: Vec::new(),
        };
        let owner = Owner::Container { container: container.id, pod: pod.id };
        self.known.0.insert(container.cgroup.inode(), owner);
        container
    }

    pub(crate) fn poll(&mut self, delays: &[RunDelay]) -> &WaitReport {
        self.poll_at(Instant::now(), delays)
    }

    pub(crate) fn poll_at(&mut self, now: Instant, delays: &[RunDelay]) -> &WaitReport {
        let trace = self.trace.as_mut().expect("it is there until the drop");
        let report = trace.poll(now, &mut self.known, delays);
        for row in &report.lost {
            self.lost.entry(row.victim).or_default().add(row);
        }
        report
    }

    /// Time that a pod has lost by the last poll.
    pub(crate) fn lost(&self, victim: PodId) -> Lost {
        self.lost.get(&victim).cloned().unwrap_or_default()
    }

    /// All that was counted until now, found and true.
    fn now(&mut self, containers: &[&Container]) -> Vec<Measured> {
        let truth: Vec<_> = containers.iter().map(|container| container.truth()).collect();
        // The first makes the program fill the other half, the second reads what it filled until
        // then.
        self.poll(&[]);
        self.poll(&[]);
        let report = self.trace().report().clone();
        let with_found = |(&container, truth): (&&Container, Measured)| {
            let found = report.waits(container.id);
            Measured { found: found.map_or(truth.found, |waits| **waits), ..truth }
        };
        containers.iter().zip(truth).map(with_found).collect()
    }

    /// Lets the containers run for a while, and says what came of it.
    pub(crate) fn measure<const N: usize>(&mut self, containers: [&Container; N]) -> [Measured; N] {
        self.measure_with(containers, |_| sleep(SPAN))
    }

    /// Lets the containers run `meanwhile`, and says what came of it. At both ends everything
    /// stands still, so that no wait is counted on one side and not yet on the other.
    pub(crate) fn measure_with<const N: usize>(
        &mut self,
        containers: [&Container; N],
        meanwhile: impl FnOnce(&mut Self),
    ) -> [Measured; N] {
        let before = self.now(&containers);
        let lost = self.trace().report().losses;
        containers.iter().for_each(|container| container.signal(Signal::CONT));
        meanwhile(self);
        containers.iter().for_each(|container| container.signal(Signal::STOP));
        containers.iter().for_each(|container| container.wait_until_stopped());
        let after = self.now(&containers);
        assert_eq!(self.trace().report().losses, lost, "a table was full");
        std::array::from_fn(|index| after[index].since(&before[index]))
    }

    /// Time for which one pod made the other wait, since the start, nanoseconds.
    pub(crate) fn interference_ns(&self, victim: PodId, aggressor: Aggressor) -> u64 {
        let mut rows =
            self.trace.as_ref().expect("it is there until the drop").report().interference.iter();
        rows.find(|(pair, _)| *pair == (victim, aggressor)).map_or(0, |(_, wait_ns)| *wait_ns)
    }
}

impl Container {
    /// Adds a process that, once it may, runs on this CPU only and without a pause.
    pub(crate) fn spin(&mut self, cpu: u32) {
        self.start(cpu, &spin_words());
    }

    /// Adds a process with such threads.
    pub(crate) fn burst(&mut self, cpu: u32, bursts: &[Workload]) {
        self.start(cpu, &Workload::words(bursts));
    }

    fn start(&mut self, cpu: u32, words: &[String]) {
        self.spinners.push(Spinner::spawn(self.cgroup.command("taskset"), cpu, words));
    }

    /// Run delay of all tasks.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.truth().delay_ns
    }

    /// Run time of all tasks.
    pub(crate) fn run_ns(&self) -> u64 {
        self.truth().run_ns
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.spinners.iter().map(|spinner| spinner.running.pid())
    }

    /// Moves all its processes to another CPU.
    pub(crate) fn move_to(&self, cpu: u32) {
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        self.spinners
            .iter()
            .for_each(|spinner| sched_setaffinity(Some(spinner.running.process()), &cpus).unwrap());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.spinners.iter().for_each(|spinner| spinner.signal(signal));
    }

    pub(crate) fn wait_until_stopped(&self) {
        self.spinners.iter().for_each(Spinner::wait_until_stopped);
    }

    fn truth(&self) -> Measured {
        let times: Vec<_> = self.spinners.iter().map(Spinner::schedstat).collect();
        Measured {
            found: ContainerWaits::default(),
            run_ns: times.iter().map(|time| time.run_ns).sum(),
            delay_ns: times.iter().map(|time| time.run_delay_ns).sum(),
            throttled_ns: self.cgroup.throttled_ns(),
        }
    }
}

impl Measured {
    fn since(&self, before: &Self) -> Self {
        let (found, earlier) = (self.found, before.found);
        Self {
            found: ContainerWaits {
                throttled_ns: found.throttled_ns - earlier.throttled_ns,
                neighbor_ns: found.neighbor_ns - earlier.neighbor_ns,
                self_ns: found.self_ns - earlier.self_ns,
                system_ns: found.system_ns - earlier.system_ns,
                unattributed_ns: found.unattributed_ns - earlier.unattributed_ns,
                smt: found.smt.map(|smt| {
                    let earlier = earlier.smt.unwrap_or_default();
                    SmtShares {
                        self_ns: smt.self_ns - earlier.self_ns,
                        other_ns: smt.other_ns - earlier.other_ns,
                        idle_ns: smt.idle_ns - earlier.idle_ns,
                    }
                }),
                latency: gained(&found.latency, &earlier.latency),
                stalls: gained(&found.stalls, &earlier.stalls),
            },
            run_ns: self.run_ns - before.run_ns,
            delay_ns: self.delay_ns - before.delay_ns,
            throttled_ns: self.throttled_ns - before.throttled_ns,
        }
    }

    /// All causes together.
    pub(crate) fn sum_ns(&self) -> u64 {
        let found = &self.found;
        found.throttled_ns
            + found.neighbor_ns
            + found.self_ns
            + found.system_ns
            + found.unattributed_ns
    }
}

fn gained(now: &Histogram, before: &Histogram) -> Histogram {
    let counts = std::array::from_fn(|bucket| now.counts[bucket] - before.counts[bucket]);
    Histogram { counts, sum_ns: now.sum_ns - before.sum_ns }
}

/// A process that works between SIGCONT and SIGSTOP; dropping it ends it.
pub(crate) struct Spinner {
    running: Running,
}

impl Spinner {
    /// Starts a process in the caller's cgroup, for one CPU, that spins after SIGCONT; `prefix` is
    /// a command that runs the command after it.
    pub(crate) fn start(cpu: u32, prefix: &[&str]) -> Self {
        let prefix = prefix.iter().map(|&word| word.to_owned());
        let words: Vec<_> = prefix.chain(spin_words()).collect();
        Self::spawn(Command::new("taskset"), cpu, &words)
    }

    /// `command` runs taskset.
    fn spawn(mut command: Command, cpu: u32, words: &[String]) -> Self {
        command.arg(format!("{:x}", 1 << cpu)).args(words);
        let running = Running::start(command, |line| line == READY).0;
        let mut spinner = Self { running };
        spinner.signal(Signal::STOP);
        spinner.wait_until_stopped();
        // It reads this when it continues.
        spinner.running.go();
        spinner
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.running.process(), signal).unwrap();
    }

    pub(crate) fn wait_until_stopped(&self) {
        let path = format!("/proc/{}/stat", self.running.pid());
        eventually("a stopped process", || fs::read_to_string(&path).unwrap().contains(") T "));
    }

    /// Sum over all its threads.
    pub(crate) fn schedstat(&self) -> TaskSchedstat {
        let mut sum = TaskSchedstat::default();
        for task in fs::read_dir(format!("/proc/{}/task", self.running.pid())).unwrap() {
            let time =
                TaskSchedstat::parse(&fs::read(task.unwrap().path().join("schedstat")).unwrap())
                    .unwrap();
            sum.run_ns += time.run_ns;
            sum.run_delay_ns += time.run_delay_ns;
        }
        sum
    }
}

/// The last CPU of the machine: the first does most of its work.
pub(crate) fn last_cpu() -> u32 {
    let online = cgroupfs::node::cpu_list("/sys".as_ref(), "online").unwrap();
    online.iter().last().unwrap()
}

/// Time in which the CPU was not idle, by its ticks in `/proc/stat`.
pub(crate) fn busy_ns(cpu: u32) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).unwrap();
    let ticks: Vec<u64> = line.split_whitespace().map(|ticks| ticks.parse().unwrap()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        panic!("{line}")
    };
    (user + nice + system + irq + softirq) * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}
