//! Containers that ticks pass by, and rows that are not rewritten: what is published is what the files
//! and the pod list say, whatever came before.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubepods::model::{Container, ContainerState, Pod};
use kubepods::{PodIndex, PodNames};
use proptest::prelude::*;
use sampler::{ExportedLabel, Sampler, SamplerConfig};
use snapshot::{ContainerGc, ContainerWaits, NodeGc, NodeSnapshot, NodeWaits, Threads};
use tempfile::TempDir;

const PODS: usize = 2;
const QOS: &str = "kubepods/burstable";

/// The list of pods.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Arc<PodIndex>>>);

impl PodNames for Names {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0.lock().unwrap())
    }

    fn ask(&self, _: &str, _: &str) {}

    fn may_answer(&self) -> bool {
        true
    }
}

/// A container, as its files and the list of pods show it.
#[derive(Debug, Clone, Default)]
struct Model {
    id: usize,
    /// An earlier run whose cgroup still exists.
    old: Option<usize>,
    restarts: u32,
    /// CPU time of the current cgroup and of all of them, microseconds.
    usec: u64,
    all_usec: u64,
    quota_usec: u64,
    weight: u64,
    request_millis: u64,
}

/// A v2 node of two pods with two containers each. Of its two samplers, one publishes into reused
/// snapshots and one into new ones.
struct Node {
    root: TempDir,
    samplers: [Sampler; 2],
    held: Vec<Arc<NodeSnapshot>>,
    names: Names,
    now: Instant,
    next_id: usize,
    containers: Vec<Model>,
    pod_usec: [u64; PODS],
    pod_quota_usec: [u64; PODS],
    qos_quota_usec: u64,
    team: usize,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
        fs::create_dir_all(root.path().join(QOS)).unwrap();
        let names = Names::default();
        let sampler = || {
            let label = ExportedLabel { key: "team".into(), name: "label_team".into() };
            let config = SamplerConfig { pod_labels: vec![label], ..support::config(root.path()) };
            Sampler::new(config, Box::new(names.clone())).unwrap()
        };
        let samplers = [sampler(), sampler()];
        let mut node = Self {
            samplers,
            held: Vec::new(),
            names,
            now: Instant::now(),
            next_id: 0,
            containers: vec![Model::default(); PODS * 2],
            pod_usec: [0; PODS],
            pod_quota_usec: [80_000; PODS],
            qos_quota_usec: 90_000,
            team: 0,
            root,
        };
        node.quota(QOS, 90_000);
        for pod in 0..PODS {
            fs::create_dir(node.root.path().join(pod_path(pod))).unwrap();
            node.quota(&pod_path(pod), 80_000);
            node.count(&pod_path(pod), 0);
        }
        (0..PODS * 2).for_each(|number| node.start(number));
        node.list();
        node
    }

    fn path(&self, number: usize) -> String {
        format!("{}/{:064x}", pod_path(number / 2), self.containers[number].id)
    }

    fn start(&mut self, number: usize) {
        self.next_id += 1;
        let container = &mut self.containers[number];
        let (id, usec) = (self.next_id, 0);
        *container = Model { id, usec, quota_usec: 70_000, weight: 79, ..*container };
        let path = self.path(number);
        fs::create_dir(self.root.path().join(&path)).unwrap();
        self.write(&path, "cgroup.procs", "0\n");
        self.write(&path, "cpu.weight", "79\n");
        self.quota(&path, 70_000);
        self.count(&path, 0);
    }

    fn remove(&self, number: usize, id: usize) {
        let path = format!("{}/{id:064x}", pod_path(number / 2));
        fs::remove_dir_all(self.root.path().join(path)).unwrap();
    }

    fn write(&self, cgroup: &str, file: &str, text: &str) {
        fs::write(self.root.path().join(cgroup).join(file), text).unwrap();
    }

    fn quota(&self, cgroup: &str, usec: u64) {
        self.write(cgroup, "cpu.max", &format!("{usec} 100000\n"));
    }

    /// Writes the usage like the kernel, without an inotify event.
    fn count(&self, cgroup: &str, usec: u64) {
        let text = format!("usage_usec {usec:010}\nuser_usec {usec:010}\nsystem_usec 0\n");
        let path = self.root.path().join(cgroup).join("cpu.stat");
        let link = self.root.path().join(format!("{}.stat", cgroup.replace('/', "-")));
        if !path.exists() {
            fs::write(&path, &text).unwrap();
            let _ = fs::remove_file(&link);
            fs::hard_link(&path, &link).unwrap();
        }
        fs::File::options().write(true).open(link).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn run(&mut self, number: usize) {
        let container = &mut self.containers[number];
        container.usec += 1000;
        container.all_usec += 1000;
        self.pod_usec[number / 2] += 1000;
        self.count(&self.path(number), self.containers[number].usec);
        self.count(&pod_path(number / 2), self.pod_usec[number / 2]);
    }

    /// Lists the pods as they are now.
    fn list(&self) {
        let container = |number: usize| {
            let model = &self.containers[number];
            let mut container = Container {
                name: format!("c{number}").into(),
                id: Some(format!("{:064x}", model.id).into()),
                last_id: model.old.map(|old| format!("{old:064x}").into()),
                state: ContainerState::Running,
                restart_count: model.restarts,
                is_final: true,
                ..Container::default()
            };
            container.resources.cpu_request_millis = Some(model.request_millis);
            container
        };
        let pod = |pod: usize| {
            Arc::new(Pod {
                namespace: "shop".into(),
                name: format!("p{pod}").into(),
                uid: uid(pod).into(),
                labels: [("team".into(), format!("t{}", self.team).into())].into(),
                containers: [2 * pod, 2 * pod + 1].map(container).to_vec(),
                ..Pod::default()
            })
        };
        let pods: Vec<_> = (0..PODS).map(pod).collect();
        let mut index = self.names.0.lock().unwrap();
        if index.pods() != pods {
            *index = Arc::new(PodIndex::build(&index, pods, []));
        }
    }

    fn tick(&mut self) {
        self.now += Duration::from_secs(1);
        for sampler in &mut self.samplers {
            sampler.tick(self.now);
        }
        self.held.push(self.samplers[1].published().latest());
    }

    fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    fn publish_waits(&self, containers: &[usize]) {
        let latest = self.samplers[0].published().latest();
        let chosen = |at: &usize| Some(Arc::clone(&latest.containers.get(*at)?.identity));
        let some: Vec<_> = containers.iter().filter_map(chosen).collect();
        let value = self.now.elapsed().as_nanos() as u64;
        for sampler in &self.samplers {
            let waits = ContainerWaits { neighbor_ns: value, ..ContainerWaits::default() };
            let of = |identity: &Arc<_>| (Arc::clone(identity), Some(Arc::new(waits)));
            let containers = some.iter().map(of).collect();
            sampler.waits().publish(NodeWaits { containers, ..NodeWaits::default() });
            let gc = ContainerGc { cycles: value, ..ContainerGc::default() };
            let of = |identity: &Arc<snapshot::ContainerIdentity>| {
                (identity.labels.clone(), Arc::new(gc.clone()))
            };
            let containers = some.iter().map(of).collect();
            sampler.gc().publish(NodeGc { containers, ..NodeGc::default() });
        }
    }

    fn check(&self) {
        let [reused, new] = [0, 1].map(|at| self.samplers[at].published().latest());
        let text = |snapshot: &NodeSnapshot| {
            let NodeSnapshot { containers, pods, cgroups, sampler, .. } = snapshot;
            let counts = (&sampler.cgroups, &sampler.unmapped_cgroups, sampler.unkept_cgroups);
            format!("{containers:#?}\n{pods:#?}\n{cgroups:#?}\n{counts:?}")
        };
        let (reused_text, new_text) = (text(&reused), text(&new));
        let differs = reused_text.lines().zip(new_text.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None);
        assert_eq!(reused_text.len(), new_text.len());
        self.check_rows();
    }

    /// Compares the rows with the files and the list.
    fn check_rows(&self) {
        let reused = self.samplers[0].published().latest();
        for (number, model) in self.containers.iter().enumerate() {
            let name = format!("c{number}");
            let row = reused.containers.iter().find(|row| row.identity.container == name);
            let row = row.unwrap_or_else(|| panic!("{name} is not shown"));
            let quota = model.quota_usec.min(self.pod_quota_usec[number / 2]);
            let quota = quota.min(self.qos_quota_usec) as f64 / 100_000.0;
            assert_eq!(row.cpu_limit.cores(), Some(quota), "limit of {name}");
            assert_eq!(row.usage_ns, Some(model.all_usec * 1000), "usage of {name}");
            let weight = format!("{:?}", row.weight);
            assert!(weight.contains(&model.weight.to_string()), "weight of {name}: {weight}");
            let request = Some(model.request_millis as f64 / 1000.0);
            assert_eq!(row.request_cores, request, "request of {name}");
            let team = format!("label_team=\"t{}\"", self.team);
            assert_eq!(&*row.identity.pod_labels, team, "label of {name}");
            if model.old.is_none() {
                let path = row.cgroup.as_deref();
                assert_eq!(path, Some(&*self.path(number)), "cgroup of {name}");
                assert_eq!(row.kernel.usage_ns, Some(model.usec * 1000), "kernel's of {name}");
            }
        }
    }

    fn apply(&mut self, step: usize, number: usize, value: u64) {
        let path = self.path(number);
        match step {
            0 => self.run(number),
            1 => {
                self.containers[number].quota_usec = value * 1000;
                self.quota(&path, value * 1000);
            }
            2 => {
                self.pod_quota_usec[number / 2] = value * 1000;
                self.quota(&pod_path(number / 2), value * 1000);
            }
            3 => {
                self.qos_quota_usec = value * 1000;
                self.quota(QOS, value * 1000);
            }
            4 => {
                self.containers[number].weight = value;
                self.write(&path, "cpu.weight", &format!("{value}\n"));
            }
            5 => {
                // A restart; the old cgroup is removed now or later.
                let id = self.containers[number].id;
                if let Some(old) = self.containers[number].old.take() {
                    self.remove(number, old);
                }
                if value.is_multiple_of(2) {
                    self.remove(number, id);
                } else {
                    self.containers[number].old = Some(id);
                }
                self.containers[number].restarts += 1;
                self.start(number);
                self.list();
            }
            6 => {
                if let Some(old) = self.containers[number].old.take() {
                    self.remove(number, old);
                }
            }
            7 => {
                (self.team, self.containers[number].request_millis) = (value as usize, value);
                self.list();
            }
            8 => self.publish_waits(&[number, number + 1]),
            9 => self.publish_waits(&[]),
            _ => self.held.push(self.samplers[0].published().latest()),
        }
    }
}

