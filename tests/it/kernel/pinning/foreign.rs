//! Containers that another program places, as the runtime reports them: their cpusets are never
//! written.

use nri::api::PodSandbox;

use super::agent::{add_claimant, kubelet, list, options};
use super::placed::{Runtimes, container, flags, run, sandbox, scene, with_cpus};
use super::scene::{Scene, container_id, effective, online};
use crate::kernel::created::Socket;
use crate::support::{Agent, Cgroup, Qos, eventually};

const OTHER: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff";
const CLAIMED: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dfffe";
const LATE: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dfffd";

/// Reason for which cpusets are not written; `None` while they are.
fn obstacle(agent: &Agent) -> Option<String> {
    let page = agent.metrics();
    let mut status = page.with_prefix("cpuwarden_pinning_enforcing");
    status.find(|sample| sample.value == 0.0).map(|sample| sample.label("reason").to_owned())
}

/// Waits for a few passes, which run at the interval of the ticks.
fn passes(agent: &Agent) {
    let before = agent.metrics().ticks();
    eventually("ticks", || agent.metrics().ticks() >= before + 4);
}

/// `cpuset.cpus` of the pod and its container.
fn files(scene: &Scene, pod: &PodSandbox, id: &str) -> [String; 2] {
    let cgroup = scene.tree.kubepods().existing_child("burstable");
    let cgroup = cgroup.existing_child(&format!("pod{}", pod.uid));
    [cgroup.clone(), cgroup.existing_child(id)].map(|one| one.read("cpuset", "cpuset.cpus"))
}

/// A container of a pod that nobody has reported.
fn late(scene: &Scene) -> Cgroup {
    scene.tree.pod(Qos::Burstable, LATE).child(&container_id(96))
}

#[test]
fn pinning_steps_aside_while_another_plugin_sets_cpus() {
    let (scene, socket) = (scene(), Socket::new());
    let options = options(&scene, kubelet(&list(&scene)));
    let agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    eventually("a grant", || scene.effective(1).len() == 1);
    let (own, id) = (scene.effective(1), container_id(99));
    let other = sandbox(OTHER, "LS", 0);
    let placed = with_cpus(container(&other, &id), &own.to_string());
    assert_eq!(runtime.once(&other, &placed).0, None);
    let reason = format!("has set the CPUs of test/pod-{OTHER}/c");
    let steps_aside = || obstacle(&agent).is_some_and(|obstacle| obstacle.ends_with(&reason));
    eventually("the obstacle", steps_aside);
    let _running = run(&scene, &other, &id, &own);
    let late = late(&scene);
    let before = (scene.bytes(), files(&scene, &other, &id));
    passes(&agent);
    assert_eq!((scene.bytes(), files(&scene, &other, &id)), before);
    assert_eq!(effective(&late), online());
    let shared = sandbox(&super::scene::uid(0), "LS", 0);
    assert_eq!(runtime.once(&shared, &container(&shared, &container_id(10))).0, None);

    runtime.remove(&other, &placed);
    eventually("pinning to resume", || obstacle(&agent).is_none());
    eventually("the late container to be confined", || effective(&late).is_disjoint(&own));

    // The runtime's list has the container, too.
    drop(runtime);
    let _runtime = socket.accept(vec![other.clone()], vec![placed]);
    eventually("the obstacle", steps_aside);
}

#[test]
fn pods_whose_cpus_are_to_be_left_alone_are_never_written() {
    let (scene, socket) = (scene(), Socket::new());
    let mut pods = list(&scene);
    add_claimant(&mut pods, CLAIMED, 98);
    let mut options = options(&scene, kubelet(&pods));
    let config = scene.state.path().join("cpuwarden.yaml");
    std::fs::write(&config, "authorization: {preserveCpus: [{namespaces: [test]}]}\n").unwrap();
    options.push(format!("--config={}", config.display()));
    let agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    eventually("a grant", || scene.effective(1).len() == 1);
    let mut preserved = sandbox(OTHER, "LSE", 1);
    let key = "cpu.preserve.resource-policy.nri.io/pod".to_owned();
    preserved.annotations = [(key, "true".to_owned())].into();
    let claimed = sandbox(CLAIMED, "LS", 0);
    let ids = [container_id(99), container_id(98)];
    let of_preserved = container(&preserved, &ids[0]);
    let mut of_claimed = container(&claimed, &ids[1]);
    of_claimed.env = vec!["DRA_CPUSET_4f2a=0".to_owned()];
    assert_eq!(runtime.once(&preserved, &of_preserved).0, None);
    // A pass may not have seen the claim yet: then it starts in the shared pool.
    runtime.once(&claimed, &of_claimed);
    let _running = run(&scene, &preserved, &ids[0], &online());
    let _running = run(&scene, &claimed, &ids[1], &online());
    let files = || [files(&scene, &preserved, &ids[0]), files(&scene, &claimed, &ids[1])];
    let before = files();
    let late = late(&scene);
    eventually("others to be confined", || effective(&late).is_disjoint(&scene.effective(1)));
    passes(&agent);
    assert_eq!(files(), before);
    assert_eq!(obstacle(&agent), None);
    let page = agent.metrics();
    let rejected = page.value("cpuwarden_pin_rejections_total", &[("reason", "other_owner")]);
    assert_eq!(rejected, Some(1.0));
}
