//! CPU limits that burst, with the real binary and real cgroups.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubelet_stub::grpc::PodResourcesStub;
use kubelet_stub::grpc::podresources_v1::{ContainerResources, PodResources};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::pinning::agent::{changing_kubelet, command, stdout_of};
use crate::support::{Agent, BURST_EVERY, Cgroup, Qos, RealTree, Running, Workload, eventually};

pub(super) const POD: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0107";
pub(super) const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650107";

/// Limit of 200m: 20 ms per period.
pub(super) const QUOTA_USEC: u64 = 20_000;
pub(super) const PERIOD_USEC: u64 = 100_000;

/// An eighth of the limit, in bursts of 28 ms: each is throttled once, though its CPU time was
/// saved before. The replayed bursts are 5, 10 and 15 ms; it is 2 ms or more from what each of them
/// allows.
const LOAD: Workload =
    Workload::Burst { threads: 1, cpu: Duration::from_millis(28), every: BURST_EVERY };

/// A pod of one container with bursts.
pub(super) struct Scene {
    pub(super) state: tempfile::TempDir,
    pub(super) options: Vec<String>,
    pub(super) limit_millis: Arc<Mutex<u64>>,
    _load: Running,
    pub(super) container: Cgroup,
    pub(super) pod: Cgroup,
    _tree: RealTree,
}

fn list(limit_millis: u64) -> Value {
    let resources = json!({"limits": {"cpu": format!("{limit_millis}m")}});
    json!({"kind": "PodList", "apiVersion": "v1", "items": [{
        "metadata": {"namespace": "test", "name": "service", "uid": POD},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "c", "containerID": format!("containerd://{ID}"), "restartCount": 0, "state": {"running": {}},
        }]},
    }]})
}

impl Scene {
    pub(super) fn new() -> Self {
        let tree = RealTree::new();
        let pod = tree.pod(Qos::Burstable, POD);
        pod.set_quota_usec(QUOTA_USEC, PERIOD_USEC);
        let container = pod.child(ID);
        container.set_quota_usec(QUOTA_USEC, PERIOD_USEC);
        let load = container.spawn(&LOAD);
        let limit_millis = Arc::new(Mutex::new(QUOTA_USEC / 100));
        let shared = Arc::clone(&limit_millis);
        let kubelet = changing_kubelet(move || list(*shared.lock().unwrap()).to_string());
        let state = tempfile::tempdir().unwrap();
        let options = vec![
            format!("--kubepods={}", tree.kubepods().path().display()),
            "--pod-source=readonly".to_owned(),
            format!("--kubelet-readonly-url=http://{kubelet}"),
            "--pod-poll-interval=1s".to_owned(),
            format!("--state-dir={}", state.path().display()),
        ];
        Self { state, options, limit_millis, _load: load, container, pod, _tree: tree }
    }

    pub(super) fn agent(&self, mode: &str) -> Agent {
        let more = [
            format!("--burst={mode}"),
            "--advice-after=15s".to_owned(),
            "--sched-trace=off".to_owned(),
            "--cpu-budget=1000".to_owned(),
        ];
        Agent::start(&[&self.options[..], &more].concat())
    }

    fn burst_file(cgroup: &Cgroup) -> &'static str {
        let is_v2 = fs::exists(cgroup.dir("cpu").join("cpu.max")).unwrap();
        if is_v2 { "cpu.max.burst" } else { "cpu.cfs_burst_us" }
    }

    pub(super) fn burst_usec(cgroup: &Cgroup) -> u64 {
        cgroup.read("cpu", Self::burst_file(cgroup)).trim().parse().unwrap()
    }

    /// Sets the bursts of the pod and the container.
    fn set_bursts(&self, usec: [u64; 2]) {
        for (cgroup, usec) in [&self.pod, &self.container].into_iter().zip(usec) {
            cgroup.write("cpu", Self::burst_file(cgroup), &usec.to_string());
        }
    }

    /// Bursts of the pod and the container.
    pub(super) fn bursts(&self) -> [u64; 2] {
        [&self.pod, &self.container].map(Self::burst_usec)
    }

    /// Whether the kernel accepts the quota.
    pub(super) fn try_quota(cgroup: &Cgroup, quota_usec: u64) -> bool {
        let directory = cgroup.dir("cpu");
        let written = match fs::exists(directory.join("cpu.max")).unwrap() {
            true => fs::write(directory.join("cpu.max"), format!("{quota_usec} {PERIOD_USEC}")),
            false => fs::write(directory.join("cpu.cfs_quota_us"), quota_usec.to_string()),
        };
        written.is_ok()
    }

    /// Periods and throttled periods of the container.
    fn periods(&self) -> [u64; 2] {
        let stat = self.container.cpu_stat();
        [stat["nr_periods"], stat["nr_throttled"]]
    }

    /// Share of throttled periods until `periods` more have passed.
    fn throttled_share(&self, since: [u64; 2], periods: u64) -> f64 {
        eventually("enough periods", || self.periods()[0] >= since[0] + periods);
        let now = self.periods();
        (now[1] - since[1]) as f64 / (now[0] - since[0]) as f64
    }
}

