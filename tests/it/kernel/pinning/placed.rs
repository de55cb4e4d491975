//! CPUs of containers from their creation on: the runtime asks the agent for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_text::CpuSet;
use nri::api::{
    Container, LinuxContainer, LinuxCpu, LinuxPodSandbox, LinuxResources, OptionalInt64,
    OptionalUInt64, PodSandbox, RemoveContainerRequest, RemoveContainerResponse,
    RemovePodSandboxRequest, RemovePodSandboxResponse, UpdateContainerRequest,
    UpdateContainerResponse,
};
use placement::Class;
use rustix::process::Signal;
use serde_json::json;

use super::agent::{changing_kubelet, command, kubelet, list, options, stdout_of};
use super::scene::{PodRequest, Scene, container_id, effective, online, uid};
use crate::injection::runtime::Runtime;
use crate::kernel::created::{Socket, create, run_pod};
use crate::support::{Agent, Qos, Running, Workload, eventually};

/// A shared pod, and one with a CPU of its own.
pub(super) fn scene() -> Scene {
    Scene::new(&[
        PodRequest { class: Class::Share, cpus: 0 },
        PodRequest { class: Class::Lse, cpus: 1 },
    ])
}

pub(super) fn flags(options: &[String], socket: &Socket) -> Vec<String> {
    let more = ["--pinning=enforce".to_owned(), "--cpu-budget=1000".to_owned()];
    [options, &more[..], &socket.flags()[..]].concat()
}

/// A runtime's report of a pod of this class and number of CPUs.
pub(super) fn sandbox(uid: &str, class: &str, cpus: i64) -> PodSandbox {
    let cpu = (cpus > 0).then(|| LinuxCpu {
        shares: Some(OptionalUInt64 { value: 1024 * cpus.unsigned_abs() }),
        quota: Some(OptionalInt64 { value: 100_000 * cpus }),
        period: Some(OptionalUInt64 { value: 100_000 }),
        ..LinuxCpu::default()
    });
    let level = if cpus > 0 { "" } else { "burstable/" };
    let linux = LinuxPodSandbox {
        cgroup_parent: format!("/kubepods/{level}pod{uid}"),
        pod_resources: Some(LinuxResources { cpu, ..LinuxResources::default() }),
        ..LinuxPodSandbox::default()
    };
    PodSandbox {
        id: format!("sandbox-{uid}"),
        uid: uid.into(),
        namespace: "test".into(),
        name: format!("pod-{uid}"),
        labels: [("koordinator.sh/qosClass".to_owned(), class.to_owned())].into(),
        linux: Some(linux),
        ..PodSandbox::default()
    }
}

pub(super) fn container(pod: &PodSandbox, id: &str) -> Container {
    Container {
        id: id.into(),
        pod_sandbox_id: pod.id.clone(),
        name: "c".into(),
        ..Container::default()
    }
}

/// The container with CPUs that somebody has set.
pub(super) fn with_cpus(container: Container, cpus: &str) -> Container {
    let cpu = Some(LinuxCpu { cpus: cpus.into(), ..LinuxCpu::default() });
    let resources = Some(LinuxResources { cpu, ..LinuxResources::default() });
    let linux = Some(LinuxContainer { resources, ..LinuxContainer::default() });
    Container { linux, ..container }
}

/// Maximum number of repetitions of a call.
const TRIES: usize = 50;

/// A runtime that repeats its calls: where the agent was too late, it has answered without an
/// adjustment, and connects again.
pub(super) struct Runtimes<'a> {
    socket: &'a Socket,
    runtime: Runtime,
    /// All that runs, for another connection.
    pub(super) pods: Vec<PodSandbox>,
    pub(super) containers: Vec<Container>,
}

impl<'a> Runtimes<'a> {
    /// Returns when new containers are placed.
    pub(super) fn accept(
        socket: &'a Socket,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Self {
        let runtime = socket.accept(pods.clone(), containers.clone());
        let mut runtimes = Self { socket, runtime, pods, containers };
        let probe = sandbox("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dbbbb", "LS", 0);
        let asking = std::cell::RefCell::new(&mut runtimes);
        let is_placed =
            || asking.borrow_mut().once(&probe, &container(&probe, "probe")).0.is_some();
        eventually("placement", is_placed);
        // No request for the names of the probe is left.
        runtimes.remove(&probe, &container(&probe, "probe"));
        runtimes.call(|runtime| {
            let request = RemovePodSandboxRequest { pod: Some(probe.clone()) };
            let _: RemovePodSandboxResponse = runtime.call("RemovePodSandbox", &request);
        });
        runtimes
    }

