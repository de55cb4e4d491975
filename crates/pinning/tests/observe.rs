//! The pinner on a node of plain files: plans, reports and rejections. It only observes, so plain
//! files suffice.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::{Change, Interests, KubepodsTree, PathIndex, TreeOptions};
use cgroupfs::Hierarchy;
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::model::{Container, ContainerState, Phase, Pod, Resources};
use kubepods::{ExclusiveCpus, PodIndex, Reported};
use pinning::{
    Admission, DrainConfig, DrainOutcome, Drained, ForeignContainer, NodeConfig, NodePods,
    PassReport, Pinner, PinnerConfig, PinningStatus, Round, Scope, Trace,
};
use placement::{CpuQos, PlacementSettings, Profile, Profiles, Reason, Selector, Step};
use sampler::{DescriptorBudget, ExtraFiles, Sampler, SamplerConfig};
use state_dir::{PinningCheckpoint, WrittenCgroup};
use testkit::NoNames;

/// A node with eight CPUs: 2 sockets × 2 cores × 2 threads, adjacent siblings; cgroup v2, cgroupfs
/// driver.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    fn in_directory(directory: tempfile::TempDir) -> Self {
        let files = Self(directory);
        for cpu in 0..8 {
            let core = cpu / 2 * 2;
            let file = |name: &str, text: String| {
                files.file(&format!("sys/devices/system/cpu/cpu{cpu}/{name}"), &text);
            };
            file("topology/thread_siblings_list", format!("{core}-{}", core + 1));
            file("topology/physical_package_id", (cpu / 4).to_string());
        }
        files.file("sys/devices/system/node/node0/cpulist", "0-3");
        files.file("sys/devices/system/node/node1/cpulist", "4-7");
        files.file("sys/devices/system/cpu/possible", "0-7");
        files.policy(r#"{"policyName":"none"}"#);
        files.online("0-7");
        for level in ["", "burstable", "besteffort"] {
            files.cgroup(level);
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn policy(&self, json: &str) {
        self.file("cpu_manager_state", json);
    }

    fn online(&self, cpus: &str) {
        self.file("sys/devices/system/cpu/online", cpus);
    }

    fn cgroup(&self, path: &str) {
        self.file(&format!("cgroup/kubepods/{path}/cpuset.cpus"), "\n");
        self.file(&format!("cgroup/kubepods/{path}/cpuset.cpus.effective"), "0-7\n");
    }

    fn pinner(&self, profiles: Profiles) -> Pinner {
        Pinner::new(self.config(profiles)).unwrap()
    }

    fn config(&self, profiles: Profiles) -> PinnerConfig {
        let root = self.path("cgroup");
        let some = || Some(root.clone());
        let hierarchy = Hierarchy {
            version: CgroupVersion::V2,
            hybrid: false,
            cpu: root.clone(),
            cpuacct: some(),
            cpuset: some(),
            memory: some(),
        };
        PinnerConfig {
            enforce: false,
            node: NodeConfig {
                hierarchy,
                kubepods: Vec::new(),
                proc_root: self.path("proc"),
                sys_root: self.path("sys"),
                state_dir: self.path("state"),
                cpu_manager_state: self.path("cpu_manager_state"),
            },
            owner_namespaces: vec!["kube-system".to_owned()],
            reconcile_interval: Duration::MAX,
            settled_after: Duration::MAX,
            descriptors: 1000,
            reserved: CpuSet::new(),
            settings: PlacementSettings::default(),
            profiles,
            admission: None,
        }
    }

    /// A pod with a cgroup and one container's cgroup below it.
    /// Creates a directory whose inode number is above those of the other directories there, as
    /// among cgroups: pods arrive in the order of these numbers, and a file system reuses them.
    fn latest_directory(&self, path: &str) {
        let path = self.path(path);
        if path.exists() {
            return;
        }
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        let others =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let latest = others.filter(|other| other.is_dir()).map(inode).max();
        for number in 0.. {
            fs::create_dir_all(&path).unwrap();
            if Some(inode(path.clone())) >= latest {
                return;
            }
            // While it exists, its number is not used again.
            let spare = self.path(&format!("spare-{number}"));
            if !spare.exists() {
                fs::rename(&path, spare).unwrap();
            }
        }
    }

    fn pod(&self, name: &str, qos: &str, millis: u64) -> Pod {
        let number: u64 = name.bytes().map(u64::from).sum();
        let uid = format!("8e0d3a0c-5f4b-4f60-9f2a-{number:012x}");
        self.latest_directory(&format!("cgroup/kubepods/burstable/pod{uid}"));
        self.cgroup(&format!("burstable/pod{uid}"));
        self.cgroup(&format!("burstable/pod{uid}/{number:064x}"));
        let resources = Resources {
            cpu_request_millis: Some(millis),
            cpu_limit_millis: Some(millis),
            ..Resources::default()
        };
        Pod {
            namespace: "shop".into(),
            name: name.into(),
            uid: uid.as_str().into(),
            labels: vec![("koordinator.sh/qosClass".into(), qos.into())],
            phase: Phase::Running,
            containers: vec![Container { resources, ..Container::default() }],
            ..Pod::default()
        }
    }
}

fn pass(pinner: &mut Pinner, pods: &[Pod]) -> PassReport {
    let pods = pods.iter().cloned().map(Into::into).collect();
    pinner.pass(&PodIndex::build(&PodIndex::default(), pods, []), &CpuSet::new(), &mut |_| {
        panic!("it wrote")
    })
}

fn pins(report: &PassReport) -> Vec<String> {
    report.pins.iter().map(|pin| format!("{} {} {}", pin.pod, pin.cpu_qos, pin.cpus)).collect()
}

fn none() -> Profiles {
    Profiles::default()
}

/// The class LSR for pods of the namespace `shop`.
fn shop_is_lsr() -> Profiles {
    let selector = Selector { namespaces: vec!["shop".into()], ..Selector::default() };
    let (name, qos_class) = ("shop".into(), Some(CpuQos::Lsr));
    Profiles::new(vec![Profile { name, selector, qos_class, resource_spec: None }]).unwrap()
}

#[test]
fn observe_mode_plans_and_leaves_no_file_behind() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000), files.pod("batch", "BE", 100)];
    let report = pass(&mut files.pinner(none()), &pods);
    assert_eq!(pins(&report), ["web LSE 0-1"]);
    assert_eq!(report.pools.unwrap().share.to_string(), "2-7");
    assert_eq!(report.status, PinningStatus::Observing("--pinning=observe".to_owned()));
    assert!(!files.path("state").exists());
}

