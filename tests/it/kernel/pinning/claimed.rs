//! Pods whose CPUs a driver of dynamic resource allocation has claimed, as the runtime reports
//! them: measured, not placed.

use crate::kernel::created::{Socket, create};
use crate::support::{Agent, Exposition, Qos, Workload, eventually};

use super::agent::{add_claimant, kubelet, list, options};
use super::placed::{container, flags, sandbox, scene, with_cpus};
use super::scene::{container_id, online};

const CLAIMED: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff";

fn overlap(page: &Exposition) -> Option<f64> {
    let name = format!("pod-{CLAIMED}");
    let labels = [("namespace", "test"), ("pod", name.as_str())];
    page.value("cpuwarden_exclusive_overlap_seconds_total", &labels)
}

fn throttled(page: &Exposition) -> Option<f64> {
    let name = format!("pod-{CLAIMED}");
    let labels =
        [("namespace", "test"), ("pod", &*name), ("container", "c"), ("origin", "ancestor")];
    page.value("cpuwarden_container_throttled_seconds_total", &labels)
}

/// Measures beside a shared pod that runs everywhere, and then only outside of the claimed CPUs.
fn measure(mode: &str) {
    let (scene, socket) = (scene(), Socket::new());
    let mut pods = list(&scene);
    add_claimant(&mut pods, CLAIMED, 99);
    let options = options(&scene, kubelet(&pods));
    let flags = flags(&options, &socket);
    let flags = flags.iter().map(|flag| flag.replace("--pinning=enforce", mode));
    let agent = Agent::start(&flags.collect::<Vec<_>>());
    let mut runtime = socket.accept(vec![], vec![]);
    let first = online().iter().next().unwrap();
    let (claimed, id) = (sandbox(CLAIMED, "LS", 0), container_id(99));
    let mut placed = with_cpus(container(&claimed, &id), &first.to_string());
    placed.env = vec![format!("DRA_CPUSET_4f2a={first}")];
    assert_eq!(create(&mut runtime, &claimed, &placed).adjust, None);
    let pod = scene.tree.pod(Qos::Burstable, CLAIMED);
    pod.set_quota_usec(10_000, 100_000);
    let cgroup = pod.child(&id);
    cgroup.write("cpuset", "cpuset.cpus", &first.to_string());
    let _claimed = cgroup.spawn(&Workload::Spin { threads: 1 });
    let _shared = scene.container(0).spawn(&Workload::Spin { threads: 1 });
    eventually("an overlap", || overlap(&agent.metrics()) > Some(0.0));
    eventually("throttling by the pod", || throttled(&agent.metrics()) > Some(0.0));

    // As the driver does with containers that have no claim.
    let others: kernel_text::CpuSet = online().iter().skip(1).collect();
    scene.container(0).write("cpuset", "cpuset.cpus", &others.to_string());
    let passes = || {
        let before = agent.metrics().ticks();
        eventually("ticks", || agent.metrics().ticks() >= before + 3);
    };
    passes();
    let before = overlap(&agent.metrics());
    passes();
    assert_eq!(overlap(&agent.metrics()), before, "{mode}");
}

#[test]
fn claimed_cpus_are_measured_while_pinning_observes() {
    measure("--pinning=observe");
}

#[test]
fn claimed_cpus_are_measured_while_pinning_steps_aside() {
    measure("--pinning=enforce");
}
