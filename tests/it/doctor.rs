//! `cpuwarden doctor` on a recorded node, with a kubelet in various states.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use kubelet_stub::grpc::PodResourcesStub;
use kubelet_stub::grpc::podresources_v1::{
    ClaimResource, ContainerResources, DynamicResource, PodResources,
};
use kubelet_stub::{CertificateKind, Fault, Grant, KubeletStub, StubConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixtures::{Recording, recording};
use crate::support::{Agent, binary, eventually};

/// A recorded node, and a stub that answers like its kubelet.
struct Node {
    recording: &'static Recording,
    kubelet: KubeletStub,
    directory: TempDir,
    runtime: tokio::runtime::Runtime,
}

/// The recorded list. Its container that crashes again and again ran when the list was read, but not
/// when the cgroups were, and the list of a stub never changes.
fn pods(recording: &Recording) -> Vec<u8> {
    let list = fs::read(recording.path.join("pods.json")).unwrap();
    let mut list: Value = serde_json::from_slice(&list).unwrap();
    for pod in list["items"].as_array_mut().unwrap() {
        if pod["metadata"]["name"].as_str().unwrap().starts_with("crashloop") {
            pod["status"]["containerStatuses"][0]["state"] =
                json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        }
    }
    serde_json::to_vec(&list).unwrap()
}

impl Node {
    fn new(recording: &'static Recording) -> Self {
        let (runtime, directory) =
            (tokio::runtime::Runtime::new().unwrap(), TempDir::new().unwrap());
        let kubelet = runtime.block_on(KubeletStub::start(StubConfig {
            node_name: "recorded-node".into(),
            directory: directory.path().into(),
            pods: pods(recording).into(),
            read_only_port: false,
        }));
        Self { recording, kubelet: kubelet.unwrap(), directory, runtime }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.recording.path.join(name)
    }

    fn options(&self) -> Vec<String> {
        let kubelet = &self.kubelet;
        vec![
            format!("--cgroup-root={}", self.path("cgroup-t0").display()),
            format!("--proc-root={}", self.path("proc").display()),
            format!("--sys-root={}", self.path("sys").display()),
            format!("--cpu-manager-state={}", self.path("cpu_manager_state").display()),
            "--pod-source=kubelet".to_owned(),
            format!("--kubelet-url={}", kubelet.url()),
            format!("--kubelet-ca-file={}", kubelet.ca_file().display()),
            format!("--kubelet-token-file={}", kubelet.token_file().display()),
            format!("--kubelet-server-name={}", kubelet.node_name()),
        ]
    }

    fn examine(&self) -> Report {
        Report::of(&self.options())
    }
}

/// The doctor's exit code and JSON output.
struct Report {
    code: i32,
    json: Value,
}

impl Report {
    fn of(options: &[String]) -> Self {
        let output =
            Command::new(binary()).args(["doctor", "--json"]).args(options).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors, "", "a finding is no error");
        Self {
            code: output.status.code().unwrap(),
            json: serde_json::from_slice(&output.stdout).unwrap(),
        }
    }

    /// Level of a check, and its text with the remedy.
    #[track_caller]
    fn finding(&self, check: &str) -> (&str, String) {
        let found = self.json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check} in {:#}", self.json));
        let text =
            [&found["found"], &found["remedy"]].map(|part| part.as_str().unwrap_or_default());
        (found["level"].as_str().unwrap(), text.join(" → "))
    }

    #[track_caller]
    fn assert(&self, check: &str, level: &str, words: &[&str]) {
        let (found, text) = self.finding(check);
        assert_eq!(found, level, "{check}: {text}");
        words
            .iter()
            .for_each(|word| assert!(text.contains(word), "{word:?} is not in {check}: {text}"));
    }
}

static RECORDING: LazyLock<Recording> = LazyLock::new(|| recording("guest-v2-cgroupfs"));

static STATIC_POLICY: LazyLock<Recording> = LazyLock::new(|| recording("guest-v2-static"));

/// The options with another value for this flag.
fn with(mut options: Vec<String>, flag: &str, value: impl Display) -> Vec<String> {
    let option = options.iter_mut().find(|option| option.starts_with(&format!("{flag}="))).unwrap();
    *option = format!("{flag}={value}");
    options
}

#[test]
fn a_node_in_order_has_all_its_containers_named() {
    let node = Node::new(&STATIC_POLICY);
    let report = node.examine();
    report.assert("cgroups", "good", &["cgroup v2, driver cgroupfs, kubepods below "]);
    report.assert("reading", "good", &["29 container cgroups in 10 pods"]);
    let token = format!("authorized by token {}", node.kubelet.token_file().display());
    report.assert("kubelet", "good", &[&node.kubelet.url(), "answers: ", " pods; ", &token]);
    report.assert("pods", "good", &["accounts for all 29 container cgroups"]);
    report.assert("inotify", "good", &[]);
    report.assert("descriptors", "good", &["limit"]);
    assert_ne!(report.code, 2, "{:#}", report.json);
}