#[test]
fn observe_mode_shows_its_plan_in_an_existing_state_directory() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000), files.pod("db", "LSR", 1000)];
    let mut pinner = files.pinner(none());
    fs::create_dir_all(files.path("state")).unwrap();
    pass(&mut pinner, &pods);
    let shown = || pinning::not_in_effect(&files.path("state"), &files.path("proc")).unwrap();
    let plan = "--pinning=observe; planned: shop/db LSR 2, shop/web LSE 0-1";
    assert_eq!(shown().as_deref(), Some(plan));
    pass(&mut pinner, &pods[..1]);
    assert_eq!(shown().as_deref(), Some("--pinning=observe; planned: shop/web LSE 0-1"));
}

#[test]
fn an_unplugged_cpu_is_replaced_at_the_next_pass() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000)];
    let mut pinner = files.pinner(none());
    assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0-1"]);
    files.online("0,2-7");
    assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0,2"]);
}

#[test]
fn isolated_cpus_are_never_assigned() {
    let files = Files::new();
    files.file("sys/devices/system/cpu/isolated", "0-1,7\n");
    let pods = [files.pod("web", "LSE", 2000)];
    let report = pass(&mut files.pinner(none()), &pods);
    assert_eq!(pins(&report), ["web LSE 2-3"]);
    let pools = report.pools.unwrap();
    assert_eq!(
        [pools.share, pools.best_effort, pools.reserved].map(|cpus| cpus.to_string()),
        ["4-6", "4-6", "0-1,7"]
    );
}

#[test]
fn a_partition_root_of_another_program_is_not_changed() {
    let files = Files::new();
    let pods = [files.pod("own", "LSE", 2000), files.pod("web", "LSE", 2000)];
    let own = files.path("cgroup/kubepods/burstable").join(format!("pod{}", pods[0].uid));
    fs::write(own.join("cpuset.cpus.effective"), "6-7\n").unwrap();
    for level in ["", "burstable/"] {
        files.file(&format!("cgroup/kubepods/{level}cpuset.cpus.effective"), "0-5\n");
    }
    fs::remove_dir_all(own.join(format!("{:064x}", "own".bytes().map(u64::from).sum::<u64>())))
        .unwrap();
    assert_eq!(pins(&pass(&mut files.pinner(none()), &pods)), ["web LSE 4-5"]);
}

