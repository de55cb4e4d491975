//! Naming: the counts of an unnamed cgroup are shown under its pod. Once its container is listed, what
//! was counted before the cgroup was shown moves there; what a reader has seen growing stays. A name is final for a cgroup's lifetime. A sandbox is recognized only by
//! evidence.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubepods::model::{Container, ContainerState, Pod};
use kubepods::{PodIndex, PodNames};
use sampler::{ExportedLabel, Sampler, SamplerConfig};
use snapshot::CgroupKind;
use tempfile::TempDir;

const UID: &str = "00000000-0000-4000-8000-000000000001";

/// The kubelet's answer, and the names requested from it.
#[derive(Default)]
struct Answer {
    index: Arc<PodIndex>,
    listed_at: Option<Instant>,
    open: Vec<String>,
    live: Vec<String>,
}

#[derive(Clone, Default)]
struct Names(Arc<Mutex<Answer>>);

impl PodNames for Names {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0.lock().unwrap().index)
    }

    fn listed_at(&self) -> Option<Instant> {
        self.0.lock().unwrap().listed_at
    }

    fn ask(&self, _: &str, container_id: &str) {
        let mut answer = self.0.lock().unwrap();
        if !answer.open.iter().any(|id| id == container_id) {
            answer.open.push(container_id.to_owned());
        }
    }

    fn withdraw(&self, container_id: &str) {
        self.0.lock().unwrap().open.retain(|id| id != container_id);
    }

    fn pod_lives(&self, pod_uid: &str, lives: bool) {
        let live = &mut self.0.lock().unwrap().live;
        live.retain(|uid| uid != pod_uid);
        live.extend(lives.then(|| pod_uid.to_owned()));
    }

    fn may_answer(&self) -> bool {
        true
    }
}

/// A v2 node with one pod, and its sampler, which ticks once per second of simulated time.
struct Node {
    root: TempDir,
    sampler: Sampler,
    names: Names,
    now: Instant,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
        fs::create_dir_all(root.path().join(format!("kubepods/burstable/pod{UID}"))).unwrap();
        let config =
            SamplerConfig { kubepods: vec!["kubepods".to_owned()], ..support::config(root.path()) };
        let names = Names::default();
        let sampler = Sampler::new(config, Box::new(names.clone())).unwrap();
        let mut node = Self { root, sampler, names, now: Instant::now() };
        node.ticks(1);
        node
    }

    /// A node whose containers carry these labels of their pods.
    fn with_labels(pod_labels: Vec<ExportedLabel>) -> Self {
        let mut node = Self::new();
        let kubepods = vec!["kubepods".to_owned()];
        let config = SamplerConfig { kubepods, pod_labels, ..support::config(node.root.path()) };
        node.sampler = Sampler::new(config, Box::new(node.names.clone())).unwrap();
        node.ticks(1);
        node
    }

    fn pod(&self) -> PathBuf {
        self.root.path().join(format!("kubepods/burstable/pod{UID}"))
    }

    fn start(&self, number: u32) {
        fs::create_dir_all(self.pod().join(id(number))).unwrap();
        // A process in another PID namespace.
        fs::write(self.pod().join(id(number)).join("cgroup.procs"), "0\n").unwrap();
        self.use_cpu(number, 0);
    }

    /// Sets the container's kernel counter, milliseconds.
    fn use_cpu(&self, number: u32, millis: u64) {
        let usec = millis * 1000;
        let stat = format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n");
        fs::write(self.pod().join(id(number)).join("cpu.stat"), stat).unwrap();
    }

    /// Makes one process with this name the only one in the container.
    fn run(&self, number: u32, pid: u32, program: &str) {
        fs::write(self.pod().join(id(number)).join("cgroup.procs"), format!("{pid}\n")).unwrap();
        let process = self.root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), format!("{program}\n")).unwrap();
    }

    fn stop(&self, number: u32) {
        fs::remove_dir_all(self.pod().join(id(number))).unwrap();
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.now += Duration::from_secs(1);
            self.sampler.tick(self.now);
        }
    }

    /// The kubelet now lists these containers of the pod.
    fn list(&self, containers: &[Container]) {
        let pod = Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: UID.into(),
            containers: containers.to_vec(),
            ..Pod::default()
        };
        self.answer(vec![Arc::new(pod)]);
    }

    fn answer(&self, pods: Vec<Arc<Pod>>) {
        let mut answer = self.names.0.lock().unwrap();
        answer.listed_at = Some(self.now);
        if answer.index.pods() != pods {
            answer.index = Arc::new(PodIndex::build(&answer.index, pods, []));
        }
    }

    /// Usage of every visible series, milliseconds, by "namespace/pod/container".
    fn shown(&self) -> BTreeMap<String, u64> {
        let latest = self.sampler.published().latest();
        let rows = latest.containers.iter().map(|row| {
            let identity = &row.identity;
            let container = if identity.container.len() == 64 {
                &identity.container[60..]
            } else {
                &identity.container
            };
            (
                format!("{}/{}/{container}", identity.namespace, identity.pod),
                row.usage_ns.unwrap() / 1_000_000,
            )
        });
        rows.collect()
    }

    fn is_shown(&self, expected: &[(&str, u64)]) {
        let expected = expected.iter().map(|&(name, millis)| (name.to_owned(), millis)).collect();
        assert_eq!(self.shown(), expected);
    }

    /// Number of containers, sandboxes and unnamed containers.
    fn counts(&self) -> (u64, u64, u64) {
        let sampler = &self.sampler.published().latest().sampler;
        let of = |rows: &[(&str, u64)], kind| rows.iter().find(|row| row.0 == kind).unwrap().1;
        (
            of(&sampler.cgroups, "container"),
            of(&sampler.cgroups, "sandbox"),
            of(&sampler.unmapped_cgroups, "container"),
        )
    }
}