/// The field of the log line about the raised burst.
fn logged(agent: &Agent, field: &str) -> f64 {
    let lines = agent.log();
    let raised = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut raised = raised.filter(|line| line["fields"]["message"] == "burst raised");
    raised.next().unwrap()["fields"][field].as_f64().unwrap()
}

#[test]
fn a_burst_ends_throttling_as_predicted_and_everything_is_restored() {
    let scene = Scene::new();
    assert_eq!(scene.bursts(), [0, 0]);
    let agent = scene.agent("enforce");
    let start = scene.periods();
    eventually("a burst", || scene.bursts()[1] > 0);
    let before = scene.throttled_share(start, 0);
    let [pod, container] = scene.bursts();
    assert_eq!(pod, container, "the pod has one container");
    assert!(container < QUOTA_USEC, "{container}");
    let after = scene.throttled_share(scene.periods(), 60);
    let (without, with) = (logged(&agent, "throttled_without"), logged(&agent, "throttled_with"));
    println!(
        "throttled periods: {before:.3} before ({without:.3} replayed), {after:.3} after ({with:.3} replayed)"
    );
    assert!(before > 0.1, "the load is not throttled: {before}");
    assert!((before - without).abs() < 0.15, "before: {before}, replayed {without}");
    assert!((after - with).abs() < 0.15, "after: {after}, replayed {with}");
    assert!(after < before / 2.0, "{before} before, {after} after");
    let labels = [("namespace", "test"), ("pod", "service"), ("container", "c")];
    // The agent may have raised it since, if some periods were still throttled.
    eventually("the metric", || {
        let seconds = agent.metrics().value("cpuwarden_container_burst_seconds", &labels);
        seconds == Some(Scene::burst_usec(&scene.container) as f64 / 1e6)
    });
    let table = stdout_of(&command("pins", &scene.options, &[]));
    assert!(table.contains(POD) && table.contains("burst"), "{table}");

    agent.signal(Signal::KILL);
    let left = scene.bursts();
    assert!(!left.contains(&0), "a killed agent restores nothing");
    let checkpoint = scene.state.path().join("yields.json");
    let stored = fs::read(&checkpoint).unwrap();
    stdout_of(&command("drain", &scene.options, &[]));
    assert_eq!(scene.bursts(), [0, 0], "after a crash and an uninstall");
    assert!(!checkpoint.exists());

    // As after the same crash.
    fs::write(&checkpoint, stored).unwrap();
    scene.set_bursts(left);
    drop(scene.agent("off"));
    assert_eq!(scene.bursts(), [0, 0], "after the next start, even without the feature");

    let agent = scene.agent("enforce");
    eventually("a burst", || scene.bursts()[1] > 0);
    assert!(agent.signal(Signal::TERM).0.success());
    assert_eq!(scene.bursts(), [0, 0], "after a stop");
    assert!(!scene.state.path().join("yields.json").exists());
}

#[test]
fn a_limit_shrinks_while_its_container_bursts() {
    let scene = Scene::new();
    let agent = scene.agent("enforce");
    eventually("a burst", || scene.bursts()[1] > 0);
    let burst = scene.bursts()[1];
    let smaller = burst / 2;
    assert!(!Scene::try_quota(&scene.container, smaller), "the kernel checks the burst");
    // The kubelet's list has the new limit before the kubelet writes it.
    *scene.limit_millis.lock().unwrap() = smaller / 100;
    eventually("a smaller burst", || scene.bursts().iter().all(|&burst| burst < smaller));
    assert!(Scene::try_quota(&scene.container, smaller) && Scene::try_quota(&scene.pod, smaller));
    // The kernel before 6.10 has divided the burst by 1000.
    let still = |usec: u64| usec > smaller / 10 && usec < smaller;
    eventually("the burst again", || scene.bursts().into_iter().all(still));
    stdout_of(&command("drain", &scene.options, &[]));
    assert_eq!(scene.bursts(), [0, 0], "after a drain");
    eventually("the reason", || {
        let reason = ("reason", "a drain is requested");
        agent.metrics().value("cpuwarden_burst_enforcing", &[reason]) == Some(0.0)
    });
}

