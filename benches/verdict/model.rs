//! Parts of a scenario. Plain values: nothing here touches a cgroup.

use serde::{Deserialize, Serialize};

/// Pod whose latencies are measured.
pub(crate) const SERVICE: &str = "web";
/// Name under which the host appears.
pub(crate) const SYSTEM: &str = "system";

/// Work of one process. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Each thread answers a request of `work` CPU time every `every`. Latencies are recorded.
    Service { threads: u32, work: u64, every: u64 },
    /// As `Service`, with a thread that is moved to another CPU every 7 ms.
    Moving { work: u64, every: u64 },
    /// Answers calls with this CPU time each, next to a `Service` of the same pod.
    Answers { work: u64 },
    /// Calls the pod that answers.
    Calls { every: u64 },
    /// This number of threads runs without a pause.
    Spin { threads: u32 },
    /// Each thread runs for `work` of CPU time every `every`.
    Periodic { threads: u32, work: u64, every: u64 },
    /// As `Periodic`, with a new thread for each piece of work.
    Threads { work: u64, every: u64 },
    /// As `Periodic`, with a new process for each piece of work.
    Forks { work: u64, every: u64 },
    /// The work of one such process.
    Once { work: u64 },
    /// Reads zeros in large pieces: CPU time of the kernel.
    Reads { work: u64, every: u64 },
    /// Sends packets over loopback: softirqs of the kernel.
    Packets { work: u64, every: u64 },
}

/// Role of a container in its scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its latencies are measured.
    Service,
    /// May be a cause.
    Suspect,
    /// Cannot be a cause: without it the latencies must stay as they are.
    Control,
}

/// CPUs of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cpus {
    /// The CPU on which the truth is measured.
    Measured,
    /// The other one.
    Other,
    Both,
}

/// A container with one process.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    /// CPU limit, millicores.
    pub(crate) limit: Option<u64>,
    pub(crate) loads: Vec<Load>,
    /// Words of a command that starts the process, such as `nice -n 19`.
    pub(crate) through: &'static [&'static str],
}

/// A pod, or the host's processes.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: &'static str,
    /// CPU request, millicores; `None` for best effort.
    pub(crate) request: Option<u64>,
    /// CPU limit of the pod itself, millicores.
    pub(crate) limit: Option<u64>,
    pub(crate) cpus: Cpus,
    pub(crate) containers: Vec<Container>,
    /// Number of pods of a CronJob of this name; 1 for a pod without a controller.
    pub(crate) replicas: u32,
}

impl Pod {
    fn new(name: &'static str, request: Option<u64>) -> Self {
        let (limit, containers) = (None, Vec::new());
        Self { name, request, limit, cpus: Cpus::Measured, containers, replicas: 1 }
    }

    fn with(mut self, name: &'static str, part: Part, load: Load) -> Self {
        let (limit, loads) = (None, vec![load]);
        self.containers.push(Container { name, part, limit, loads, through: &[] });
        self
    }

    fn last(&mut self) -> &mut Container {
        self.containers.last_mut().expect("a pod begins with a container")
    }

    /// One more load in the process of the last container.
    pub(crate) fn and(mut self, load: Load) -> Self {
        self.last().loads.push(load);
        self
    }

    /// CPU limit of the last container, millicores.
    pub(crate) fn limited(mut self, milli: u64) -> Self {
        self.last().limit = Some(milli);
        self
    }

    pub(crate) fn pod_limit(mut self, milli: u64) -> Self {
        self.limit = Some(milli);
        self
    }

    pub(crate) fn through(mut self, words: &'static [&'static str]) -> Self {
        self.last().through = words;
        self
    }

    pub(crate) fn on(mut self, cpus: Cpus) -> Self {
        self.cpus = cpus;
        self
    }

    pub(crate) fn replicas(mut self, number: u32) -> Self {
        self.replicas = number;
        self
    }

    /// A further container that may be the cause.
    pub(crate) fn sidecar(self, name: &'static str, load: Load) -> Self {
        self.with(name, Part::Suspect, load)
    }

    pub(crate) fn is_host(&self) -> bool {
        self.name == SYSTEM
    }

    pub(crate) fn is_service(&self) -> bool {
        self.containers.iter().any(|container| container.part == Part::Service)
    }

    /// Name under which a container is frozen, and under which the agent would name it.
    pub(crate) fn name_of(&self, container: &Container) -> &'static str {
        if self.is_service() { container.name } else { self.name }
    }
}