    fn call<T>(&mut self, call: impl Fn(&mut Runtime) -> T) -> T {
        for _ in 0..TRIES {
            let runtime = &mut self.runtime;
            if let Ok(answer) = catch_unwind(AssertUnwindSafe(|| call(runtime))) {
                return answer;
            }
            let again = || self.socket.accept(self.pods.clone(), self.containers.clone());
            if let Ok(again) = catch_unwind(AssertUnwindSafe(again)) {
                self.runtime = again;
            }
        }
        panic!("no answer");
    }

    fn wanted<T>(&mut self, call: impl Fn(&mut Self) -> Option<T>) -> T {
        (0..TRIES).find_map(|_| call(self)).expect("an adjustment")
    }

    /// The CPUs in which a new container is to start, and the container as the runtime then has it.
    pub(super) fn once(
        &mut self,
        pod: &PodSandbox,
        container: &Container,
    ) -> (Option<CpuSet>, Container) {
        let answer = self.call(|runtime| {
            run_pod(runtime, pod);
            create(runtime, pod, container)
        });
        let none = (None, container.clone());
        let Some(adjust) = answer.adjust else { return none };
        let cpu = adjust.linux.clone().and_then(|linux| linux.resources?.cpu);
        let Some(cpus) = cpu.map(|cpu| cpu.cpus).filter(|cpus| !cpus.is_empty()) else {
            return none;
        };
        let annotations = adjust.annotations;
        let placed = with_cpus(Container { annotations, ..container.clone() }, &cpus);
        (Some(cpus.parse().unwrap()), placed)
    }

    /// As [`once`](Self::once), for a container that is placed. It runs from then on.
    fn started(&mut self, pod: &PodSandbox, id: &str) -> (CpuSet, Container) {
        let new = container(pod, id);
        let (cpus, placed) = self.wanted(|one| {
            let (cpus, placed) = one.once(pod, &new);
            Some((cpus?, placed))
        });
        self.pods.push(pod.clone());
        self.containers.push(placed.clone());
        (cpus, placed)
    }

    /// The container is removed.
    pub(super) fn remove(&mut self, pod: &PodSandbox, container: &Container) {
        self.call(|runtime| {
            let (pod, container) = (Some(pod.clone()), Some(container.clone()));
            let request = RemoveContainerRequest { pod, container };
            let _: RemoveContainerResponse = runtime.call("RemoveContainer", &request);
        });
    }

    pub(super) fn cpus(&mut self, pod: &PodSandbox, id: &str) -> CpuSet {
        self.started(pod, id).0
    }

    /// The runtime is about to write a pod's resources.
    pub(super) fn resize(&mut self, pod: &PodSandbox, container: &Container) {
        let resources = pod.linux.as_ref().and_then(|linux| linux.pod_resources.clone());
        let (pod, container) = (Some(pod.clone()), Some(container.clone()));
        let request = UpdateContainerRequest { pod, container, linux_resources: resources };
        self.call(|runtime| {
            let _: UpdateContainerResponse = runtime.call("UpdateContainer", &request);
        });
    }

    /// The CPUs that the agent writes instead of those of an update.
    fn kept(&mut self, pod: &PodSandbox, container: &Container, cpus: &str) -> Option<String> {
        let cpu = Some(LinuxCpu { cpus: cpus.into(), ..LinuxCpu::default() });
        let request = UpdateContainerRequest {
            pod: Some(pod.clone()),
            container: Some(container.clone()),
            linux_resources: Some(LinuxResources { cpu, ..LinuxResources::default() }),
        };
        let answer: UpdateContainerResponse =
            self.call(|runtime| runtime.call("UpdateContainer", &request));
        let update = answer.update.into_iter().find(|one| one.container_id == container.id)?;
        Some(update.linux?.resources?.cpu?.cpus)
    }
}

#[test]
fn containers_start_in_the_cpus_of_their_pod_or_outside_of_all_others() {
    let (scene, socket) = (scene(), Socket::new());
    let options = options(&scene, kubelet(&list(&scene)));
    let agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    eventually("a grant", || scene.effective(1).len() == 1);
    let own = scene.effective(1);
    let outside = online().difference(&own);
    let (shared, exclusive) = (sandbox(&uid(0), "LS", 0), sandbox(&uid(1), "LSE", 1));
    assert_eq!(runtime.cpus(&exclusive, &container_id(11)), own);
    let (of_shared, placed) = runtime.started(&shared, &container_id(10));
    assert_eq!(of_shared, outside);
    let new = sandbox("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff", "LS", 0);
    let of_new = runtime.cpus(&new, &container_id(99));
    assert_eq!(of_new, outside, "of a pod that no list contains");

    // The runtime writes the CPUs of an update, or those of the start again.
    let (wanted, others) = (outside.to_string(), own.to_string());
    assert_eq!(runtime.wanted(|one| one.kept(&shared, &placed, &others)), wanted);
    assert_eq!(runtime.kept(&shared, &placed, ""), None, "those of the start");
    let stale = with_cpus(placed.clone(), &others);
    assert_eq!(runtime.wanted(|one| one.kept(&shared, &stale, "")), wanted);

    // Another agent knows from the runtime's list what was placed.
    assert!(agent.signal(Signal::TERM).0.success());
    // The first agent may have left an attempt to connect again behind.
    let socket = Socket::new();
    let _agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![shared.clone()], vec![stale.clone()]);
    assert_eq!(runtime.wanted(|one| one.kept(&shared, &stale, "")), wanted);
    assert_eq!(runtime.cpus(&exclusive, &container_id(14)), own);

    // Nothing is placed by an agent that was drained.
    stdout_of(&command("drain", &options, &[]));
    let of_drained = container(&shared, &container_id(15));
    assert_eq!(runtime.once(&shared, &of_drained).0, None);
}