/// As when a container is resized to whole CPUs (KEP-5554).
#[test]
fn a_burst_ends_when_the_kubelet_gives_its_container_exclusive_cpus() {
    let mut scene = Scene::new();
    let socket = scene.state.path().join("pod-resources.sock");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let kubelet = PodResourcesStub::start(&socket).unwrap();
    kubelet.set(&[0, 1], Vec::new());
    scene.options.push(format!("--pod-resources-socket={}", socket.display()));
    let agent = scene.agent("enforce");
    eventually("a burst", || scene.bursts()[1] > 0);
    let container =
        ContainerResources { name: "c".into(), cpu_ids: vec![1], ..ContainerResources::default() };
    let pod = PodResources {
        name: "service".into(),
        namespace: "test".into(),
        containers: vec![container],
        ..PodResources::default()
    };
    kubelet.set(&[0, 1], vec![pod]);
    eventually("the original bursts", || scene.bursts() == [0, 0]);
    eventually("the reason", || {
        agent.metrics().value("cpuwarden_burst_containers", &[("state", "exclusive")]) == Some(1.0)
    });
}

#[test]
fn observing_reports_the_burst_and_writes_nothing() {
    let scene = Scene::new();
    let agent = scene.agent("observe");
    eventually("the burst", || {
        agent.metrics().value("cpuwarden_burst_containers", &[("state", "burst")]) == Some(1.0)
    });
    assert_eq!(scene.bursts(), [0, 0]);
    let reason = ("reason", "--burst=observe");
    assert_eq!(agent.metrics().value("cpuwarden_burst_enforcing", &[reason]), Some(0.0));
}

/// The metrics count them by reason; only the log has the pod, the value and what is accepted.
#[test]
fn observing_logs_an_annotation_and_a_label_that_cannot_be_used_once() {
    let tree = RealTree::new();
    tree.pod(Qos::Burstable, POD).child(ID);
    let mut pods = list(200);
    pods["items"][0]["metadata"]["annotations"] = json!({"koordinator.sh/cpuBurst": "<svg>"});
    pods["items"][0]["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LSX"});
    let kubelet = changing_kubelet(move || pods.to_string());
    let state = tempfile::tempdir().unwrap();
    let cpu_manager = state.path().join("cpu_manager_state");
    fs::write(&cpu_manager, r#"{"policyName":"none","defaultCpuSet":""}"#).unwrap();
    let agent = Agent::start(&[
        format!("--kubepods={}", tree.kubepods().path().display()),
        "--pod-source=readonly".to_owned(),
        format!("--kubelet-readonly-url=http://{kubelet}"),
        format!("--state-dir={}", state.path().display()),
        format!("--cpu-manager-state={}", cpu_manager.display()),
        "--burst=observe".to_owned(),
        "--pinning=observe".to_owned(),
        "--sched-trace=off".to_owned(),
        "--sample-interval=100ms".to_owned(),
        "--cpu-budget=1000".to_owned(),
    ]);
    let lines = |word: &str| -> Vec<Value> {
        let log = agent.log();
        let lines = log.lines().filter(|line| line.contains(word));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for (word, value, accepted) in
        [("svg", "annotation", "cpuBurstOnly"), ("LSX", "value", "use LSE, LSR, LS, BE or SYSTEM")]
    {
        eventually("a line about it", || !lines(word).is_empty());
        let fields = lines(word)[0]["fields"].clone();
        assert_eq!((&fields["namespace"], &fields["pod"]), (&json!("test"), &json!("service")));
        assert!(fields[value].as_str().unwrap().contains(word), "{fields}");
        assert!(fields["message"].as_str().unwrap().contains(accepted), "{fields}");
    }
    let ticks = agent.metrics().ticks();
    eventually("more passes", || agent.metrics().ticks() > ticks + 20);
    assert_eq!((lines("svg").len(), lines("LSX").len()), (1, 1), "{}", agent.log());
}