#[test]
fn a_profile_speaks_for_pods_without_a_label() {
    let files = Files::new();
    let mut pod = files.pod("web", "", 2000);
    pod.labels.clear();
    assert_eq!(pins(&pass(&mut files.pinner(none()), std::slice::from_ref(&pod))), [""; 0]);
    assert_eq!(
        pins(&pass(&mut files.pinner(shop_is_lsr()), std::slice::from_ref(&pod))),
        ["web LSR 0-1"]
    );
    // Profiles that change while the pinner runs.
    let mut pinner = files.pinner(none());
    assert_eq!(pins(&pass(&mut pinner, std::slice::from_ref(&pod))), [""; 0]);
    pinner.set_profiles(shop_is_lsr());
    assert_eq!(pins(&pass(&mut pinner, std::slice::from_ref(&pod))), ["web LSR 0-1"]);
}

#[test]
fn a_forged_annotation_is_rejected_once() {
    let files = Files::new();
    let mut forged = files.pod("evil", "LSE", 2000);
    forged.pinning.resource_spec = Some("{\"preferredCPUBindPolicy\":".into());
    forged.pinning.resource_status = Some("{\"cpuset\":\"0-7\"}".into());
    let pods = [forged, files.pod("web", "LSR", 2000)];
    let mut pinner = files.pinner(none());
    let report = pass(&mut pinner, &pods);
    assert_eq!(
        (pins(&report), report.rejections().collect::<Vec<_>>()),
        (vec!["web LSR 0-1".to_owned()], vec![Reason::ResourceSpecMalformed])
    );
    assert!(pass(&mut pinner, &pods).decisions.is_empty(), "reported once");
}

