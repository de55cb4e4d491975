//! A node of plain files, like one with cgroup v2, whose pods are replaced. Some pods use CPU, are
//! throttled and wait for each other.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kubepods::model::{Container, ContainerState, Owner, Phase, Pod, Resources};
use kubepods::path::QosClass;
use kubepods::{PodIndex, PodNames};
use snapshot::{
    Culprit, InterferenceRow, Losses, LostTime, NodeWaits, PodIdentity, PollLosses, TraceMode,
    TraceRow,
};

/// Pods that live for a few seconds at most; the others are replaced by them from time to time.
const SHORT: usize = 5;
/// One of this number of replacements is that of a pod that has lived for long.
const SELDOM: u64 = 50;
/// One pod in this number is busy.
const BUSY: u64 = 7;
/// A new version of the images after this number of pods.
const VERSION: u64 = 5_000;
/// CPU time of a busy container and time in which it is throttled, microseconds per second.
const USED_USEC: u64 = 300_000;
const THROTTLED_USEC: u64 = 50_000;
/// Time that a busy pod loses to another one, nanoseconds per second.
const LOST_NS: u64 = 200_000_000;

/// The files of a container that never change, and of which a pod has the first ones. All cgroups
/// share them by links, which costs less than files of their own.
const FIXED: [(&str, &str); 9] = [
    ("cpu.max", "50000 100000\n"),
    ("cgroup.procs", ""),
    ("cpu.pressure", "some avg10=0.00 avg60=0.36 avg300=0.29 total=1313362\n"),
    ("cpu.stat.local", "throttled_usec 0\n"),
    ("cpu.weight", "10\n"),
    ("cpuset.cpus.effective", "0-3\n"),
    ("memory.current", "20889600\n"),
    ("memory.max", "134217728\n"),
    ("memory.stat", "anon 16777216\nfile 4112384\ninactive_file 1028096\n"),
];
const OF_POD: usize = 1;

/// The list of the pods, which is always up to date.
#[derive(Clone, Default)]
pub(crate) struct Names(Arc<Mutex<(Arc<PodIndex>, Option<Instant>)>>);

impl PodNames for Names {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    fn listed_at(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn ask(&self, _: &str, _: &str) {}

    fn may_answer(&self) -> bool {
        true
    }
}

/// The node.
pub(crate) struct Node {
    root: PathBuf,
    /// Oldest first.
    present: VecDeque<Present>,
    /// Number of pods so far.
    created: u64,
    pub(crate) names: Names,
}

struct Present {
    pod: Arc<Pod>,
    identity: Arc<PodIdentity>,
    path: PathBuf,
    is_busy: bool,
    /// Second of its start.
    since: u64,
}

impl Node {
    /// Creates the files of a node with this number of pods.
    pub(crate) fn create(root: &Path, pods: usize) -> Self {
        let mut node = Self {
            root: root.to_owned(),
            present: VecDeque::new(),
            created: 0,
            names: Names::default(),
        };
        fs::create_dir_all(root.join("kubepods/burstable")).unwrap();
        write(root, "cgroup.controllers", "cpuset cpu io memory pids\n");
        for (file, text) in FIXED {
            write(root, file, text);
        }
        (0..pods).for_each(|_| node.add(0));
        node
    }

    /// Container starts so far.
    pub(crate) fn started(&self) -> u64 {
        2 * self.created
    }

    /// Replaces the oldest of the pods that live shortly, or of all pods.
    pub(crate) fn replace(&mut self, second: u64) {
        let is_short = !self.created.is_multiple_of(SELDOM);
        let at = if is_short { self.present.len().saturating_sub(SHORT) } else { 0 };
        if let Some(oldest) = self.present.remove(at) {
            fs::remove_dir_all(&oldest.path).unwrap();
        }
        self.add(second);
    }

    fn add(&mut self, second: u64) {
        let number = self.created;
        self.created += 1;
        let pod = Arc::new(pod(number));
        let path = self.root.join(format!("kubepods/burstable/pod{}", pod.uid));
        self.write_cgroup(&path, &FIXED[..OF_POD]);
        pod.containers.iter().filter_map(|one| one.id.as_deref()).for_each(|id| {
            self.write_cgroup(&path.join(id), &FIXED);
        });
        let identity = PodIdentity::new(pod.namespace.to_string(), pod.name.to_string());
        let (identity, is_busy) = (Arc::new(identity), number.is_multiple_of(BUSY));
        self.present.push_back(Present { pod, identity, path, is_busy, since: second });
    }

