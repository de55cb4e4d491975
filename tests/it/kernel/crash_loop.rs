//! SIGKILL again and again, while pinning, best effort and bursts write to the same cgroups.

use std::fs;
use std::time::Duration;

use kernel_text::CpuSet;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::burst::{PERIOD_USEC, QUOTA_USEC};
use super::pinning::agent::{command, kubelet, stdout_of};
use crate::support::{Agent, BURST_EVERY, Cgroup, Qos, RealTree, Running, Workload, eventually};

/// Throttled once per burst, as in the tests of bursts.
const LOAD: Workload =
    Workload::Burst { threads: 1, cpu: Duration::from_millis(28), every: BURST_EVERY };

/// Numbers of the pods.
const EXCLUSIVE: usize = 0;
const SERVICE: usize = 1;
const BURSTING: usize = 2;
const BATCH: usize = 3;

/// A pod with a CPU of its own, a service, one that bursts, and a best-effort pod.
struct Scene {
    state: tempfile::TempDir,
    options: Vec<String>,
    _load: [Running; 3],
    pods: Vec<[Cgroup; 2]>,
    _tree: RealTree,
}

fn uid(number: usize) -> String {
    format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0e{number:04}")
}

fn id(number: usize) -> String {
    format!("{:064x}", 0xc4a5 + number)
}

fn listed(number: usize) -> Value {
    let (qos, class, resources) = match number {
        EXCLUSIVE => {
            let one = json!({"cpu": "1"});
            ("Guaranteed", "LSE", json!({"requests": one, "limits": one}))
        }
        SERVICE => ("Burstable", "LS", json!({"requests": {"cpu": "1"}})),
        BURSTING => ("Burstable", "LS", json!({"limits": {"cpu": "200m"}})),
        _ => ("BestEffort", "BE", json!({})),
    };
    json!({
        "metadata": {
            "namespace": "test", "name": format!("pod-{number}"), "uid": uid(number),
            "labels": {"koordinator.sh/qosClass": class},
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": qos, "containerStatuses": [{
            "name": "c", "containerID": format!("containerd://{}", id(number)), "restartCount": 0,
            "state": {"running": {}},
        }]},
    })
}