#[test]
fn another_owner_of_cpusets_is_reported_as_the_reason() {
    let files = Files::new();
    let mut pod = files.pod("koordlet", "", 0);
    pod.containers[0].image = "koordlet:v1.6".into();
    pod.containers[0].state = ContainerState::Running;
    let report = pass(&mut files.pinner(none()), std::slice::from_ref(&pod));
    assert_eq!(
        report.status,
        PinningStatus::Observing("--pinning=observe".to_owned()),
        "a tenant's image"
    );
    pod.namespace = "kube-system".into();
    let report = pass(&mut files.pinner(none()), &[pod]);
    assert!(
        matches!(&report.status, PinningStatus::Observing(reason) if reason.contains("koordlet"))
    );
    let mut pinner = files.pinner(none());
    files.policy(r#"{"policyName":"dynamic"}"#);
    let report = pass(&mut pinner, &[]);
    assert!(
        matches!(&report.status, PinningStatus::Observing(reason) if reason.contains("dynamic"))
    );
    // The policy from `/configz` takes precedence over the state file.
    pinner.set_policy(Arc::new(Reported::Read("none".to_owned())));
    assert_eq!(
        pass(&mut pinner, &[]).status,
        PinningStatus::Observing("--pinning=observe".to_owned())
    );
}

#[test]
fn the_static_policy_and_exclusive_cpus_are_obstacles() {
    let files = Files::new();
    let mut pinner = files.pinner(none());
    let observing = |report: PassReport| match report.status {
        PinningStatus::Observing(reason) => reason,
        PinningStatus::Enforcing => "enforcing".to_owned(),
    };
    for (policy, file, expected) in [
        (Some("none"), r#"{"policyName":"none"}"#, "--pinning=observe"),
        (Some("none"), r#"{"policyName":"static"}"#, "static"),
        (Some("static"), r#"{"policyName":"none"}"#, "static"),
        (None, r#"{"policyName":"static"}"#, "static"),
        (Some("none"), r#"{"policyName":"none","entries":{"u":{"c":"2-3"}}}"#, "2-3"),
    ] {
        files.policy(file);
        let reported =
            policy.map_or(Reported::NotAsked, |policy| Reported::Read(policy.to_owned()));
        pinner.set_policy(Arc::new(reported));
        let reason = observing(pass(&mut pinner, &[]));
        assert!(reason.contains(expected), "{policy:?} {file}: {reason}");
    }
    files.policy(r#"{"policyName":"none"}"#);
    let web = files.pod("web", "LSE", 2000);
    let key = ("shop".into(), "web".into(), "c".into());
    let resources =
        ExclusiveCpus { containers: [(key, vec![4, 5])].into(), ..ExclusiveCpus::default() };
    pinner.set_resources(resources.into());
    let index = PodIndex::build(&PodIndex::default(), vec![web.into()], []);
    let report = pinner.pass(&index, &"4-5".parse().unwrap(), &mut |_| panic!("it wrote"));
    assert_eq!(
        (pins(&report), report.rejections().collect::<Vec<_>>()),
        (Vec::new(), vec![Reason::KubeletStatic])
    );
    assert!(observing(report).contains("4-5"));
}

#[test]
fn an_unknown_policy_is_reported_with_the_reasons_of_file_and_kubelet() {
    let files = Files::new();
    let mut pinner = files.pinner(none());
    files.policy(r#"{"policyName":"dynamic"}"#);
    let reason = |pinner: &mut Pinner| match pass(pinner, &[]).status {
        PinningStatus::Observing(reason) => reason,
        PinningStatus::Enforcing => "enforcing".to_owned(),
    };
    assert!(!reason(&mut pinner).contains("kubelet does not report"), "it was not asked yet");
    pinner.set_policy(Arc::new(Reported::Failed("/configz: 403 Forbidden".to_owned())));
    let reason = reason(&mut pinner);
    assert!(reason.contains("dynamic") && reason.ends_with("403 Forbidden"), "{reason}");
}

#[test]
fn a_pod_that_has_ended_and_one_without_a_cgroup_hold_nothing() {
    let files = Files::new();
    let mut ended = files.pod("done", "LSE", 2000);
    ended.phase = Phase::Succeeded;
    let mut unborn = files.pod("unborn", "LSE", 2000);
    unborn.uid = "00000000-0000-0000-0000-000000000001".into();
    assert_eq!(pins(&pass(&mut files.pinner(none()), &[ended, unborn])), [""; 0]);
}

/// The three users of the cgroup tree, on one tree. None of them walks it periodically.
struct Users {
    tree: Arc<KubepodsTree>,
    sampler: Sampler,
    pinner: Pinner,
    paths: PathIndex,
    now: Instant,
}

impl Users {
    fn of(files: &Files) -> Self {
        let config = files.config(none());
        let node = config.node.clone();
        let mount = node.hierarchy.cpu.clone();
        let options = TreeOptions { other_roots: true, ..TreeOptions::default() };
        let tree = KubepodsTree::new(mount.clone(), CgroupVersion::V2, options);
        let sampler = SamplerConfig {
            hierarchy: node.hierarchy,
            kubepods: Vec::new(),
            proc_root: node.proc_root,
            sys_root: node.sys_root,
            interval: Duration::from_secs(1),
            cpu_budget_cores: f64::MAX,
            reconcile_interval: Duration::MAX,
            descriptors: DescriptorBudget::from_limit(4096),
            pod_labels: Vec::new(),
            extra: ExtraFiles::default(),
        };
        let now = Instant::now();
        let mut paths = PathIndex::new(mount, Some(Arc::clone(&tree)));
        // The next walk of the index is due seconds later: until then it depends on the tree.
        assert_eq!(paths.path(u64::MAX, now), None);
        Self {
            sampler: Sampler::on(&tree, sampler, Box::new(NoNames::default())).unwrap(),
            pinner: Pinner::on(&tree, config).unwrap(),
            tree,
            paths,
            now,
        }
    }

    /// Polls each user once, the sampler or the pinner first.
    fn poll(&mut self, pods: &[Pod], sampler_first: bool) -> PassReport {
        self.now += Duration::from_millis(10);
        if sampler_first {
            self.sampler.tick(self.now);
        }
        let report = pass(&mut self.pinner, pods);
        if !sampler_first {
            self.sampler.tick(self.now);
        }
        report
    }

    /// Polls each user once; fails unless all three know the pod's cgroup at `path` below the
    /// mount, or none of them if it was removed.
    #[track_caller]
    fn assert_same_poll(&mut self, pod: &Pod, path: &str, inode: u64, exists: bool, first: bool) {
        let report = self.poll(std::slice::from_ref(pod), first);
        let snapshot = self.sampler.published().latest();
        let is_sampled =
            snapshot.cgroups.iter().any(|row| *row.path == *path && row.inode == inode);
        assert_eq!(is_sampled, exists, "sampler, {path}");
        assert_eq!(!report.pins.is_empty(), exists, "pinner, {path}");
        // The index keeps the path of a removed cgroup for a while, but the tree has no such inode.
        assert_eq!(self.tree.by_inode(inode).is_some(), exists, "tree, {path}");
        assert_eq!(self.paths.path(inode, self.now), Some(path), "index, {path}");
    }
}

#[test]
fn sampler_pinner_and_path_index_see_a_change_in_the_same_poll() {
    for first in [true, false] {
        let files = Files::new();
        let mut users = Users::of(&files);
        assert!(users.poll(&[], first).pins.is_empty());
        let mount = files.path("cgroup");
        let inode = |path: &str| cgroupfs::inode(&mount.join(path)).unwrap();

        let pod = files.pod("web", "LSE", 2000);
        let path = format!("kubepods/burstable/pod{}", pod.uid);
        let old = inode(&path);
        users.assert_same_poll(&pod, &path, old, true, first);

        // Kept elsewhere, so that the inode is not used again.
        fs::rename(mount.join(&path), files.path("removed")).unwrap();
        users.assert_same_poll(&pod, &path, old, false, first);

        // Another kubepods root, as of a kubelet that restarts with the systemd driver.
        let name = format!("kubepods-burstable-pod{}.slice", pod.uid.replace('-', "_"));
        let path = format!("kubepods.slice/kubepods-burstable.slice/{name}");
        for level in ["kubepods.slice", "kubepods.slice/kubepods-burstable.slice", &path] {
            files.file(&format!("cgroup/{level}/cpuset.cpus"), "\n");
            files.file(&format!("cgroup/{level}/cpuset.cpus.effective"), "0-7\n");
        }
        users.assert_same_poll(&pod, &path, inode(&path), true, first);
    }
}

#[test]
fn a_cgroup_that_comes_is_seen_and_one_that_goes_is_forgotten() {
    let files = Files::new();
    let mut pinner = files.pinner(none());
    pass(&mut pinner, &[]);
    let pods = [files.pod("web", "LSE", 2000)];
    assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0-1"]);
    let pod = files.path("cgroup/kubepods/burstable").join(format!("pod{}", pods[0].uid));
    fs::remove_dir_all(Path::new(&pod)).unwrap();
    assert_eq!(pins(&pass(&mut pinner, &pods)), [""; 0]);
}

#[test]
fn a_missing_kubepods_cgroup_is_reported() {
    let files = Files::new();
    let mut pinner = files.pinner(none());
    fs::remove_dir_all(files.path("cgroup/kubepods")).unwrap();
    let report = pass(&mut pinner, &[]);
    assert!(
        matches!(&report.status, PinningStatus::Observing(reason) if reason.contains("no kubepods")),
        "{report:?}"
    );
    assert_eq!(report.pools, None);
}

#[test]
fn a_panic_in_the_pinning_thread_starts_a_new_pinner() {
    let files = Files::new();
    let mut pod = files.pod("web", "", 2000);
    pod.labels.clear();
    let index = Arc::new(PodIndex::build(&PodIndex::default(), vec![pod.into()], []));
    let pods = move || Some(NodePods { index: Arc::clone(&index), ..NodePods::default() });
    let (sender, rounds) = std::sync::mpsc::channel();
    let mut has_panicked = false;
    let report = move |round| {
        let seen = match round {
            Round::Waited => "waited".to_owned(),
            Round::Panicked => "panicked".to_owned(),
            Round::Passed(report) => pins(&report).concat(),
        };
        let is_pinned = seen.starts_with("web");
        let _ = sender.send(seen);
        if is_pinned && !has_panicked {
            has_panicked = true;
            panic!("on purpose");
        }
    };
    let interval = Duration::from_millis(100);
    let running = pinning::spawn(files.pinner(none()), pods, interval, report).unwrap();
    running.profiles().send(shop_is_lsr()).unwrap();
    let seen: Vec<String> = rounds.iter().skip_while(String::is_empty).take(3).collect();
    assert_eq!(seen, ["web LSR 0-1", "panicked", "web LSR 0-1"], "with the profiles set last");
}

#[test]
fn a_pass_runs_as_soon_as_the_runtime_is_connected_again() {
    const HOUR: Duration = Duration::from_secs(3600);
    let files = Files::new();
    let admission = Admission::new(HOUR).unwrap();
    let (name, has_cpus) = ("shop/web/app".to_owned(), true);
    let other = ForeignContainer { name, has_cpus, ..ForeignContainer::default() };
    let foreign = [("c".to_owned(), other)].into();
    admission.synchronized(BTreeSet::new(), BTreeSet::new(), foreign);
    let config = PinnerConfig { admission: Some(admission.clone()), ..files.config(none()) };
    let (sender, statuses) = std::sync::mpsc::channel();
    let report = move |round| {
        if let Round::Passed(report) = round {
            let _ = sender.send(report.status);
        }
    };
    let pods = || Some(NodePods::default());
    let _running = pinning::spawn(Pinner::new(config).unwrap(), pods, HOUR, report).unwrap();
    let next = || match statuses.recv_timeout(Duration::from_secs(60)).expect("a pass") {
        PinningStatus::Observing(reason) => reason,
        PinningStatus::Enforcing => "enforcing".to_owned(),
    };
    // The first pass, and that of the first connection.
    assert!((0..2).all(|_| next().ends_with("has set the CPUs of shop/web/app")));
    admission.synchronized(BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    let mut after = std::iter::repeat_with(next);
    assert!(after.any(|reason| reason == "--pinning=observe"));
}

/// Path of the cgroup of the pod's only container.
fn container(files: &Files, pod: &Pod) -> PathBuf {
    let number: u64 = pod.name.bytes().map(u64::from).sum();
    files.path("cgroup/kubepods/burstable").join(format!("pod{}/{number:064x}", pod.uid))
}

fn share(report: &PassReport) -> String {
    report.pools.as_ref().unwrap().share.to_string()
}

#[test]
fn a_cgroup_with_a_non_utf8_name_is_no_root() {
    use std::os::unix::ffi::OsStrExt as _;
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000)];
    let mut config = files.config(none());
    config.node.kubepods = vec!["kubepods".into()];
    let mut pinner = Pinner::new(config).unwrap();
    assert_eq!(share(&pass(&mut pinner, &pods)), "2-7");
    for above in
        [container(&files, &pods[0]), container(&files, &pods[0]).parent().unwrap().to_owned()]
    {
        let odd = above.join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("cpuset.cpus"), "0\n").unwrap();
        fs::write(odd.join("cpuset.cpus.effective"), "0\n").unwrap();
        let report = pass(&mut pinner, &pods);
        assert_eq!(
            (share(&report), pins(&report)),
            ("2-7".to_owned(), vec!["web LSE 0-1".to_owned()])
        );
    }
}

/// Adds the root of another kubelet, with CPUs 6-7.
fn other_root(files: &Files, processes: &str) {
    for level in ["", "/burstable", "/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-000000000001"] {
        files.file(&format!("cgroup/old/kubepods{level}/cpuset.cpus"), "\n");
        files.file(&format!("cgroup/old/kubepods{level}/cpuset.cpus.effective"), "6-7\n");
        files.file(&format!("cgroup/old/kubepods{level}/cgroup.procs"), "");
    }
    files.file(
        "cgroup/old/kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-000000000001/cgroup.procs",
        processes,
    );
}

#[test]
fn a_root_that_another_kubelet_left_behind_is_no_ceiling() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000)];
    other_root(&files, "");
    let report = pass(&mut files.pinner(none()), &pods);
    assert_eq!((share(&report), pins(&report)), ("2-7".to_owned(), vec!["web LSE 0-1".to_owned()]));
}

#[test]
fn a_second_root_with_running_pods_is_an_obstacle() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000)];
    other_root(&files, "1\n");
    let mut pinner = Pinner::new(PinnerConfig { enforce: true, ..files.config(none()) }).unwrap();
    let report = pass(&mut pinner, &pods);
    assert!(
        matches!(&report.status, PinningStatus::Observing(why) if why.contains("old/kubepods also contains running pods")),
        "{report:?}"
    );
    assert_eq!(report.stepped_back, [(("node", "obstacle"), 1)].into());
}

