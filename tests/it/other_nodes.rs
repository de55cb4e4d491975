//! Nodes whose container runtime does not put containers where the kubelet wants them: measured
//! where they are, and reported where they have no cgroup. The nodes are plain files (cgroup v2).

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Agent, Kubelet, binary, eventually, pod_list, running_pod};

const UID: &str = "51de0f0a-7c1e-4a55-9d10-000000000001";
const SLICE_UID: &str = "51de0f0a_7c1e_4a55_9d10_000000000001";

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// `cpu.stat` of a fixed length.
fn stat(millis: u64) -> String {
    let usec = format!("{:015}", millis * 1_000);
    let zeros = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n{zeros}")
}

/// A node of plain files, with the pod `shop/web` and its kubelet.
struct PlainNode {
    directory: TempDir,
    kubelet: Kubelet,
}

impl PlainNode {
    fn new(pods: &[Value]) -> Self {
        let node =
            Self { directory: TempDir::new().unwrap(), kubelet: Kubelet::start(pod_list(pods)) };
        node.write("cg/cgroup.controllers", "cpuset cpu io memory pids\n");
        node.write("cg/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n");
        node.write("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n");
        node.write("proc/sys/kernel/osrelease", "6.8.0-generic\n");
        for file in ["online", "possible", "present"] {
            node.write(&format!("sys/devices/system/cpu/{file}"), "0-3\n");
        }
        node
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds a cgroup that contains a process and has used this many seconds of CPU time.
    fn cgroup(&self, path: &str, seconds: u64) {
        for (file, text) in [
            ("cpu.stat", stat(seconds * 1_000).as_str()),
            ("cpu.max", "max 100000\n"),
            ("cpu.weight", "20\n"),
            ("cgroup.procs", "101\n"),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
        ] {
            self.write(&format!("cg/{path}/{file}"), text);
        }
    }

    /// Takes the process out of a cgroup.
    fn empty(&self, path: &str) {
        self.write(&format!("cg/{path}/cgroup.procs"), "");
        self.write(&format!("cg/{path}/cgroup.events"), "populated 0\nfrozen 0\n");
    }

    /// Sets the CPU time of a cgroup. The file stays the same, and a reader never sees a part.
    fn run_until(&self, path: &str, millis: u64) {
        let file = self.path().join("cg").join(path).join("cpu.stat");
        let file = fs::File::options().write(true).open(file).unwrap();
        file.write_all_at(stat(millis).as_bytes(), 0).unwrap();
    }

    fn options(&self) -> Vec<String> {
        let root = self.path().display();
        let mut options = self.kubelet.flags();
        options.extend(["cgroup", "proc", "sys"].map(|name| {
            let directory = if name == "cgroup" { "cg" } else { name };
            format!("--{name}-root={root}/{directory}")
        }));
        let short = ["--sched-trace=off", "--pod-poll-interval=2s", "--reconcile-interval=2s"];
        options.extend(short.map(str::to_owned));
        options
    }

    /// Findings of the doctor: level and text by check.
    fn doctor(&self) -> Vec<(String, String, String)> {
        let mut command = Command::new(binary());
        let output = command.args(["doctor", "--json"]).args(self.options()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .map(|one| (text(&one["check"]), text(&one["level"]), text(&one["found"])))
            .collect()
    }
}

fn pod() -> Value {
    running_pod(UID, "shop", "web", &id('a'))
}

/// CPU time of a container of `shop/web`, seconds.
fn usage(agent: &Agent, container: &str) -> Option<f64> {
    let labels =
        [("namespace", "shop"), ("pod", "web"), ("container", container), ("mode", "user")];
    agent.metrics().value("cpuwarden_container_cpu_usage_seconds_total", &labels)
}

fn without_cgroup(agent: &Agent, sandboxed: &str) -> Option<f64> {
    let labels = [("sandboxed", sandboxed)];
    agent.metrics().value("cpuwarden_containers_without_cgroup", &labels)
}

#[track_caller]
fn assert_measured(what: &str, paths: &[&str]) -> PlainNode {
    let node = PlainNode::new(&[pod()]);
    paths.iter().for_each(|path| node.cgroup(path, 1));
    let agent = Agent::start(&node.options());
    eventually(what, || usage(&agent, "main") == Some(0.0));
    node.run_until(paths.last().unwrap(), 2_000);
    eventually("its usage", || usage(&agent, "main") == Some(1.0));
    assert_eq!(agent.get("/readyz"), (200, "ready\n".to_owned()), "{what}");
    eventually("no container without a cgroup", || without_cgroup(&agent, "false") == Some(0.0));
    node
}

/// kubernetes/kubernetes#106514: the kubelet makes systemd slices, containerd is not told of it.
#[test]
fn containers_of_another_cgroup_driver_are_measured_and_reported() {
    let slice = format!("kubepods-burstable-pod{SLICE_UID}.slice");
    let kubelets = format!("kubepods.slice/kubepods-burstable.slice/{slice}");
    let name = format!("{slice}:cri-containerd:{}", id('a'));
    for above in ["", "system.slice/", "system.slice/containerd.service/"] {
        let place = format!("{above}{name}");
        let node = assert_measured(&place, &[&kubelets, &place]);
        if above.is_empty() {
            let findings = node.doctor();
            let found = findings.iter().find(|(check, ..)| check == "containers-outside").unwrap();
            assert!(found.1 == "lacking" && found.2.contains(&place), "{findings:?}");
            let is_good = |check: &str| {
                findings.iter().any(|(name, level, _)| name == check && level == "good")
            };
            assert!(is_good("pods"), "{findings:?}");
        }
    }
}

/// docker/for-win#13822: the kubelet runs with `--cgroup-root=/kubepods`.
#[test]
fn kubepods_inside_kubepods_is_measured() {
    let pod = format!("kubepods/kubepods/burstable/pod{UID}");
    assert_measured("cgroupfs", &[&pod, &format!("{pod}/{}", id('a'))]);
    let slices = "kubepods.slice/kubepods-kubepods.slice/kubepods-kubepods-burstable.slice";
    let pod = format!("{slices}/kubepods-kubepods-burstable-pod{SLICE_UID}.slice");
    assert_measured("systemd", &[&pod, &format!("{pod}/crio-{}.scope", id('a'))]);
}

#[test]
fn containers_are_measured_whatever_their_place_and_the_form_of_their_name() {
    let slice =
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice");
    let session = "user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service";
    for place in [
        // A runtime that the agent does not know.
        format!("{slice}/isulad-{}.scope", id('a')),
        // A runtime without systemd below a kubelet with it.
        format!("{slice}/{}", id('a')),
        // A level of the runtime between the pod and its container.
        format!("kubepods/burstable/pod{UID}/sandbox/{}", id('a')),
        // A kubelet with `cgroupsPerQOS: false`.
        format!("system.slice/cri-containerd-{}.scope", id('a')),
        format!("k8s.io/{}", id('a')),
        // A cluster without root.
        format!("{session}/kubepods/burstable/pod{UID}/{}", id('a')),
    ] {
        let node = assert_measured(&place, &[&place]);
        if place.starts_with("system.slice/") {
            // It works; what the kubelet lacks is said with the container.
            let findings = node.doctor();
            let of = |check: &str| findings.iter().find(|(name, ..)| name == check).unwrap();
            assert!(of("cgroups").1 == "lacking" && of("cgroups").2.contains("by their IDs"));
            assert!(findings.iter().all(|(_, level, _)| level != "broken"), "{findings:?}");
        }
    }
}

/// google/gvisor#13067: all CPU time is in the sandbox's cgroup; the container's is empty.
#[test]
fn a_sandbox_that_uses_cpu_counts_for_its_pod() {
    let mut sandboxed = pod();
    sandboxed["spec"]["runtimeClassName"] = json!("gvisor");
    let node = PlainNode::new(&[sandboxed]);
    let pod = format!("kubepods/burstable/pod{UID}");
    node.cgroup(&format!("{pod}/{}", id('a')), 0);
    node.cgroup(&format!("{pod}/{}", id('b')), 5);
    let agent = Agent::start(&node.options());
    let began = Instant::now();
    let run = |at: u64| node.run_until(&format!("{pod}/{}", id('b')), 5_000 + at);
    eventually("the sandbox", || {
        run(began.elapsed().as_millis() as u64 / 2);
        usage(&agent, "POD").is_some_and(|seconds| seconds > 1.0)
    });
    assert_eq!(usage(&agent, "main"), Some(0.0));
    let findings = node.doctor();
    let found = findings.iter().find(|(check, ..)| check == "sandboxes").unwrap();
    assert!(found.1 == "good" && found.2.contains("(runtime class gvisor)"), "{findings:?}");
}

/// gVisor with the kubelet's cgroup parent, and a virtual machine that is alone in its pod: the
/// threads are in the cgroup of the pod itself. What a container below it uses is not counted twice.
#[test]
fn a_sandbox_in_the_cgroup_of_its_pod_counts_for_it() {
    for (class, containers) in [("kata-clh", &[][..]), ("gvisor", &['a', 'b'])] {
        let mut machine = pod();
        machine["spec"]["runtimeClassName"] = json!(class);
        let node = PlainNode::new(&[machine]);
        let pod = format!("kubepods/burstable/pod{UID}");
        node.cgroup(&pod, 5);
        for digit in containers {
            node.cgroup(&format!("{pod}/{}", id(*digit)), 0);
            node.empty(&format!("{pod}/{}", id(*digit)));
        }
        let agent = Agent::start(&node.options());
        let began = Instant::now();
        eventually(class, || {
            let used = began.elapsed().as_millis() as u64 / 2;
            if let Some(digit) = containers.first() {
                node.run_until(&format!("{pod}/{}", id(*digit)), used / 2);
            }
            node.run_until(&pod, 5_000 + used);
            usage(&agent, "POD").is_some_and(|seconds| seconds > 2.0)
        });
        let (all, sandbox) = (began.elapsed().as_secs_f64() / 2.0, usage(&agent, "POD").unwrap());
        let most = if containers.is_empty() { all } else { all / 2.0 };
        assert!(sandbox < most + 0.5, "{class}: {sandbox} of {all}");
        let findings = node.doctor();
        let found = findings.iter().find(|(check, ..)| check == "sandboxes").unwrap();
        assert!(found.2.ends_with("counts for its pod, as container POD"), "{findings:?}");
        assert!(findings.iter().all(|(check, ..)| check != "processes"), "{findings:?}");
    }
}

/// Kata without the systemd driver of its kubelet: the sandbox is outside of the kubelet's tree, and
/// only its pod's UID is in its name.
#[test]
fn a_sandbox_outside_of_the_kubelets_tree_is_found_by_its_pod() {
    let mut machine = pod();
    machine["spec"]["runtimeClassName"] = json!("kata-qemu");
    let node = PlainNode::new(&[machine]);
    let slice = format!("kubepods-burstable-pod{SLICE_UID}.slice");
    let kubelets = format!("kubepods.slice/kubepods-burstable.slice/{slice}");
    node.cgroup(&kubelets, 0);
    node.empty(&kubelets);
    let place = format!("{slice}:cri-containerd:{}", id('d'));
    node.cgroup(&place, 5);
    let agent = Agent::start(&node.options());
    let began = Instant::now();
    eventually("the sandbox", || {
        node.run_until(&place, 5_000 + began.elapsed().as_millis() as u64 / 2);
        usage(&agent, "POD").is_some_and(|seconds| seconds > 1.0)
    });
    let findings = node.doctor();
    let found = |check: &str| findings.iter().find(|(name, ..)| name == check).unwrap();
    assert!(found("sandboxes").2.ends_with("as container POD"), "{findings:?}");
    assert!(found("containers-outside").2.contains(&place), "{findings:?}");
}

/// Firecracker: the virtual machine has a cgroup elsewhere, under its own name.
#[test]
fn a_sandbox_outside_of_the_cgroup_of_its_pod_is_said_to_be_unseen() {
    let mut machine = pod();
    machine["spec"]["runtimeClassName"] = json!("kata-fc");
    let node = PlainNode::new(&[machine]);
    let pod = format!("kubepods/burstable/pod{UID}");
    node.cgroup(&pod, 5);
    node.empty(&pod);
    node.cgroup(&format!("firecracker-containerd/{}", id('d')), 5);
    let findings = node.doctor();
    let found = findings.iter().find(|(check, ..)| check == "sandboxes").unwrap();
    let expected = "1 pod runs in a sandbox (runtime class kata-fc): no process is in the cgroup of the pod, so \
                    its CPU is not measured";
    assert_eq!((found.1.as_str(), found.2.as_str()), ("good", expected), "{findings:?}");
}

#[test]
fn a_running_container_without_a_cgroup_is_reported_everywhere() {
    let mut machine = running_pod(&UID.replace('1', "2"), "shop", "machine", &id('c'));
    machine["spec"]["runtimeClassName"] = json!("kata-qemu");
    let node = PlainNode::new(&[pod(), machine]);
    node.cgroup(&format!("kubepods/burstable/pod{UID}"), 0);
    let of_machine = format!("kubepods/burstable/pod{}", UID.replace('1', "2"));
    node.cgroup(&format!("{of_machine}/kata_{}", id('d')), 5);
    let agent = Agent::start(&node.options());
    // At the same time: each takes 30 s.
    let findings = std::thread::scope(|scope| {
        let doctor = scope.spawn(|| node.doctor());
        eventually("both are counted", || {
            let counts = ["false", "true"].map(|sandboxed| without_cgroup(&agent, sandboxed));
            counts == [Some(1.0), Some(1.0)]
        });
        doctor.join().unwrap()
    });
    // Its pod has a sandbox of a class that the agent does not know.
    let own_pod = format!("kubepods/burstable/pod{UID}");
    let began = Instant::now();
    eventually("the CPU time of the pod", || {
        node.run_until(&own_pod, began.elapsed().as_millis() as u64 / 2);
        usage(&agent, "POD").is_some_and(|seconds| seconds > 1.0)
    });
    let (status, text) = agent.get("/readyz");
    assert_eq!(status, 200);
    assert_eq!(
        text,
        "ready\n1 running container has no cgroup and is not measured: cpuwarden doctor names it\n"
    );
    let found = findings.iter().find(|(check, ..)| check == "containers").unwrap();
    assert!(
        found.1 == "broken" && found.2.ends_with("not measured: shop/web/main"),
        "{findings:?}"
    );
    let of_sandbox = [("pod", "machine"), ("container", "POD"), ("mode", "user")];
    let name = "cpuwarden_container_cpu_usage_seconds_total";
    let began = Instant::now();
    eventually("the virtual machine", || {
        let used = 5_000 + began.elapsed().as_millis() as u64 / 2;
        node.run_until(&format!("{of_machine}/kata_{}", id('d')), used);
        agent.metrics().value(name, &of_sandbox).is_some()
    });
    node.cgroup(&format!("kubepods/burstable/pod{UID}/{}", id('a')), 1);
    eventually("it is found", || without_cgroup(&agent, "false") == Some(0.0));
    assert_eq!(agent.get("/readyz").1, "ready\n");
}