#[test]
fn missing_optional_features_have_a_remedy_and_exit_code_1() {
    let report = Node::new(&STATIC_POLICY).examine();
    assert_eq!(
        (report.code, &report.json["worst"]),
        (1, &Value::from("lacking")),
        "{:#}",
        report.json
    );
    report.assert("psi", "lacking", &["CONFIG_PSI"]);
    report.assert("btf", "lacking", &["CONFIG_DEBUG_INFO_BTF"]);
    // The recording has processes, but not their threads.
    report.assert("processes", "lacking", &["hostPID", "--proc-root"]);
    report.assert(
        "cpuset-owners",
        "lacking",
        &["CPU manager policy static, 4 containers on exclusive CPUs"],
    );
}

#[test]
fn without_the_trace_doctor_and_log_do_not_mention_ebpf() {
    let node = Node::new(&STATIC_POLICY);
    let report = Report::of(&[&node.options()[..], &["--sched-trace=off".to_owned()]].concat());
    for check in ["btf", "capabilities", "waits"] {
        let found = report.json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["check"] == check);
        assert_eq!(found, None);
    }
    let agent = Agent::start(&[&node.options()[..], &["--sched-trace=off".to_owned()]].concat());
    eventually("a sample", || agent.get("/readyz").0 == 200);
    let log = agent.log().to_lowercase();
    assert!(!["bpf", "btf", "perfmon"].iter().any(|word| log.contains(word)), "{log}");
}