#[test]
fn a_first_pass_that_fails_pauses_enforcement_only_where_it_is_configured() {
    for (enforce, expected) in [(false, None), (true, Some((("node", "pass_failed"), 1)))] {
        let files = Files::new();
        let mut pinner = Pinner::new(PinnerConfig { enforce, ..files.config(none()) }).unwrap();
        fs::remove_file(files.path("sys/devices/system/cpu/online")).unwrap();
        let report = pass(&mut pinner, &[]);
        assert_eq!(report.stepped_back, expected.into_iter().collect(), "{report:?}");
    }
}

#[test]
fn a_new_kubepods_root_is_seen_by_the_next_pass() {
    let files = Files::new();
    let mut pinner = files.pinner(none());
    let pods = [files.pod("web", "LSE", 2000)];
    fs::remove_dir_all(container(&files, &pods[0]).parent().unwrap()).unwrap();
    assert_eq!(pins(&pass(&mut pinner, &pods)), [""; 0]);
    // The kubelet's cgroup driver has changed.
    let pod = pods[0].uid.replace('-', "_");
    let pod = format!("kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice");
    let scope = format!("{pod}/cri-containerd-{:064x}.scope", 1);
    for path in ["", "kubepods-burstable.slice", &pod, &scope] {
        files.file(&format!("cgroup/kubepods.slice/{path}/cpuset.cpus"), "\n");
        files.file(&format!("cgroup/kubepods.slice/{path}/cpuset.cpus.effective"), "0-7\n");
    }
    assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0-1"]);
}