impl Scene {
    fn new() -> Self {
        let tree = RealTree::new();
        let pods: Vec<_> = [Qos::Guaranteed, Qos::Burstable, Qos::Burstable, Qos::BestEffort]
            .into_iter()
            .enumerate()
            .map(|(number, qos)| {
                let pod = tree.pod(qos, &uid(number));
                let container = pod.child(&id(number));
                [pod, container]
            })
            .collect();
        for cgroup in &pods[BURSTING] {
            cgroup.set_quota_usec(QUOTA_USEC, PERIOD_USEC);
        }
        // The others do not delay its bursts.
        tree.kubepods().existing_child("burstable").set_highest_weight();
        pods[BURSTING][0].set_highest_weight();
        // Not the kernel's default, which it sets itself when cpu.idle is cleared.
        pods[BATCH][0].set_weight(7);
        let load = [(SERVICE, Workload::Roam), (BURSTING, LOAD), (BATCH, Workload::Roam)]
            .map(|(number, load)| pods[number][1].spawn(&load));
        let list = (0..pods.len()).map(listed).collect::<Vec<_>>();
        let list = json!({"kind": "PodList", "apiVersion": "v1", "items": list});
        let state = tempfile::tempdir().unwrap();
        let kubelet_state = state.path().join("cpu_manager_state");
        fs::write(&kubelet_state, r#"{"policyName":"none","defaultCpuSet":""}"#).unwrap();
        let options = vec![
            format!("--kubepods={}", tree.kubepods().path().display()),
            "--pod-source=readonly".to_owned(),
            format!("--kubelet-readonly-url=http://{}", kubelet(&list)),
            format!("--cpu-manager-state={}", kubelet_state.display()),
            format!("--state-dir={}", state.path().join("state").display()),
            "--share-floor=1".to_owned(),
        ];
        Self { state, options, _load: load, pods, _tree: tree }
    }

    fn agent(&self) -> Agent {
        let more = [
            "--pinning=enforce",
            "--best-effort=enforce",
            "--burst=enforce",
            "--advice-after=15s",
            // Without a trace, best effort follows the node's utilization.
            "--sched-trace=off",
            "--cpu-budget=1000",
            "--sample-interval=500ms",
        ];
        Agent::start(&[&self.options[..], &more.map(str::to_owned)].concat())
    }

    fn cpus(&self, number: usize) -> CpuSet {
        let container = &self.pods[number][1];
        let is_v2 = container.dir("cpuset").join("cpuset.cpus.effective").exists();
        let file = if is_v2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        container.read("cpuset", file).parse().unwrap()
    }

    fn is_pinned(&self) -> bool {
        let own = self.cpus(EXCLUSIVE);
        let others = [SERVICE, BURSTING, BATCH];
        own.len() == 1 && others.iter().all(|&number| self.cpus(number).is_disjoint(&own))
    }

    /// CPUs, weight, quota and burst of every pod and container.
    fn settings(&self) -> Vec<Vec<String>> {
        let all = (0..self.pods.len())
            .flat_map(|number| self.pods[number].iter().map(move |cgroup| (number, cgroup)));
        let is_v2 = self.pods[0][0].dir("cpu").join("cpu.max").exists();
        let files = match is_v2 {
            true => ["cpu.idle", "cpu.weight", "cpu.max", "cpu.max.burst"],
            false => ["cpu.idle", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_burst_us"],
        };
        all.map(|(number, cgroup)| {
            let read = |file| cgroup.read("cpu", file).trim().to_owned();
            let mut settings = files.map(read).to_vec();
            settings.push(self.cpus(number).to_string());
            settings
        })
        .collect()
    }

    fn is_in_force(&self, agent: &Agent) -> bool {
        let page = agent.metrics();
        let value = |name: &str, labels: &[(&str, &str)]| page.value(name, labels);
        self.is_pinned()
            && value("cpuwarden_best_effort_step", &[]).is_some_and(|step| step > 0.0)
            && value("cpuwarden_burst_containers", &[("state", "burst")]) == Some(1.0)
            && ["pinning", "best_effort", "burst"].iter().all(|mode| {
                value(&format!("cpuwarden_{mode}_enforcing"), &[("reason", "")]) == Some(1.0)
            })
    }
}

/// Kills agents at their start, after they have pinned, and after best-effort pods yield; the last
/// one while the burst is in force as well.
fn kills_leave_nothing(kills: usize) {
    let scene = Scene::new();
    let before = scene.settings();
    for kill in 1..=kills {
        let was_pinned = scene.is_pinned();
        let agent = scene.agent();
        match kill % 3 {
            _ if kill == kills => eventually("everything in force", || scene.is_in_force(&agent)),
            1 => {}
            2 => eventually("a CPU of its own", || scene.is_pinned()),
            _ => eventually("a step of best effort", || {
                let step = agent.metrics().value("cpuwarden_best_effort_step", &[]);
                step.is_some_and(|step| step > 0.0) && scene.settings() != before
            }),
        }
        agent.signal(Signal::KILL);
        assert!(!was_pinned || scene.is_pinned(), "kill {kill} changed the placement");
    }
    let left = scene.settings();
    assert!(left != before && scene.is_pinned(), "a killed agent restores nothing: {left:?}");
    let agent = scene.agent();
    eventually("everything in force after the kills", || scene.is_in_force(&agent));
    for mode in ["best_effort", "burst"] {
        let conflicts = [("setting", "all"), ("result", "conflict")];
        let conflicts =
            agent.metrics().value(&format!("cpuwarden_{mode}_writes_total"), &conflicts);
        assert_eq!(conflicts.unwrap_or(0.0), 0.0, "{mode}: its own writes are no conflict");
    }
    stdout_of(&command("drain", &scene.options, &[]));
    assert_eq!(scene.settings(), before, "after a drain");
    let left = fs::read_dir(scene.state.path().join("state")).unwrap();
    let left = left.map(|file| file.unwrap().file_name().into_string().unwrap());
    let of_the_agent = ["drain", "lock", "yield.lock", "pinning-status.json"];
    let left: Vec<_> = left.filter(|name| !of_the_agent.contains(&&**name)).collect();
    assert_eq!(left, [""; 0], "checkpoints and half-written files");
}

#[test]
fn fifty_kills_with_everything_enforcing_leave_nothing() {
    kills_leave_nothing(50);
}
