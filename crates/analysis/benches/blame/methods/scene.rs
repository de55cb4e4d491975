//! A node: its pods, containers and threads, and the stream of scheduler events that they make.

/// Nanoseconds.
pub(crate) type Ns = u64;

pub(crate) const US: Ns = 1_000;
pub(crate) const MS: Ns = 1_000_000;
pub(crate) const SECOND: Ns = 1_000_000_000;
/// The host's services and kernel threads are the first pod.
pub(crate) const SYSTEM: usize = 0;
/// CFS period.
pub(crate) const PERIOD: Ns = 100 * MS;

#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: &'static str,
    /// Controller; the name without one.
    pub(crate) workload: &'static str,
    /// Cores.
    pub(crate) request: f64,
    pub(crate) best_effort: bool,
    pub(crate) has_quota: bool,
}

/// A cgroup. Only containers have threads.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// `None` above the pods.
    pub(crate) pod: Option<usize>,
    pub(crate) parent: Option<usize>,
    /// `cpu.shares`.
    pub(crate) weight: u64,
    /// CPU time per period.
    pub(crate) quota: Option<Ns>,
    /// `SCHED_IDLE`.
    pub(crate) is_idle: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    Spin,
    /// Wakes up `every` so often and runs for `work`.
    Periodic {
        work: Ns,
        every: Ns,
    },
    /// The same, and each time it is a new thread.
    Forking {
        work: Ns,
        every: Ns,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) group: usize,
    pub(crate) load: Load,
    /// CPUs that it may use, as bits.
    pub(crate) cpus: u64,
    pub(crate) begins: Ns,
    pub(crate) ends: Ns,
    /// How often it is moved to the next CPU while it waits.
    pub(crate) moved_every: Option<Ns>,
}

/// A node for some time. The victim is a pod.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) cpus: usize,
    pub(crate) pods: Vec<Pod>,
    pub(crate) groups: Vec<Group>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) victim: usize,
    pub(crate) length: Ns,
}

/// The length of all scenes that are simulated.
pub(crate) const LENGTH: Ns = 60 * SECOND;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `None` is the idle thread. `stays`: the thread that leaves is still runnable.
    Switch {
        prev: Option<usize>,
        next: Option<usize>,
        stays: bool,
    },
    Wakeup {
        thread: usize,
    },
    /// A queued thread came here from another CPU.
    Migrate {
        thread: usize,
    },
    /// The run queue of this cgroup with a quota, on this CPU.
    Throttle {
        group: usize,
    },
    Unthrottle {
        group: usize,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) at: Ns,
    pub(crate) cpu: usize,
    pub(crate) kind: Kind,
}

impl Scene {
    pub(crate) fn new(cpus: usize) -> Self {
        let system = Pod {
            name: "system",
            workload: "system",
            request: 0.0,
            best_effort: false,
            has_quota: false,
        };
        let (pods, groups, threads) = (vec![system], Vec::new(), Vec::new());
        let scene = Self { cpus, pods, groups, threads, victim: 0, length: LENGTH };
        scene.container(SYSTEM, "host", 1024)
    }

    /// Adds a pod with one container of this weight, and with a request that fits the weight.
    pub(crate) fn pod(mut self, name: &'static str, weight: u64) -> Self {
        self.pods.push(Pod {
            name,
            workload: name,
            request: weight as f64 / 1024.0,
            best_effort: false,
            has_quota: false,
        });
        let pod = self.pods.len() - 1;
        self.container(pod, "app", weight)
    }

    pub(crate) fn container(mut self, pod: usize, name: &'static str, weight: u64) -> Self {
        let (pod, parent) = (Some(pod), None);
        self.groups.push(Group { name, pod, parent, weight, quota: None, is_idle: false });
        self
    }

    /// The pod that was added last.
    pub(crate) fn last(&self) -> usize {
        self.pods.len() - 1
    }

    pub(crate) fn victim(mut self) -> Self {
        self.victim = self.last();
        self
    }

    pub(crate) fn of_workload(mut self, workload: &'static str) -> Self {
        let pod = self.last();
        self.pods[pod].workload = workload;
        self
    }