#[test]
fn lines_bear_a_mark_and_the_remedy_below() {
    let node = Node::new(&STATIC_POLICY);
    let output = Command::new(binary()).arg("doctor").args(node.options()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = |begin: &str| {
        lines.iter().position(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(
        lines[at("! btf ") + 1]
            .trim_start()
            .starts_with("→ use a kernel with CONFIG_DEBUG_INFO_BTF"),
        "{text}"
    );
    assert!(at("✓ kubelet ") > at("✓ kernel "), "{text}");
    assert!(
        text.ends_with("\n4 optional features are unavailable\n")
            || text.ends_with("\n5 optional features are unavailable\n"),
        "{text}"
    );
}

#[test]
fn a_rejected_token_is_a_401_with_a_hint() {
    let node = Node::new(&RECORDING);
    node.kubelet.invalidate_token();
    let report = node.examine();
    report.assert("kubelet", "broken", &["401 Unauthorized", "token"]);
    assert_eq!(report.code, 2);
}

#[test]
fn a_missing_right_is_a_403_that_names_the_rule() {
    let node = Node::new(&RECORDING);
    node.kubelet.set_grants(&[]);
    let report = node.examine();
    report.assert("kubelet", "broken", &["403 Forbidden", "nodes/pods"]);
    assert_eq!(report.code, 2);
    node.kubelet.set_grants(&[Grant::PODS]);
    assert_eq!(node.examine().finding("kubelet").0, "good");
}

#[test]
fn faults_of_a_kubelet_are_distinguished_without_long_waits() {
    let node = Node::new(&RECORDING);
    let faults = [
        (Fault::Hang, "no complete answer"),
        (Fault::Status(500), "status 500"),
        (Fault::Garbage, "/pods"),
        (Fault::HalfBody, "/pods"),
    ];
    for (fault, words) in faults {
        node.kubelet.set_fault(Some(fault));
        let report = node.examine();
        report.assert("kubelet", "broken", &[words, "--kubelet-url"]);
        assert_eq!(report.code, 2);
        // The checks of the node still run.
        report.assert("reading", "good", &["container cgroups"]);
    }
}

#[test]
fn a_certificate_of_another_name_leads_to_its_flags() {
    let node = Node::new(&RECORDING);
    node.kubelet.rotate_certificate(CertificateKind::OtherName).unwrap();
    node.examine().assert("kubelet", "broken", &["certificate", "--kubelet-server-name"]);
}

#[test]
fn a_kubelet_that_is_not_there_is_named_with_its_flag() {
    // No server listens on port 1.
    let report =
        Report::of(&with(Node::new(&RECORDING).options(), "--kubelet-url", "https://127.0.0.1:1"));
    report.assert("kubelet", "broken", &["127.0.0.1:1", "--kubelet-url"]);
}

#[test]
fn cgroups_of_unknown_pods_are_listed() {
    let node = Node::new(&RECORDING);
    let uid = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001";
    let id = "4a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join(format!("kubepods/burstable/pod{uid}/{id}"))).unwrap();
    fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
    let report = Report::of(&with(node.options(), "--cgroup-root", root.path().display()));
    report.assert("pods", "lacking", &["1 of 1 ", &format!("pod {uid} {}", &id[..13]), "crictl"]);
}

#[test]
fn another_agent_that_places_containers_is_found_by_its_process() {
    let node = Node::new(&RECORDING);
    node.examine().assert("cpuset-owners", "good", &["policy none"]);
    let proc = TempDir::new().unwrap();
    fs::create_dir(proc.path().join("4194000")).unwrap();
    fs::write(proc.path().join("4194000/comm"), "koordlet\n").unwrap();
    let report = Report::of(&with(node.options(), "--proc-root", proc.path().display()));
    report.assert("cpuset-owners", "lacking", &["koordlet runs on this node"]);
}

#[test]
fn a_driver_of_cpu_claims_is_found_by_pod_resources() {
    let node = Node::new(&RECORDING);
    let socket = node.directory.path().join("pod-resources.sock");
    let _inside = node.runtime.enter();
    let stub = PodResourcesStub::start(&socket).unwrap();
    let claim = ClaimResource { driver_name: "dra.cpu".into(), ..ClaimResource::default() };
    let claimed = DynamicResource { claim_resources: vec![claim], ..DynamicResource::default() };
    let container = ContainerResources {
        name: "main".into(),
        dynamic_resources: vec![claimed],
        ..Default::default()
    };
    stub.set(
        &[],
        vec![PodResources {
            name: "web".into(),
            containers: vec![container],
            ..PodResources::default()
        }],
    );
    let mut options = node.options();
    options.push(format!("--pod-resources-socket={}", socket.display()));
    let report = Report::of(&options);
    report.assert(
        "cpuset-owners",
        "lacking",
        &["the DRA driver dra.cpu (claims of 1 containers) runs on this node"],
    );
    stub.set(&[], Vec::new());
    Report::of(&options).assert("cpuset-owners", "good", &["policy none"]);
}

#[test]
fn connected_nri_plugins_are_counted() {
    let (node, proc) = (Node::new(&RECORDING), TempDir::new().unwrap());
    fs::create_dir_all(proc.path().join("1/net")).unwrap();
    let sockets = "0: 3 0 0 1 03 11 /run/nri/nri.sock\n1: 3 0 10000 1 01 12 /run/nri/nri.sock\n2: 3 0 0 1 03 13\n";
    fs::write(proc.path().join("1/net/unix"), sockets).unwrap();
    let report = Report::of(&with(node.options(), "--proc-root", proc.path().display()));
    report.assert("cpuset-owners", "good", &["1 NRI plugins are connected"]);
}

#[test]
fn obstacles_to_pinning_are_reported_in_enforce_mode() {
    let node = Node::new(&RECORDING);
    let state = TempDir::new().unwrap();
    fs::write(state.path().join("file"), "").unwrap();
    let examined = |mode: &str, state_dir: &str| {
        let options = [
            format!("--pinning={mode}"),
            format!("--state-dir={}", state.path().join(state_dir).display()),
        ];
        Report::of(&[&node.options()[..], &options].concat())
    };
    examined("enforce", "new/state").assert("pinning", "good", &["can write cpusets"]);
    examined("enforce", "file/state").assert(
        "pinning",
        "lacking",
        &["file/state", "Not a directory", "hostPath"],
    );
    let observed = examined("observe", "file/state");
    assert!(
        observed.json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|finding| finding["check"] != "pinning")
    );
}

#[test]
fn settings_for_yielding_and_burst_are_examined_when_they_are_used() {
    let (node, old) = (Node::new(&RECORDING), TempDir::new().unwrap());
    let used = ["--best-effort=enforce", "--burst=observe"].map(str::to_owned);
    let report = Report::of(&[&node.options()[..], &used].concat());
    report.assert("best-effort", "good", &["the kernel has cpu.idle, and it can be written"]);
    report.assert("burst", "good", &["the kernel has cpu.max.burst"]);
    // A kernel without these settings.
    fs::create_dir(old.path().join("kubepods")).unwrap();
    fs::write(old.path().join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
    let options = with(node.options(), "--cgroup-root", old.path().display());
    let report = Report::of(&[&options[..], &used].concat());
    report.assert("best-effort", "lacking", &["no cpu.idle", "Linux 5.15"]);
    report.assert("burst", "lacking", &["no cpu.max.burst", "Linux 5.14"]);
    let unused = node.examine();
    let findings = unused.json["findings"].as_array().unwrap();
    assert!(findings.iter().all(|one| one["check"] != "best-effort" && one["check"] != "burst"));
}

#[test]
fn a_machine_without_kubepods_or_without_cgroups_is_no_node() {
    let root = TempDir::new().unwrap();
    let options =
        [format!("--cgroup-root={}", root.path().display()), "--pod-source=none".to_owned()];
    let report = Report::of(&options);
    report.assert("cgroups", "broken", &["no cgroup hierarchy", "--cgroup-root"]);
    assert_eq!(report.code, 2);
    fs::write(root.path().join("cgroup.controllers"), "cpu cpuset memory\n").unwrap();
    let report = Report::of(&options);
    report.assert("cgroups", "broken", &["cgroup v2, no kubepods", "--kubepods"]);
    assert_eq!(report.code, 2);
}

#[test]
fn options_that_cannot_work_are_no_findings() {
    let output =
        Command::new(binary()).args(["doctor", "--kubelet-ca-file=/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", String::from_utf8_lossy(&output.stderr));
}