    fn write_cgroup(&self, path: &Path, fixed: &[(&str, &str)]) {
        fs::create_dir(path).unwrap();
        write(path, "cpu.stat", &cpu_stat(0));
        for (file, _) in fixed {
            fs::hard_link(self.root.join(file), path.join(file)).unwrap();
        }
    }

    /// Lists the pods, and moves the counters of the busy ones on.
    pub(crate) fn advance(&self, second: u64, now: Instant) {
        let pods = self.present.iter().map(|present| Arc::clone(&present.pod)).collect();
        let mut names = self.names.0.lock().unwrap_or_else(PoisonError::into_inner);
        *names = (Arc::new(PodIndex::build(&names.0, pods, [])), Some(now));
        for present in self.busy() {
            let age = second - present.since;
            write(&present.path, "cpu.stat", &cpu_stat(2 * age));
            for id in present.pod.containers.iter().filter_map(|one| one.id.as_deref()) {
                write(&present.path.join(id), "cpu.stat", &cpu_stat(age));
            }
        }
    }

    /// Waits as the trace would find them: each busy pod waits for the one that started after it.
    pub(crate) fn waits(&self, second: u64, now: Instant) -> NodeWaits {
        let pairs = || self.busy().zip(self.busy().skip(1));
        let victims = pairs().map(|(victim, other)| LostTime {
            victim: Arc::clone(&victim.identity),
            by: vec![(Culprit::Pod(Arc::clone(&other.identity)), LOST_NS)],
            wakeups: 50,
            late_wakeups: 5,
        });
        let polled = PollLosses { polled_at: now, victims: victims.collect() };
        let interference = pairs().map(|(victim, other)| InterferenceRow {
            victim: Arc::clone(&victim.identity),
            aggressor_namespace: other.identity.namespace.as_str().into(),
            aggressor_pod: other.identity.pod.as_str().into(),
            wait_ns: (second - other.since) * LOST_NS,
        });
        let losses = Losses::default();
        let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: second, losses };
        NodeWaits {
            interference: interference.collect(),
            lost: vec![Arc::new(polled)],
            trace: Some(trace),
            ..NodeWaits::default()
        }
    }

    fn busy(&self) -> impl Iterator<Item = &Present> {
        self.present.iter().filter(|present| present.is_busy)
    }
}

/// Pod of this number. All have names of their own; workloads and images are those of others, too.
fn pod(number: u64) -> Pod {
    let containers = [0, 1].map(|at| Container {
        name: format!("c{at}").into(),
        id: Some(format!("{:064x}", 2 * number + at + 1).into()),
        image: format!("registry.example/shop/app:{}", number / VERSION).into(),
        resources: Resources {
            cpu_request_millis: Some(250),
            cpu_limit_millis: Some(500),
            memory_limit_bytes: Some(128 << 20),
            ..Resources::default()
        },
        state: ContainerState::Running,
        is_final: true,
        ..Container::default()
    });
    let workload = format!("web-{}", number % 25);
    Pod {
        namespace: format!("team-{}", number % 7).into(),
        name: format!("{workload}-{number:x}").into(),
        uid: format!("00000000-0000-4000-8000-{number:012x}").into(),
        qos_class: Some(QosClass::Burstable),
        owner: Some(Owner { kind: "Deployment".into(), name: workload.into() }),
        phase: Phase::Running,
        containers: containers.into(),
        ..Pod::default()
    }
}

/// Counters of a container that has been busy for this time.
fn cpu_stat(seconds: u64) -> String {
    let (used, throttled) = (seconds * USED_USEC, seconds * THROTTLED_USEC);
    format!(
        "usage_usec {used}\nuser_usec {used}\nsystem_usec 0\nnr_periods {}\nnr_throttled {}\n\
         throttled_usec {throttled}\nnr_bursts 0\nburst_usec 0\n",
        10 * seconds,
        seconds
    )
}

fn write(path: &Path, file: &str, text: &str) {
    fs::write(path.join(file), text).unwrap();
}