    pub(crate) fn best_effort(mut self) -> Self {
        let pod = self.last();
        self.pods[pod].best_effort = true;
        self.pods[pod].request = 0.0;
        self
    }

    pub(crate) fn sched_idle(mut self) -> Self {
        let group = self.groups.len() - 1;
        self.groups[group].is_idle = true;
        self.groups[group].weight = 3;
        self
    }

    /// A CPU limit for the container that was added last, in hundredths of a core.
    pub(crate) fn limit(mut self, percent: u64) -> Self {
        let group = self.groups.len() - 1;
        self.groups[group].quota = Some(percent * PERIOD / 100);
        self
    }

    /// A quota for the pod that was added last, in hundredths of a core.
    pub(crate) fn pod_limit(mut self, percent: u64) -> Self {
        let pod = self.last();
        self.pods[pod].has_quota = true;
        self.quota_above(&[pod], Some(pod), percent)
    }

    /// A quota above these pods, in hundredths of a core.
    pub(crate) fn quota_above(mut self, of: &[usize], pod: Option<usize>, percent: u64) -> Self {
        let quota = Some(percent * PERIOD / 100);
        let above = self.groups.len();
        for group in &mut self.groups {
            if group.pod.is_some_and(|pod| of.contains(&pod)) && group.parent.is_none() {
                group.parent = Some(above);
            }
        }
        let (name, parent, weight) = ("quota", None, 1024);
        self.groups.push(Group { name, pod, parent, weight, quota, is_idle: false });
        self
    }

    /// Adds threads to the container that was added last.
    pub(crate) fn threads(self, count: usize, load: Load) -> Self {
        let group = self.containers().next_back().unwrap_or(0);
        self.threads_in(group, count, load)
    }

    /// Adds threads of the host.
    pub(crate) fn host(self, count: usize, load: Load) -> Self {
        self.threads_in(0, count, load)
    }

    fn threads_in(mut self, group: usize, count: usize, load: Load) -> Self {
        let cpus = (1 << self.cpus) - 1;
        let thread = Thread { group, load, cpus, begins: 0, ends: LENGTH, moved_every: None };
        self.threads.extend(std::iter::repeat_n(thread, count));
        self
    }

    /// The threads that were added last may use this CPU only.
    pub(crate) fn pinned(mut self, cpu: usize) -> Self {
        self.last_threads().for_each(|thread| thread.cpus = 1 << cpu);
        self
    }

    pub(crate) fn moved_every(mut self, every: Ns) -> Self {
        self.last_threads().for_each(|thread| thread.moved_every = Some(every));
        self
    }

    pub(crate) fn during(mut self, begins: Ns, ends: Ns) -> Self {
        self.last_threads().for_each(|thread| (thread.begins, thread.ends) = (begins, ends));
        self
    }

    fn last_threads(&mut self) -> impl Iterator<Item = &mut Thread> {
        let group = self.threads.last().map(|thread| thread.group);
        self.threads.iter_mut().filter(move |thread| Some(thread.group) == group)
    }

    fn containers(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.groups.len()).filter(|group| self.groups[*group].name != "quota")
    }

    /// The same without the threads of a workload, as if they were frozen.
    pub(crate) fn without(&self, workload: &str) -> Self {
        let mut scene = self.clone();
        for thread in &mut scene.threads {
            if self.pods[self.pod_of(thread.group)].workload == workload {
                (thread.begins, thread.ends) = (LENGTH, LENGTH);
            }
        }
        scene
    }

    pub(crate) fn pod_of(&self, group: usize) -> usize {
        self.groups[group].pod.unwrap_or(SYSTEM)
    }

    pub(crate) fn threads_of(&self, pod: usize) -> Vec<usize> {
        let threads = 0..self.threads.len();
        threads.filter(|thread| self.pod_of(self.threads[*thread].group) == pod).collect()
    }

    /// A container's cgroup and those above it.
    pub(crate) fn chain(&self, group: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(group), |group| self.groups[*group].parent)
    }
}