fn id(number: u32) -> String {
    format!("{number:064x}")
}

fn running(name: &str, number: u32) -> Container {
    let id = Some(id(number).into());
    Container {
        name: name.into(),
        id,
        state: ContainerState::Running,
        is_final: true,
        ..Container::default()
    }
}

fn restarted(name: &str, number: u32, last: u32) -> Container {
    Container { last_id: Some(id(last).into()), restart_count: 1, ..running(name, number) }
}

fn no_image(name: &str) -> Container {
    Container { name: name.into(), state: ContainerState::Waiting, ..Container::default() }
}

#[test]
fn chosen_labels_of_the_pod_are_in_the_identity_and_follow_a_change() {
    let exported = |key: &str, name: &str| ExportedLabel { key: key.into(), name: name.into() };
    let mut node = Node::with_labels(vec![
        exported("team", "label_team"),
        exported("tier", "label_tier"),
        exported("none", "label_none"),
    ]);
    node.start(1);
    let list = |node: &Node, team: &str| {
        let labels = [("other", "x"), ("team", team), ("tier", "web")];
        let pod = Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: UID.into(),
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            containers: vec![running("app", 1)],
            ..Pod::default()
        };
        node.answer(vec![Arc::new(pod)]);
    };
    let shown = |node: &mut Node| {
        node.ticks(2);
        let snapshot = node.sampler.published().latest();
        snapshot.containers[0].identity.pod_labels.to_string()
    };
    list(&node, "pay");
    assert_eq!(shown(&mut node), r#"label_team="pay",label_tier="web""#);
    list(&node, "shop \"b\"");
    assert_eq!(shown(&mut node), r#"label_team="shop \"b\"",label_tier="web""#);
}

#[test]
fn restart_that_is_listed_late_is_unmapped_then_complete() {
    let mut node = Node::new();
    node.start(1);
    node.use_cpu(1, 500);
    node.list(&[running("app", 1)]);
    node.ticks(1);
    node.is_shown(&[("shop/web/app", 500)]);
    node.stop(1);
    node.start(2);
    for second in 1..=9 {
        node.use_cpu(2, second * 1000);
        node.list(&[running("app", 1)]);
        node.ticks(1);
        match second {
            // Found by the first of these ticks; shown three seconds later.
            ..4 => node.is_shown(&[("shop/web/app", 500)]),
            _ => node.is_shown(&[("shop/web/0002", second * 1000), ("shop/web/app", 500)]),
        }
    }
    assert_eq!(node.counts(), (1, 0, 1));
    assert_eq!(node.names.0.lock().unwrap().open, [id(2)], "its name is asked for");
    node.use_cpu(2, 9_300);
    node.list(&[restarted("app", 2, 1)]);
    node.ticks(1);
    // Growth that a reader adds up: 5000 by id and 4300 by name, as the kernel counted.
    node.is_shown(&[("shop/web/0002", 9000), ("shop/web/app", 500 + 4000 + 300)]);
    assert_eq!(node.counts(), (1, 0, 0));
    assert!(node.names.0.lock().unwrap().open.is_empty());
}

#[test]
fn restart_that_is_listed_ten_minutes_late_loses_nothing() {
    let mut node = Node::new();
    node.start(1);
    node.list(&[running("app", 1)]);
    node.ticks(1);
    node.stop(1);
    node.start(2);
    for second in 1..=600 {
        node.use_cpu(2, second * 10);
        node.list(&[running("app", 1)]);
        node.ticks(1);
    }
    node.is_shown(&[("shop/web/0002", 6000), ("shop/web/app", 0)]);
    node.list(&[restarted("app", 2, 1)]);
    node.ticks(1);
    node.is_shown(&[("shop/web/0002", 6000), ("shop/web/app", 40)]);
    node.use_cpu(2, 6100);
    node.ticks(121);
    node.is_shown(&[("shop/web/app", 140)]);
}

#[test]
fn restarts_that_end_before_they_are_listed_are_counted() {
    let mut node = Node::new();
    node.start(1);
    node.list(&[running("app", 1)]);
    node.ticks(1);
    node.stop(1);
    for number in 2..=4 {
        node.start(number);
        node.use_cpu(number, 100);
        node.ticks(2);
        node.stop(number);
        node.ticks(2);
    }
    node.is_shown(&[
        ("shop/web/0002", 100),
        ("shop/web/0003", 100),
        ("shop/web/0004", 100),
        ("shop/web/app", 0),
    ]);
    node.list(&[restarted("app", 4, 3)]);
    node.ticks(1);
    node.is_shown(&[("shop/web/0002", 100), ("shop/web/app", 200)]);
}

#[test]
fn containers_that_exit_unlisted_keep_few_series() {
    let mut node = Node::new();
    node.list(&[no_image("app")]);
    for number in 1..=40 {
        node.start(number);
        node.use_cpu(number, 100);
        node.ticks(2);
        node.stop(number);
        node.ticks(2);
    }
    let shown = node.shown();
    assert_eq!(shown.values().sum::<u64>(), 4000, "{shown:?}");
    assert!(shown.len() <= 10 && shown["shop/web/"] >= 3000, "{shown:?}");
}

#[test]
fn a_list_that_forgets_a_run_does_not_make_its_cgroup_a_sandbox() {
    let mut node = Node::new();
    for number in [1, 2] {
        node.start(number);
        node.use_cpu(number, 100);
    }
    // The old run's cgroup still exists.
    node.list(&[restarted("app", 2, 1)]);
    node.ticks(8);
    node.is_shown(&[("shop/web/app", 200)]);
    node.list(&[running("app", 2)]);
    for second in 1..=8 {
        node.use_cpu(1, 100 + second);
        node.list(&[running("app", 2)]);
        node.ticks(1);
    }
    node.is_shown(&[("shop/web/app", 208)]);
    assert_eq!(node.counts(), (2, 0, 0));
    node.stop(1);
    node.stop(2);
    node.ticks(2);
    node.is_shown(&[("shop/web/app", 208)]);
}

#[test]
fn names_outlive_a_list_without_their_pod() {
    let mut node = Node::new();
    node.start(1);
    node.list(&[running("app", 1)]);
    node.ticks(1);
    for second in 1..=300 {
        node.use_cpu(1, second);
        node.answer(Vec::new());
        node.ticks(1);
    }
    node.is_shown(&[("shop/web/app", 300)]);
    assert_eq!(node.counts(), (1, 0, 0));
    assert_eq!(node.names.0.lock().unwrap().live, [UID]);
    fs::remove_dir_all(node.pod()).unwrap();
    node.ticks(2);
    assert!(node.names.0.lock().unwrap().live.is_empty());
}

#[test]
fn sandboxes_of_failing_pods_are_not_unmapped_containers() {
    let mut node = Node::new();
    node.start(1);
    node.list(&[no_image("app")]);
    node.run(1, 77, "runc:[2:INIT]");
    node.ticks(1);
    node.run(1, 77, "pause");
    node.ticks(1);
    assert_eq!(node.counts(), (0, 1, 0));
    // Between two runs: the next list must not change the result.
    let between =
        Container { is_final: false, state: ContainerState::Waiting, ..restarted("app", 2, 3) };
    node.list(std::slice::from_ref(&between));
    node.ticks(60);
    assert_eq!(node.counts(), (0, 1, 0));
    assert!(node.shown().is_empty() && node.names.0.lock().unwrap().open.is_empty());
}

#[test]
fn container_that_runs_a_pause_is_complete_once_listed() {
    let mut node = Node::new();
    node.start(1);
    node.run(1, 77, "pause");
    node.use_cpu(1, 300);
    node.ticks(5);
    assert_eq!(node.counts(), (0, 1, 0));
    node.use_cpu(1, 900);
    node.list(&[running("app", 1)]);
    node.ticks(1);
    node.is_shown(&[("shop/web/app", 900)]);
}

#[test]
fn history_of_a_container_that_ran_a_pause_is_in_no_window() {
    let mut node = Node::new();
    node.start(1);
    node.ticks(1);
    node.run(1, 77, "pause");
    node.ticks(1);
    assert_eq!(node.counts(), (0, 1, 0), "it was read, and is a sandbox now");
    let periods = "nr_periods 9\nnr_throttled 9\nthrottled_usec 9\n";
    let stat = format!("usage_usec 9\nuser_usec 9\nsystem_usec 0\n{periods}");
    fs::write(node.pod().join(id(1)).join("cpu.stat"), stat).unwrap();
    node.list(&[running("app", 1)]);
    node.ticks(2);
    let latest = node.sampler.published().latest();
    let row = &latest.containers[0];
    assert_eq!(row.cfs.unwrap().throttled_periods, 9);
    assert_eq!(row.windows.unwrap().counts.iter().sum::<u64>(), 0);
}

#[test]
fn complete_list_proves_a_sandbox_while_its_containers_exist() {
    let mut node = Node::new();
    node.start(1);
    node.start(2);
    for _ in 0..16 {
        node.list(&[running("app", 2)]);
        node.ticks(1);
    }
    assert_eq!((node.shown().len(), node.counts()), (1, (1, 1, 0)));
    // The container restarts and the list does not change: the new cgroup is not a sandbox, however
    // often the list is repeated.
    node.stop(2);
    node.start(3);
    node.use_cpu(3, 40);
    for _ in 0..60 {
        node.list(&[running("app", 2)]);
        node.ticks(1);
    }
    node.is_shown(&[("shop/web/0003", 40), ("shop/web/app", 0)]);
}

#[test]
fn a_sandbox_leaves_a_shared_series_to_the_other_cgroup() {
    let mut node = Node::new();
    // The same pod and container id below two kubepods levels, as after a move between QoS classes.
    let twin = node.root.path().join(format!("kubepods/besteffort/pod{UID}")).join(id(1));
    node.start(1);
    make(&twin);
    node.ticks(15);
    node.run(1, 77, "pause");
    node.ticks(40);
    fs::write(twin.join("cpu.stat"), "usage_usec 5000\nuser_usec 5000\nsystem_usec 0\n").unwrap();
    node.ticks(2);
    assert_eq!(node.counts(), (1, 1, 1));
    node.is_shown(&[(&format!("/{UID}/0001"), 5)]);
}

/// The trace attributes to it what runs in the cgroup of the pod.
#[test]
fn a_sandbox_in_the_cgroup_of_its_pod_is_who_runs_there() {
    let mut node = Node::new();
    make(&node.pod());
    let (namespace, name, uid) = ("shop".into(), "web".into(), UID.into());
    let runtime_class = Some("kata".into());
    node.answer(vec![Arc::new(Pod { namespace, name, uid, runtime_class, ..Pod::default() })]);
    for usec in (0..15).map(|second| second * 100_000) {
        let stat = format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n");
        fs::write(node.pod().join("cpu.stat"), stat).unwrap();
        node.ticks(1);
    }
    let shown = node.shown();
    assert!(shown["shop/web/POD"] >= 900, "{shown:?}");
    let latest = node.sampler.published().latest();
    let row = latest.cgroups.iter().find(|row| row.path.ends_with(UID)).unwrap();
    assert!(matches!(&row.kind, CgroupKind::Container(known) if known.container == "POD"));
}

fn make(cgroup: &Path) {
    fs::create_dir_all(cgroup).unwrap();
    fs::write(cgroup.join("cpu.stat"), "usage_usec 0\nuser_usec 0\nsystem_usec 0\n").unwrap();
}