#[test]
fn pods_are_seen_while_another_user_of_the_tree_hangs() {
    let files = Files::new();
    let options = TreeOptions { other_roots: true, ..TreeOptions::default() };
    let tree = KubepodsTree::new(files.path("cgroup"), CgroupVersion::V2, options);
    let mut hanging = tree.subscribe(Interests::COUNTERS).unwrap();
    let mut pinner = Pinner::on(&tree, files.config(none())).unwrap();
    pass(&mut pinner, &[]);
    let pods = [files.pod("web", "LSE", 2000)];
    assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0-1"]);
    let mut changes = Vec::new();
    hanging.poll(Instant::now(), &mut changes);
    let added = changes.iter().filter(|change| matches!(change, Change::Added(_)));
    // The mount's root, kubepods, two QoS levels, the pod and its container.
    assert_eq!(added.count(), 6);
}

#[test]
fn a_pass_walks_the_tree_after_the_reconcile_interval() {
    for (reconcile_interval, walks) in [(Duration::ZERO, true), (Duration::MAX, false)] {
        let files = Files::new();
        let options = TreeOptions { other_roots: true, ..TreeOptions::default() };
        let tree = KubepodsTree::new(files.path("cgroup"), CgroupVersion::V2, options);
        let config = PinnerConfig { reconcile_interval, ..files.config(none()) };
        let mut pinner = Pinner::on(&tree, config).unwrap();
        pass(&mut pinner, &[]);
        let began = Instant::now();
        pass(&mut pinner, &[]);
        // Another user walks only if the second pass did not.
        let (now, mut changes) = (Instant::now(), Vec::new());
        let mut user = tree.subscribe(Interests::COUNTERS).unwrap();
        let is_old = user.reconcile(now, now - began, &mut changes);
        assert_eq!(is_old, !walks, "{reconcile_interval:?}");
    }
}