fn uid(pod: usize) -> String {
    format!("{pod:08x}-0000-4000-8000-000000000000")
}

fn pod_path(pod: usize) -> String {
    format!("{QOS}/pod{}", uid(pod))
}

#[test]
fn of_two_cgroups_of_a_container_the_one_that_exists_is_shown() {
    for removes_new in [false, true] {
        let mut node = Node::new();
        node.ticks(150);
        let before = node.containers[1].clone();
        // A restart whose old cgroup stays for a while.
        node.apply(5, 1, 11);
        if !removes_new {
            // The newest cgroup takes the slot of the first one.
            node.tick();
            node.apply(5, 1, 11);
        }
        node.apply(4, 1, 20);
        for _ in 0..300 {
            node.tick();
            node.check();
        }
        if removes_new {
            node.remove(1, node.containers[1].id);
            node.containers[1] = before;
        } else {
            node.apply(6, 1, 0);
        }
        node.tick();
        node.check_rows();
    }
}

#[test]
fn a_container_that_is_named_late_has_its_threads_at_once() {
    let mut node = Node::new();
    let listed = std::mem::take(&mut *node.names.0.lock().unwrap());
    node.ticks(150);
    *node.names.0.lock().unwrap() = listed;
    node.ticks(2);
    for row in &node.samplers[0].published().latest().containers {
        assert_eq!(row.threads, Threads::NoneVisible, "{row:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]
    #[test]
    fn what_is_published_is_what_the_files_and_the_list_say(
        steps in prop::collection::vec(
            (0_usize..11, 0..PODS * 2, 10_u64..60, prop::sample::select(vec![1, 2, 4, 70, 130])),
            1..25,
        ),
    ) {
        let mut node = Node::new();
        node.ticks(150);
        node.check();
        for (step, number, value, ticks) in steps {
            node.apply(step, number, value);
            for _ in 0..ticks {
                node.tick();
                node.check();
            }
        }
    }
}
