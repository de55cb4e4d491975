//! Quotas that are scaled while the node has CPU to spare, with the real binary and real cgroups.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::burst::{QUOTA_USEC, Scene};
use super::pinning::agent::{command, stdout_of};
use crate::support::{Agent, Cgroup, Qos, Workload, eventually};

/// A container that always wants more than its limit, in a pod that requests a scaled quota. The
/// number of CPUs of the node is as the test says: its use is what this machine uses.
struct Scaled {
    scene: Scene,
    sys: tempfile::TempDir,
}

/// Twice the limit.
const MAX_USEC: u64 = 40_000;

impl Scaled {
    fn new(period_seconds: i64) -> Self {
        let annotation = json!({
            "policy": "cfsQuotaBurstOnly",
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": period_seconds,
        });
        let annotations = json!({"koordinator.sh/cpuBurst": annotation.to_string()});
        let mut scene = Scene::with(&Workload::Spin { threads: 1 }, annotations);
        let sys = tempfile::tempdir().unwrap();
        scene.options.push(format!("--sys-root={}", sys.path().display()));
        scene.options.push("--burst-quota-percent=200".to_owned());
        let scaled = Self { scene, sys };
        scaled.set_cpus("0-255");
        scaled
    }

    fn set_cpus(&self, list: &str) {
        let directory = self.sys.path().join("devices/system/cpu");
        fs::create_dir_all(&directory).unwrap();
        for name in ["online", "possible", "present"] {
            // Replaced as a whole: the agent may be reading it.
            fs::write(directory.join("new"), format!("{list}\n")).unwrap();
            fs::rename(directory.join("new"), directory.join(name)).unwrap();
        }
    }

    /// Quotas of the pod and the container, microseconds.
    fn quotas(&self) -> [u64; 2] {
        [&self.scene.pod, &self.scene.container].map(quota_usec)
    }

    /// Waits for a quota of the container. Returns the ones before.
    fn wait_for(&self, quota: u64) -> BTreeSet<u64> {
        let seen = RefCell::new(BTreeSet::new());
        eventually(&format!("a quota of {quota}"), || {
            let [_, now] = self.quotas();
            seen.borrow_mut().insert(now);
            now == quota
        });
        seen.into_inner()
    }
}

fn quota_usec(cgroup: &Cgroup) -> u64 {
    let is_v2 = fs::exists(cgroup.dir("cpu").join("cpu.max")).unwrap();
    let text = cgroup.read("cpu", if is_v2 { "cpu.max" } else { "cpu.cfs_quota_us" });
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Value of the container's metric, cores.
fn metric_cores(agent: &Agent) -> Option<f64> {
    let labels = [("namespace", "test"), ("pod", "service"), ("container", "c")];
    agent.metrics().value("cpuwarden_container_scaled_quota_cores", &labels)
}

/// The container's limit in the metrics, cores.
fn limit_cores(agent: &Agent) -> Option<f64> {
    let labels = [("namespace", "test"), ("pod", "service"), ("container", "c")];
    agent.metrics().value("cpuwarden_container_cpu_limit_cores", &labels)
}

fn scaled_containers(agent: &Agent) -> Option<f64> {
    agent.metrics().value("cpuwarden_burst_containers", &[("state", "scaled")])
}

#[test]
fn a_throttled_containers_quota_grows_in_steps_until_the_node_is_busy() {
    let scaled = Scaled::new(-1);
    let agent = scaled.scene.agent("enforce");
    // Not all are seen, and a busy machine may take one back.
    let seen = scaled.wait_for(MAX_USEC);
    assert!(seen.iter().any(|quota| (QUOTA_USEC + 1..MAX_USEC).contains(quota)), "{seen:?}");
    assert!(seen.iter().all(|quota| (QUOTA_USEC..=MAX_USEC).contains(quota)), "{seen:?}");
    eventually("the pod's quota", || scaled.quotas()[0] > QUOTA_USEC);
    eventually("the metric", || scaled_containers(&agent) == Some(1.0));
    eventually("the container's metric", || {
        metric_cores(&agent).is_some_and(|cores| (0.2..=0.4).contains(&cores))
    });
    assert_eq!(limit_cores(&agent), Some(0.2), "the limit is that of the spec");
    let table = stdout_of(&command("pins", &scaled.scene.options, &[]));
    assert!(table.contains("test/service") && table.contains("scaled_quota"), "{table}");
    assert_eq!(scaled.scene.bursts(), [0, 0], "the other means");

    // On a node of one CPU, this is all of it.
    let other = scaled.scene.tree.pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0109");
    let busy = other.spawn(&Workload::Spin { threads: 1 });
    scaled.set_cpus("0");
    scaled.wait_for(QUOTA_USEC);
    // Containers shrink before their pod.
    eventually("the pod's limit", || scaled.quotas() == [QUOTA_USEC; 2]);
    eventually("no metric", || metric_cores(&agent).is_none());
    drop(busy);
    scaled.set_cpus("0-255");
    scaled.wait_for(MAX_USEC);

    assert!(agent.signal(Signal::TERM).0.success());
    assert_eq!(scaled.quotas(), [QUOTA_USEC; 2], "after a stop");
    let agent = scaled.scene.agent("enforce");
    scaled.wait_for(MAX_USEC);
    agent.signal(Signal::KILL);
    assert!(scaled.quotas()[1] > QUOTA_USEC, "a killed agent restores nothing");
    drop(scaled.scene.agent("off"));
    assert_eq!(scaled.quotas(), [QUOTA_USEC; 2], "after the next start");

    let agent = scaled.scene.agent("enforce");
    scaled.wait_for(MAX_USEC);
    stdout_of(&command("drain", &scaled.scene.options, &[]));
    assert_eq!(scaled.quotas(), [QUOTA_USEC; 2], "after a drain");
    drop(agent);

    let agent = scaled.scene.agent("enforce");
    let is_scaled = || scaled.quotas().iter().all(|&quota| quota > QUOTA_USEC);
    eventually("scaled quotas", is_scaled);
    agent.signal(Signal::KILL);
    stdout_of(&command("drain", &scaled.scene.options, &[]));
    assert_eq!(scaled.quotas(), [QUOTA_USEC; 2], "after a crash and an uninstall");
    assert!(!scaled.scene.state.path().join("yields.json").exists());
}

#[test]
fn a_scaled_quota_ends_when_its_tokens_are_spent() {
    // The first bucket has an eighth of 30 limit-seconds, by the container's id.
    let scaled = Scaled::new(30);
    let agent = scaled.scene.agent("enforce");
    eventually("a scaled quota", || scaled.quotas()[1] > QUOTA_USEC);
    scaled.wait_for(QUOTA_USEC);
    eventually("the pod's quota", || scaled.quotas()[0] == QUOTA_USEC);
    eventually("the metric", || scaled_containers(&agent) == Some(0.0));
}

#[test]
fn without_its_own_option_no_quota_is_scaled() {
    let mut scaled = Scaled::new(-1);
    scaled.scene.options.retain(|option| !option.starts_with("--burst-quota-percent"));
    let agent = scaled.scene.agent("enforce");
    let ticks = agent.metrics().ticks();
    eventually("ten samples", || agent.metrics().ticks() >= ticks + 10);
    assert_eq!(scaled.quotas(), [QUOTA_USEC; 2]);
    assert_eq!(scaled_containers(&agent), Some(0.0));
}