#[test]
fn an_unreadable_cpuset_affects_only_its_pod() {
    let files = Files::new();
    let pods = [files.pod("bad", "LSE", 2000), files.pod("web", "LSE", 2000)];
    fs::write(container(&files, &pods[0]).join("cpuset.cpus"), "garbage\n").unwrap();
    let report = pass(&mut files.pinner(none()), &pods);
    // The pods are served in the order of their inodes, which are reused.
    let web = pins(&report).into_iter().find(|pin| pin.starts_with("web"));
    let expected = ["web LSE 0-1", "web LSE 2-3"];
    assert!(web.is_some_and(|web| expected.contains(&web.as_str())), "{report:?}");
}

#[test]
fn nested_cgroups_of_applications_are_not_listed() {
    // In memory, because it creates thousands of directories.
    let files = Files::in_directory(tempfile::tempdir_in("/dev/shm").unwrap());
    let pods = [files.pod("deep", "LSE", 2000), files.pod("wide", "LS", 0)];
    let mut pinner = files.pinner(none());
    pass(&mut pinner, &pods);
    let wide = container(&files, &pods[1]);
    for n in 0..4500 {
        fs::create_dir_all(wide.join(format!("a{n}/b"))).unwrap();
        fs::write(wide.join(format!("a{n}/cpuset.cpus")), "\n").unwrap();
        fs::write(wide.join(format!("a{n}/cpuset.cpus.effective")), "0-7\n").unwrap();
    }
    let deep = container(&files, &pods[0]);
    let depth = (4000 - deep.as_os_str().len()) / 2;
    fs::create_dir_all(deep.join("x/".repeat(depth))).unwrap();
    let mut restarted = files.pinner(none());
    let began = Instant::now();
    let reports = [pass(&mut pinner, &pods), pass(&mut restarted, &pods)];
    println!("two passes with 9000 nested cgroups and a depth of {depth}: {:?}", began.elapsed());
    assert!(reports.iter().all(|report| pins(report) == ["deep LSE 0-1"]));
    let open = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    let nested = open.filter(|path| {
        [&deep, &wide].iter().any(|above| path.starts_with(above) && path.parent() != Some(above))
    });
    assert_eq!(nested.count(), 0);
}

#[test]
fn descriptors_stay_within_the_budget_and_all_files_are_read() {
    let files = Files::new();
    let pods = [files.pod("web", "LSE", 2000), files.pod("batch", "BE", 100)];
    let mut pinner = Pinner::new(PinnerConfig { descriptors: 4, ..files.config(none()) }).unwrap();
    for _ in 0..2 {
        assert_eq!(pins(&pass(&mut pinner, &pods)), ["web LSE 0-1"]);
        let open = fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        assert_eq!(open.filter(|path| path.starts_with(files.path("cgroup"))).count(), 4);
    }
}

