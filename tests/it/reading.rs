//! Commands that run beside an agent, with its configuration: they change nothing on the node.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use inotify::{Inotify, WatchMask};
use kubelet_stub::apiserver::ApiServerStub;
use serde_json::json;
use state_dir::CheckedFile;
use tempfile::TempDir;
use timeline::recording::Recording;

use crate::support::{
    Cgroup, Kubelet, Qos, RealTree, Running, Workload, binary, eventually, pod_list, running_pod,
};

const UIDS: [&str; 2] =
    ["8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0031", "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0032"];
/// Number of recorded seconds after which an agent would have acted.
const SECONDS: usize = 5;

/// A node with a configuration in which everything acts, and with everything to act on: pods, what
/// a crashed agent left, a drain request, a container runtime and an API server.
struct Node {
    // Ends before its cgroups are removed.
    _running: Vec<Running>,
    tree: RealTree,
    kubelet: Kubelet,
    server: ApiServerStub,
    runtime: UnixListener,
    directory: TempDir,
    _threads: tokio::runtime::Runtime,
}

impl Node {
    fn new() -> Self {
        let tree = RealTree::beside_others();
        let directory = tempfile::tempdir().unwrap();
        let id = |number: usize| format!("{}{number}", "e".repeat(63));
        let pods = [tree.pod(Qos::Burstable, UIDS[0]), tree.pod(Qos::BestEffort, UIDS[1])];
        let running = pods.iter().enumerate().map(|(number, pod)| {
            let container = pod.child(&id(number));
            container.set_quota_usec(5_000, 100_000);
            container.spawn(&Workload::Spin { threads: 1 })
        });
        let running = running.collect();
        let pod = |number: usize| {
            let name = format!("pod-{number}");
            let mut pod = running_pod(UIDS[number], "shop", &name, &id(number));
            // Pinning rejects it, with an Event.
            pod["metadata"]["annotations"] =
                json!({ "scheduling.koordinator.sh/resource-spec": "{" });
            pod
        };
        let threads = tokio::runtime::Runtime::new().unwrap();
        let node = Self {
            kubelet: Kubelet::start(pod_list(&[pod(0), pod(1)])),
            server: threads.block_on(ApiServerStub::start(directory.path())).unwrap(),
            runtime: UnixListener::bind(directory.path().join("nri.sock")).unwrap(),
            tree,
            _running: running,
            directory,
            _threads: threads,
        };
        node.runtime.set_nonblocking(true).unwrap();
        node.write_state(&pods[1]);
        node.write_configuration();
        node
    }

    fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The state of an agent that crashed after it had written the pod's quota, and a drain
    /// request.
    fn write_state(&self, pod: &Cgroup) {
        fs::create_dir(self.state_dir()).unwrap();
        fs::write(self.state_dir().join("drain"), "").unwrap();
        pod.set_quota_usec(50_000, 100_000);
        let (path, inode) = (pod.path(), pod.dir("cpu").metadata().unwrap().ino());
        let is_v2 = pod.dir("cpu").join("cpu.max").exists();
        let [original, wrote] =
            if is_v2 { ["max 100000", "50000 100000"] } else { ["-1", "50000"] };
        let written = json!({ "inode": inode, "original": { "value": original }, "wrote": wrote });
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let body = json!({ "boot_id": boot.trim_end(), "written": [[path, "quota", written]] });
        let file = CheckedFile { name: "yields.json", magic: "cpuwarden-yields-1", remedy: "" };
        file.write(&self.state_dir(), &body).unwrap();
        assert!(yielding::leftovers(&self.state_dir(), Path::new("/proc")).unwrap());
    }

    fn write_configuration(&self) {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let configuration = json!({
            "kubepods": self.tree.kubepods().path(),
            "schedTrace": "off",
            "nodeName": "node-1",
            "stateDir": self.state_dir(),
            "apiserverUrl": self.server.url(),
            "apiserverCaFile": self.server.ca_file(),
            "apiserverTokenFile": self.server.token_file(),
            "pinning": "enforce",
            "bestEffort": "enforce",
            "burst": "enforce",
            "nri": "on",
            "nriSocket": path("nri.sock"),
            "injectEnv": "annotated",
            "events": true,
            "nodeCondition": true,
            "record": path("record"),
        });
        let text = serde_saphyr::to_string(&configuration).unwrap();
        fs::write(self.directory.path().join("cpuwarden.yaml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).args(self.kubelet.flags()).arg("--config");
        command.arg(self.directory.path().join("cpuwarden.yaml"));
        command
    }

    /// Watches the files of all cgroups of the tree for writes, from now on.
    fn watch(&self) -> Inotify {
        let inotify = Inotify::init().unwrap();
        for controller in ["cpu", "cpuset"] {
            let mut directories = vec![self.tree.kubepods().dir(controller)];
            while let Some(directory) = directories.pop() {
                inotify.watches().add(&directory, WatchMask::MODIFY).unwrap();
                let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
                directories.extend(entries.filter(|path| path.is_dir()));
            }
        }
        inotify
    }

    /// Runs `action`, and checks that nothing was changed and nobody was called meanwhile.
    fn assert_untouched(&self, action: impl FnOnce()) {
        let before = files(&self.state_dir());
        let mut writes = self.watch();
        action();
        assert_eq!(self.server.requests(), [""; 0], "called the API server");
        let error = writes.read_events(&mut [0; 4096]).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::WouldBlock), "a cgroup was written");
        assert_eq!(files(&self.state_dir()), before, "the state of the agent was changed");
        let connected = self.runtime.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(connected, Err(ErrorKind::WouldBlock), "connected to the container runtime");
        assert!(!self.directory.path().join("record").exists(), "recorded for the agent");
    }
}

/// The files of a directory, with their content.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_recorder_and_a_view_beside_an_agent_change_nothing() {
    let node = Node::new();
    let ring = node.directory.path().join("ring");
    let seconds = || Recording::open(&ring).map_or(0, |recording| recording.times().len());
    node.assert_untouched(|| {
        let mut record = node.command(&["record"]);
        let mut child = record.arg(&ring).stdin(Stdio::null()).spawn().unwrap();
        eventually("recorded seconds", || seconds() >= SECONDS);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    node.assert_untouched(|| {
        let output = node.command(&["top", "--once"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("shop/pod-0"), "{table}");
    });
}
