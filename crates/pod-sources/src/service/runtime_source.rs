//! The container runtime as a source of pods: the handle for the plugin that gets its events.

use std::time::{Instant, SystemTime};

use kubepods::model::{Pod, Resources};
use kubepods::{LabelKeys, from_wire, wire};

use super::runtime_pods::{ReportedSandbox, RuntimePods};
use super::{Pods, lock};
use crate::config::PodConfig;
use crate::source::SourceName;

/// A pod's sandbox, as the runtime reports it.
#[derive(Debug)]
pub struct Sandbox {
    /// Id of the sandbox.
    pub id: String,
    /// The pod, without spec and containers.
    pub pod: wire::WirePod,
    /// CPU and memory of the whole pod.
    pub resources: Resources,
}

/// A container, as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedContainer {
    /// UID of its pod.
    pub pod_uid: String,
    /// Name in the pod's spec.
    pub name: String,
    /// Id at the runtime, which is in the cgroup's name.
    pub id: String,
    /// CPUs of its claims in list format.
    pub claimed_cpus: Option<Box<str>>,
}

/// The container runtime as a source of pods. Its reports are in the index when a call returns.
///
/// The list of the other sources wins on everything that it contains; a report adds what the list
/// does not have yet, and asks for a list that does.
#[derive(Debug, Clone)]
pub struct RuntimeSource {
    pods: Pods,
    keep: LabelKeys,
}

impl Pods {
    /// The container runtime as a further source.
    #[must_use]
    pub fn runtime_source(&self, config: &PodConfig) -> RuntimeSource {
        lock(&self.shared.statuses).add(SourceName::Nri);
        RuntimeSource { pods: self.clone(), keep: config.labels_to_keep() }
    }
}

impl RuntimeSource {
    /// Replaces all earlier reports: the runtime is connected.
    pub fn synchronized(&self, sandboxes: Vec<Sandbox>, containers: &[CreatedContainer]) {
        let now = Instant::now();
        self.change(|runtime| {
            runtime.connected();
            for sandbox in sandboxes {
                runtime.add_pod(self.reported(sandbox), now);
            }
            for one in containers {
                runtime.add_container(one, now);
            }
        });
    }

    /// Reports a new pod. Its spec is needed for its first container, which may follow within
    /// milliseconds: it is requested at once.
    pub fn pod_created(&self, sandbox: Sandbox) {
        let reported = self.reported(sandbox);
        let uid = reported.pod.uid.clone();
        self.change(|runtime| runtime.add_pod(reported, Instant::now()));
        if !self.is_listed(&uid) {
            self.pods.ask_at_once(&uid);
        }
    }

    /// Reports a new container, and its pod, whose creation may have been missed.
    pub fn container_created(&self, sandbox: Sandbox, container: &CreatedContainer) {
        let (reported, now) = (self.reported(sandbox), Instant::now());
        self.change(|runtime| {
            runtime.add_pod(reported, now);
            runtime.add_container(container, now);
        });
        if !self.is_listed(&container.pod_uid) {
            self.pods.ask(&container.pod_uid, &container.id);
        }
    }

    /// Reports that the runtime is about to change a pod's resources: a list that is requested now
    /// has the new ones.
    pub fn resized(&self, pod_uid: &str) {
        self.pods.ask_again(pod_uid);
    }

    /// Reports the removal of a container.
    pub fn container_removed(&self, pod_uid: &str, id: &str) {
        self.change(|runtime| runtime.remove_container(pod_uid, id));
        self.pods.withdraw(id);
    }

    /// Reports the removal of a pod's sandbox.
    pub fn pod_removed(&self, pod_uid: &str, sandbox: &str) {
        self.change(|runtime| runtime.remove_pod(pod_uid, sandbox));
        self.pods.withdraw(pod_uid);
    }

    /// Reports that the runtime is not connected: earlier reports stay until a list ends them.
    pub fn disconnected(&self, error: String) {
        self.change(RuntimePods::disconnected);
        lock(&self.pods.shared.statuses).disconnected(SourceName::Nri, error);
    }

    fn change(&self, change: impl FnOnce(&mut RuntimePods)) {
        let shared = &self.pods.shared;
        let (count, is_connected) = lock(&shared.publisher).report(shared, change);
        if is_connected {
            lock(&shared.statuses).succeeded(SourceName::Nri, count, SystemTime::now());
        }
        shared.attempt_ended(false);
    }

    /// Whether the last list contains the pod, with its spec.
    fn is_listed(&self, uid: &str) -> bool {
        self.pods.index().pod(uid).is_some_and(|pod| pod.is_listed())
    }

    fn reported(&self, sandbox: Sandbox) -> ReportedSandbox {
        let Sandbox { id, pod, resources } = sandbox;
        let pod = Pod { unlisted: Some(resources), ..from_wire(pod, &self.keep) };
        ReportedSandbox { pod, sandbox: id.into() }
    }
}
