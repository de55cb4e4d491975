//! The pods of a scenario as real cgroups with real processes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Cgroup, OwnedCgroup, RealTree, Running};

use super::freezer::Group;
use super::load;
use super::model::{Container, Cpus, Limit, Part, Pod, Removal, Scenario};
use super::recorder::Traced;

/// CFS period, microseconds.
const PERIOD: u64 = 100_000;

/// CPUs of the pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TwoCpus {
    pub(crate) measured: usize,
    pub(crate) other: usize,
}

impl TwoCpus {
    fn list(self, cpus: Cpus) -> String {
        match cpus {
            Cpus::Measured => self.measured.to_string(),
            Cpus::Other => self.other.to_string(),
            Cpus::Both => format!("{},{}", self.measured, self.other),
        }
    }
}

/// A cgroup with a CPU limit, millicores.
#[derive(Debug)]
struct Limited {
    cgroup: Cgroup,
    limit: Limit,
    milli: u64,
}

/// The pods of one scenario, removed on drop with all processes.
#[derive(Debug)]
pub(crate) struct Staged {
    running: Vec<(&'static str, Running)>,
    /// Removed before the cgroups of the pods.
    groups: Vec<Group>,
    pods: Vec<(&'static str, OwnedCgroup)>,
    limited: Vec<Limited>,
    /// Cgroups of services, and their requests, millicores.
    requests: Vec<(Cgroup, u64)>,
    /// Pods as the kubelet lists them.
    listed: Vec<(&'static str, Value)>,
    burstable: Cgroup,
    /// The containers of pods, for a recording.
    pub(crate) traced: Vec<Traced>,
}

/// Where pods are created.
pub(crate) struct Place<'a> {
    pub(crate) tree: &'a RealTree,
    pub(crate) cpus: TwoCpus,
    /// For the latencies.
    pub(crate) directory: &'a Path,
}

impl Staged {
    /// Creates the pods and starts the processes. All but services are frozen, and no limit holds.
    pub(crate) fn new(scenario: &Scenario, number: usize, place: &Place<'_>) -> Self {
        let kubepods = place.tree.kubepods();
        let mut staged = Self {
            groups: Vec::new(),
            running: Vec::new(),
            pods: Vec::new(),
            limited: Vec::new(),
            requests: Vec::new(),
            listed: Vec::new(),
            burstable: kubepods.existing_child("burstable"),
            traced: Vec::new(),
        };
        // As the kubelet: the QoS class has the sum of the requests.
        let requests = scenario.pods.iter().filter(|pod| !pod.is_host());
        let sum: u64 = requests.map(|pod| pod.request.unwrap_or(0) * u64::from(pod.replicas)).sum();
        staged.burstable.set_request_milli(sum);
        kubepods.existing_child("besteffort").set_request_milli(0);
        if let Some(milli) = scenario.limit_above {
            staged.limit(&kubepods.existing_child("burstable"), Limit::Above, milli);
        }
        let mut pods = 0;
        for pod in &scenario.pods {
            for replica in 0..pod.replicas {
                let uid = format!("8e0d3a0c-5f4b-4f60-9f2a-{number:06x}{pods:06x}");
                staged.add(scenario, pod, replica, &uid, place);
                pods += 1;
            }
        }
        staged
    }

    fn add(&mut self, scenario: &Scenario, pod: &Pod, replica: u32, uid: &str, place: &Place<'_>) {
        let kubepods = place.tree.kubepods().path();
        let path = match pod.request {
            _ if pod.is_host() => place.tree.above().path().join("host"),
            Some(_) => kubepods.join("burstable").join(format!("pod{uid}")),
            None => kubepods.join("besteffort").join(format!("pod{uid}")),
        };
        let cgroup = OwnedCgroup::create(path);
        cgroup.set_request_milli(pod.request.unwrap_or(0));
        cgroup.write("cpuset", "cpuset.cpus", &place.cpus.list(pod.cpus));
        if let Some(milli) = pod.limit {
            self.limit(&cgroup, Limit::Above, milli);
        }
        let mut containers = Vec::new();
        for (at, container) in pod.containers.iter().enumerate() {
            let id =
                format!("{:064x}", u128::from_str_radix(&uid[24..], 16).unwrap() * 16 + at as u128);
            let child = cgroup.child(&id);
            child.set_request_milli(pod.request.unwrap_or(0));
            if let Some(milli) = container.limit {
                self.limit(&child, Limit::Own, milli);
            }
            if container.part == Part::Service && scenario.raised_to.is_some() {
                let milli = pod.request.unwrap_or(0);
                self.requests.extend([(cgroup.clone(), milli), (child.clone(), milli)]);
            }
            if !pod.is_host() {
                self.traced.push(Traced {
                    pod: format!("{}-{replica}", pod.name),
                    workload: pod.name,
                    container: container.name,
                    request: pod.request,
                    is_victim: container.part == Part::Service,
                    cgroup: child.clone(),
                });
            }
            let offset = f64::from(replica) / f64::from(pod.replicas);
            self.start(pod, container, &child, offset, place.directory);
            containers.push((container, id));
        }
        if !pod.is_host() {
            self.listed.push((pod.name, listed(pod, replica, uid, &containers)));
        }
        self.pods.push((pod.name, cgroup));
    }

    fn limit(&mut self, cgroup: &Cgroup, limit: Limit, milli: u64) {
        self.limited.push(Limited { cgroup: cgroup.clone(), limit, milli });
    }

    fn start(
        &mut self,
        pod: &Pod,
        container: &Container,
        cgroup: &Cgroup,
        offset: f64,
        directory: &Path,
    ) {
        let name = pod.name_of(container);
        let mut enter = Vec::new();
        if container.part != Part::Service {
            let at = self.groups.iter().position(|group| group.name == name);
            let at = at.unwrap_or_else(|| {
                self.groups.push(Group::new(name));
                self.groups.len() - 1
            });
            enter = self.groups[at].add(cgroup);
            // A process that enters a frozen cgroup does not get ready.
            self.groups[at].thaw();
        }
        let script =
            r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
        let mut command: Command = cgroup.command("sh");
        command.args(["-c", script, "sh"]).args(enter).arg("--").args(container.through);
        command.arg(std::env::current_exe().unwrap());
        let running = load::start(command, &container.loads, directory, offset);
        self.running.push((pod.name, running));
        if let Some(group) = self.groups.iter().find(|group| group.name == name) {
            group.freeze();
        }
    }

    /// The pods as the kubelet lists them, in this namespace.
    pub(crate) fn list(&self, namespace: &str) -> Vec<Value> {
        let pods = self.listed.iter().map(|(_, pod)| {
            let mut pod = pod.clone();
            pod["metadata"]["namespace"] = namespace.into();
            pod
        });
        pods.collect()
    }

    /// All but services frozen, and no limit.
    pub(crate) fn alone(&self) {
        self.groups.iter().for_each(Group::freeze);
        self.set_limits(|_| false);
    }

    pub(crate) fn together(&self) {
        self.groups.iter().for_each(Group::thaw);
        self.set_limits(|_| true);
        self.set_requests(None);
    }

    /// All but one.
    pub(crate) fn without(&self, removal: Removal) {
        self.together();
        match removal {
            Removal::Freeze(name) | Removal::Control(name) => {
                let mut groups = self.groups.iter().filter(|group| group.name == name);
                groups.next().unwrap().freeze();
            }
            Removal::Lift(lifted) => self.set_limits(|limit| limit != lifted),
            Removal::Raise(milli) => self.set_requests(Some(milli)),
        }
    }

    fn set_limits(&self, holds: impl Fn(Limit) -> bool) {
        for Limited { cgroup, limit, milli } in &self.limited {
            if holds(*limit) {
                cgroup.set_quota_usec(milli * PERIOD / 1000, PERIOD);
            } else if cgroup.dir("cpu").join("cpu.max").exists() {
                cgroup.write("cpu", "cpu.max", "max");
            } else {
                cgroup.write("cpu", "cpu.cfs_quota_us", "-1");
            }
        }
    }

    fn set_requests(&self, raised: Option<u64>) {
        for (cgroup, milli) in &self.requests {
            cgroup.set_request_milli(raised.unwrap_or(*milli));
        }
    }

    /// Deletes a pod.
    pub(crate) fn delete(&mut self, name: &str) {
        // A frozen process does not die.
        self.groups.iter().for_each(Group::thaw);
        self.running.retain(|(of, _)| *of != name);
        self.groups.retain(|group| group.name != name);
        self.pods.retain(|(of, _)| *of != name);
        self.listed.retain(|(of, _)| *of != name);
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.groups.iter().for_each(Group::thaw);
        self.running.clear();
        if !std::thread::panicking() {
            // The cgroup of the QoS class stays.
            self.set_limits(|_| false);
        }
    }
}

fn listed(pod: &Pod, replica: u32, uid: &str, containers: &[(&Container, String)]) -> Value {
    let is_of_job = pod.replicas > 1;
    let name = if is_of_job { format!("{}-{replica}", pod.name) } else { pod.name.to_owned() };
    let milli = |milli: u64| format!("{milli}m");
    let spec = containers.iter().map(|(container, _)| {
        let mut resources = json!({});
        // The kubelet sums the containers; the scenarios give the pod's request to the first one.
        if let Some(request) = pod.request.filter(|_| container.name == containers[0].0.name) {
            resources["requests"] = json!({"cpu": milli(request)});
        }
        if let Some(limit) = container.limit {
            resources["limits"] = json!({"cpu": milli(limit)});
        }
        json!({"name": container.name, "image": "test:1", "resources": resources})
    });
    let status = containers.iter().map(|(container, id)| {
        json!({
            "name": container.name, "containerID": format!("containerd://{id}"),
            "state": {"running": {}}, "restartCount": 0, "image": "test:1", "imageID": "",
            "ready": true,
        })
    });
    let mut listed = json!({
        "metadata": {"name": name, "uid": uid},
        "spec": {"containers": spec.collect::<Vec<_>>()},
        "status": {
            "phase": "Running",
            "qosClass": if pod.request.is_some() { "Burstable" } else { "BestEffort" },
            "containerStatuses": status.collect::<Vec<_>>(),
        },
    });
    if is_of_job {
        // The controller of a CronJob's pod is the Job of one run.
        let job = format!("{}-29012345", pod.name);
        listed["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "1", "controller": true,
        }]);
    }
    listed
}