/// The service; `request` in millicores.
pub(crate) fn service(request: u64, load: Load) -> Pod {
    Pod::new(SERVICE, Some(request)).with("main", Part::Service, load)
}

pub(crate) fn suspect(name: &'static str, request: u64, load: Load) -> Pod {
    Pod::new(name, Some(request)).with("main", Part::Suspect, load)
}

/// A pod that uses 2 % of a CPU.
pub(crate) fn control() -> Pod {
    let load = Load::Periodic { threads: 1, work: 1_000, every: 49_000 };
    Pod::new("cart", Some(100)).with("main", Part::Control, load)
}

/// Processes outside of the pods.
pub(crate) fn host(load: Load) -> Pod {
    Pod::new(SYSTEM, Some(1024)).with("main", Part::Suspect, load)
}

impl Pod {
    pub(crate) fn best_effort(mut self) -> Self {
        self.request = None;
        self
    }
}

/// A CPU limit that a scenario removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Own,
    /// The pod's, or one above it.
    Above,
}

/// Change of one phase: a removed suspect or limit, or a higher request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    Freeze(&'static str),
    /// Freezes what cannot be a cause.
    Control(&'static str),
    Lift(Limit),
    /// Not a removal of a cause: the service gets this CPU request, millicores.
    Raise(u64),
}

/// One row of the table.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The truth for which it is made. What counts is the truth that a run measures.
    pub(crate) made_for: &'static str,
    pub(crate) pods: Vec<Pod>,
    /// CPU limit above all pods with a request, millicores.
    pub(crate) limit_above: Option<u64>,
    /// Request, millicores, that must cure the service.
    pub(crate) raised_to: Option<u64>,
    /// Pod that is deleted before the agent is asked.
    pub(crate) gone: Option<&'static str>,
    /// Seconds of the phase with all loads, and of each with something removed.
    pub(crate) seconds: [u64; 2],
}

/// A scenario of the usual length.
pub(crate) fn scenario(
    name: &'static str,
    made_for: &'static str,
    pods: impl Into<Vec<Pod>>,
) -> Scenario {
    Scenario {
        name,
        made_for,
        pods: pods.into(),
        limit_above: None,
        raised_to: None,
        gone: None,
        seconds: [7, 3],
    }
}

impl Scenario {
    pub(crate) fn limit_above(mut self, milli: u64) -> Self {
        self.limit_above = Some(milli);
        self
    }

    pub(crate) fn raised_to(mut self, milli: u64) -> Self {
        self.raised_to = Some(milli);
        self
    }

    pub(crate) fn gone(mut self, name: &'static str) -> Self {
        self.gone = Some(name);
        self
    }

    pub(crate) fn lasting(mut self, seconds: [u64; 2]) -> Self {
        self.seconds = seconds;
        self
    }

    /// All that is removed in turn.
    pub(crate) fn removals(&self) -> Vec<Removal> {
        let mut removals = Vec::new();
        for pod in &self.pods {
            for container in &pod.containers {
                let name = pod.name_of(container);
                removals.extend(match container.part {
                    Part::Service => None,
                    Part::Suspect => Some(Removal::Freeze(name)),
                    Part::Control => Some(Removal::Control(name)),
                });
                let is_of_service = container.part == Part::Service;
                if container.limit.is_some() && is_of_service {
                    removals.push(Removal::Lift(Limit::Own));
                }
            }
        }
        if self.limit_above.is_some() || self.pods.iter().any(|pod| pod.limit.is_some()) {
            removals.push(Removal::Lift(Limit::Above));
        }
        removals.extend(self.raised_to.map(Removal::Raise));
        removals
    }
}
