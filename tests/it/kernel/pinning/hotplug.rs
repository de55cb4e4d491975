//! CPUs that go offline and come back while an agent pins.

use std::fs;

use serde_json::Value;

use super::agent::{command, kubelet, list, options, stdout_of};
use super::scene::{Scene, all_classes, online};
use crate::support::{Agent, Workload, eventually};

/// A CPU that is offline until this is dropped.
struct Offline(u32);

impl Offline {
    fn take(cpu: u32) -> Self {
        let offline = Self(cpu);
        offline.set("0");
        offline
    }

    fn set(&self, state: &str) {
        let file = format!("/sys/devices/system/cpu/cpu{}/online", self.0);
        fs::write(&file, state).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        self.set("1");
    }
}

/// Number of times that the agent has reread the topology and found these CPUs online.
fn times_read(agent: &Agent, online: &str) -> usize {
    let is = |line: &&str| {
        line.contains("online CPUs changed") && line.contains(&format!("\"{online}\""))
    };
    agent.log().lines().filter(is).count()
}

fn pool(agent: &Agent, name: &str) -> Option<usize> {
    agent.metrics().value("cpuwarden_pool_cpus", &[("pool", name)]).map(|cpus| cpus as usize)
}

/// Whether every pod has its planned CPUs: this number of CPUs is shared, and the two exclusive
/// pods have their own.
fn is_settled(scene: &Scene, agent: &Agent, shared: usize) -> bool {
    let (lse, lsr) = (scene.effective(2), scene.effective(3));
    let apart = lse.is_disjoint(&lsr) && scene.effective(0).is_disjoint(&lse.union(&lsr));
    apart
        && scene.effective(1).is_disjoint(&lse)
        && (lse.len(), lsr.len(), scene.effective(0).len()) == (2, 2, shared)
        && pool(agent, "share") == Some(shared)
}

#[test]
#[ignore = "takes a CPU of the machine offline: the tests of the node run it, in a node of 8 CPUs"]
fn pods_and_pools_follow_cpu_hotplug() {
    let scene = Scene::new(&all_classes());
    let _running: Vec<_> = (0..scene.pods.len())
        .map(|at| scene.container(at).spawn(&Workload::Spin { threads: 1 }))
        .collect();
    let options = options(&scene, kubelet(&list(&scene)));
    let agent = Agent::start(
        &[&options[..], &["--pinning=enforce".into(), "--cpu-budget=1000".into()]].concat(),
    );
    let shared = online().len() - 4;
    eventually("the grants", || is_settled(&scene, &agent, shared));
    let neighbor = scene.effective(3);

    // CPU 0 of this architecture cannot go offline.
    let cpu = scene.effective(2).iter().max().unwrap();
    let offline = Offline::take(cpu);
    eventually("another CPU for the pod, of a shared pool with one less", || {
        is_settled(&scene, &agent, shared - 1)
    });
    assert!(!online().contains(cpu) && (0..4).all(|at| !scene.effective(at).contains(cpu)));
    eventually("the topology to be read again", || times_read(&agent, &online().to_string()) == 1);
    assert_eq!(scene.effective(3), neighbor, "who has lost nothing stays");
    let shown: Value =
        serde_json::from_str(&stdout_of(&command("topology", &options, &["--json"]))).unwrap();
    assert_eq!(shown["offline"], cpu.to_string());
    let pins = stdout_of(&command("pins", &options, &[]));
    assert!(pins.contains(&format!(" {} ", scene.effective(2))) && !pins.contains("NO"), "{pins}");
    let moved = scene.effective(2);

    drop(offline);
    eventually("a shared pool with the CPU again", || is_settled(&scene, &agent, shared));
    eventually("the topology to be read again", || times_read(&agent, &online().to_string()) == 1);
    assert!(scene.effective(0).contains(cpu) || scene.effective(2).contains(cpu));
    assert_eq!(
        (scene.effective(2), scene.effective(3)),
        (moved, neighbor),
        "nobody moves for a CPU that comes"
    );
    let repairs = agent
        .metrics()
        .value("cpuwarden_pin_operations_total", &[("operation", "repair"), ("result", "ok")]);
    assert_eq!(repairs, None, "the kernel is no rival");
}