/// Creates the cgroups of a pod and a container as a runtime does, and runs something there.
pub(super) fn run(scene: &Scene, pod: &PodSandbox, id: &str, cpus: &CpuSet) -> Running {
    let cgroup = scene.tree.pod(Qos::Burstable, &pod.uid).child(id);
    cgroup.write("cpuset", "cpuset.cpus", &cpus.to_string());
    cgroup.spawn(&Workload::Spin { threads: 1 })
}

#[test]
fn cpus_of_a_new_pod_are_its_own_before_the_kubelet_lists_it() {
    let (mut scene, socket) = (scene(), Socket::new());
    let rival = PodRequest { class: Class::Share, cpus: 0 };
    scene.change(1, rival);
    let pods = std::sync::Arc::new(std::sync::Mutex::new(list(&scene)));
    let listed = std::sync::Arc::clone(&pods);
    let kubelet = changing_kubelet(move || listed.lock().unwrap().to_string());
    let options = options(&scene, kubelet);
    let agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);

    let new = sandbox("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff", "LSE", 1);
    let own = runtime.cpus(&new, &container_id(99));
    assert_eq!(own.len(), 1);
    let outside = online().difference(&own);
    let shared = sandbox(&uid(0), "LS", 0);
    assert_eq!(runtime.cpus(&shared, &container_id(10)), outside);
    // It waits for no cgroup and no list: shared pods leave the CPU meanwhile.
    eventually("the CPU to be left", || scene.effective(0).is_disjoint(&own));
    let _running = run(&scene, &new, &container_id(99), &own);

    let mut item = list(&scene)["items"][0].clone();
    item["metadata"] = json!({
        "namespace": "test", "name": new.name, "uid": new.uid,
        "labels": {"koordinator.sh/qosClass": "LSE"},
    });
    let id = format!("containerd://{}", container_id(99));
    item["status"]["containerStatuses"][0]["containerID"] = json!(id);
    let one = json!({"cpu": "1"});
    item["spec"]["containers"][0]["resources"] = json!({"requests": one, "limits": one});
    pods.lock().unwrap()["items"].as_array_mut().unwrap().push(item);
    let cgroup = scene.tree.kubepods().existing_child("burstable");
    let cgroup = cgroup.existing_child(&format!("pod{}", new.uid));
    let pinned = || {
        let page = agent.metrics();
        page.with_prefix("cpuwarden_pinned_cpus").any(|one| one.label("pod") == new.name)
    };
    eventually("the pin", pinned);
    eventually("the pod's cgroup to follow", || effective(&cgroup) == own);
    assert_eq!(effective(&cgroup.existing_child(&container_id(99))), own);
    assert_eq!(scene.effective(0), outside);
    let page = agent.metrics();
    let rejected: f64 =
        page.with_prefix("cpuwarden_pin_rejections_total").map(|sample| sample.value).sum();
    // `list` has a pod with an invalid annotation.
    assert!(rejected <= 1.0, "the new pod was rejected meanwhile");
}

#[test]
fn draining_also_gives_back_the_cpus_of_a_start() {
    let (scene, socket) = (scene(), Socket::new());
    let options = options(&scene, kubelet(&list(&scene)));
    let _agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    let new = sandbox("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff", "LS", 0);
    let placed = runtime.cpus(&new, &container_id(99));
    let _running = run(&scene, &new, &container_id(99), &placed);
    let cgroup = scene.tree.kubepods().existing_child("burstable");
    let cgroup = cgroup.existing_child(&format!("pod{}", new.uid));
    eventually("the pod to be confined", || effective(&cgroup) == placed);
    stdout_of(&command("drain", &options, &[]));
    assert_eq!(effective(&cgroup.existing_child(&container_id(99))), online());
}