#[test]
fn the_share_pool_keeps_what_its_pods_request() {
    let files = Files::new();
    let mut pods = vec![files.pod("app", "LS", 5500), files.pod("web", "LSE", 3000)];
    let report = pass(&mut files.pinner(none()), &pods);
    assert_eq!(
        (pins(&report), report.rejections().collect()),
        (vec![], vec![Reason::SharePoolFloor])
    );
    pods[1] = files.pod("web", "LSE", 2000);
    assert_eq!(pins(&pass(&mut files.pinner(none()), &pods)), ["web LSE 0-1"]);
}

/// Writes of an enforcing pass to the pod's cgroup or below, as planned. The files cannot carry
/// them out.
fn planned_writes(files: &Files, admission: Admission, pods: &[Pod], pod: &Pod) -> Vec<String> {
    let config = PinnerConfig { enforce: true, ..files.config(none()) };
    let config = PinnerConfig { admission: Some(admission), ..config };
    let index = pods.iter().cloned().map(Into::into).collect();
    let index = PodIndex::build(&PodIndex::default(), index, []);
    let cgroup = container(files, pod).parent().unwrap().to_owned();
    let mut writes = Vec::new();
    let mut trace = |trace: Trace<'_>| {
        let Trace::Intent(steps) = trace else { return };
        writes.extend(steps.iter().filter_map(|step| match step {
            Step::Write { path, cpus, .. } if path.starts_with(&cgroup) => Some(cpus.to_string()),
            _ => None,
        }));
    };
    Pinner::new(config).unwrap().pass(&index, &CpuSet::new(), &mut trace);
    writes
}

/// A runtime that reports the container `app` of this pod, perhaps with a claim by a variable.
fn reported(pod: &Pod, is_claimed: bool) -> Admission {
    let (pod, name) = ((&*pod.uid).into(), "shop/web/app".to_owned());
    let app = ForeignContainer { pod, name, is_claimed, ..ForeignContainer::default() };
    let admission = Admission::new(Duration::from_secs(3600)).unwrap();
    admission.synchronized(BTreeSet::new(), BTreeSet::new(), [("c".to_owned(), app)].into());
    admission
}

#[test]
fn an_unlisted_pod_with_a_claim_by_variable_is_not_written() {
    for is_claimed in [false, true] {
        let files = Files::new();
        let pods = [files.pod("web", "LS", 0), files.pod("own", "LSE", 2000)];
        let writes = planned_writes(&files, reported(&pods[0], is_claimed), &pods[1..], &pods[0]);
        assert_eq!(writes.is_empty(), is_claimed, "{writes:?}");
    }
}

#[test]
fn a_claim_by_variable_is_refuted_by_the_spec_of_a_listed_pod() {
    for (has_claims, is_confined) in [(false, true), (true, false)] {
        let files = Files::new();
        let mut pods = [files.pod("web", "LS", 0), files.pod("own", "LSE", 2000)];
        let app = &mut pods[0].containers[0];
        (app.name, app.has_claims) = ("app".into(), has_claims);
        let writes = planned_writes(&files, reported(&pods[0], true), &pods, &pods[0]);
        assert_eq!(writes.contains(&"2-7".to_owned()), is_confined, "{has_claims} {writes:?}");
    }
}

/// Drains with a checkpoint of this cgroup, which does not exist.
fn drain_of(files: &Files, cgroup: &str) -> pinning::Result<DrainOutcome> {
    let node = files.config(Profiles::default()).node;
    let written = WrittenCgroup { inode: 7, original: String::new() };
    let written = [(files.path("cgroup").join(cgroup), written)].into();
    let checkpoint = PinningCheckpoint { written, ..PinningCheckpoint::default() };
    fs::create_dir_all(&node.state_dir).unwrap();
    checkpoint.write(&node.state_dir, &files.path("cgroup")).unwrap();
    pinning::drain(&DrainConfig { node, scope: Scope::Written }, Duration::ZERO)
}

#[test]
fn a_drain_is_done_if_all_pods_of_the_checkpoint_have_ended() {
    let files = Files::new();
    let checkpoint =
        || PinningCheckpoint::read(&files.config(Profiles::default()).node.state_dir).unwrap();
    let error = drain_of(&files, "elsewhere/burstable/podgone").unwrap_err().to_string();
    assert!(error.contains("--cgroup-root") && checkpoint().is_some(), "{error}");
    let outcome = drain_of(&files, "kubepods/burstable/podgone").unwrap();
    assert_eq!(outcome, DrainOutcome::Here(Drained::default()));
    assert_eq!(checkpoint(), None);
}
