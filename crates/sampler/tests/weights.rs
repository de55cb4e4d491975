//! A container's weight on v1 and its shares on v2, by the rule of the node's container runtime.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::model::{Container, ContainerState, Pod, Resources};
use kubepods::{PodIndex, PodNames};
use sampler::{Sampler, SamplerConfig};
use snapshot::{NodeSnapshot, WeightRule};

const POD: &str = "kubepods/burstable/pod00000000-0000-4000-8000-000000000001";
/// A pod that no list contains.
const UNKNOWN_POD: &str = "kubepods/burstable/pod00000000-0000-4000-8000-000000000002";

/// One list of pods.
struct Listed(Arc<PodIndex>);

impl PodNames for Listed {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0)
    }

    fn listed_at(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    fn ask(&self, _: &str, _: &str) {}

    fn may_answer(&self) -> bool {
        false
    }
}

/// A container: CPU request in millicores (`None`: unlisted), and the number in the kernel's file.
type Spec = (Option<u64>, u64);

fn id(number: usize) -> String {
    format!("{number:064x}")
}

/// A container's cgroup, relative to the cpu mount.
fn cgroup(number: usize, spec: Spec) -> String {
    format!("{}/{}", if spec.0.is_some() { POD } else { UNKNOWN_POD }, id(number))
}

fn names(specs: &[Spec]) -> Listed {
    let listed =
        specs.iter().enumerate().filter_map(|(number, &(request, _))| Some((number, request?)));
    let containers = listed.map(|(number, millis)| Container {
        name: format!("c{number}").into(),
        id: Some(id(number).into()),
        state: ContainerState::Running,
        resources: Resources {
            cpu_request_millis: Some(millis).filter(|&millis| millis > 0),
            ..Resources::default()
        },
        ..Container::default()
    });
    let pod = Pod {
        namespace: "shop".into(),
        name: "web".into(),
        uid: POD.split_once("/pod").unwrap().1.into(),
        containers: containers.collect(),
        ..Pod::default()
    };
    Listed(Arc::new(PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])))
}

/// The node after unnamed cgroups are shown too.
fn observe(root: &Path, specs: &[Spec]) -> Arc<NodeSnapshot> {
    let config = SamplerConfig { kubepods: vec!["kubepods".to_owned()], ..support::config(root) };
    let mut sampler = Sampler::new(config, Box::new(names(specs))).unwrap();
    let start = Instant::now();
    (0..6).for_each(|second| sampler.tick(start + Duration::from_secs(second)));
    let latest = sampler.published().latest();
    assert_eq!(latest.containers.len(), specs.len());
    latest
}

fn v2(specs: &[Spec]) -> Arc<NodeSnapshot> {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
    for (number, &spec) in specs.iter().enumerate() {
        let cgroup = root.path().join(cgroup(number, spec));
        fs::create_dir_all(&cgroup).unwrap();
        // A process in another PID namespace.
        fs::write(cgroup.join("cgroup.procs"), "0\n").unwrap();
        fs::write(cgroup.join("cpu.stat"), "usage_usec 5\nuser_usec 5\nsystem_usec 0\n").unwrap();
        fs::write(cgroup.join("cpu.weight"), format!("{}\n", spec.1)).unwrap();
    }
    observe(root.path(), specs)
}

fn v1(specs: &[Spec]) -> Arc<NodeSnapshot> {
    let root = tempfile::tempdir().unwrap();
    for (number, &spec) in specs.iter().enumerate() {
        let cgroup = root.path().join("cpu,cpuacct").join(cgroup(number, spec));
        fs::create_dir_all(&cgroup).unwrap();
        // A process in another PID namespace.
        fs::write(cgroup.join("cgroup.procs"), "0\n").unwrap();
        fs::write(cgroup.join("cpuacct.usage"), "5000\n").unwrap();
        fs::write(cgroup.join("cpuacct.stat"), "user 0\nsystem 0\n").unwrap();
        fs::write(cgroup.join("cpu.shares"), format!("{}\n", spec.1)).unwrap();
    }
    observe(root.path(), specs)
}

/// Shares of the containers by number; the snapshot sorts them by name.
fn shares(snapshot: &NodeSnapshot) -> Vec<u64> {
    let mut rows: Vec<_> = snapshot
        .containers
        .iter()
        .map(|row| (&row.identity.container_id, row.v1_shares().unwrap()))
        .collect();
    rows.sort();
    rows.into_iter().map(|(_, shares)| shares).collect()
}

#[test]
fn on_v1_the_linear_rule_gives_the_weight() {
    let snapshot = v1(&[(Some(1000), 1024)]);
    let row = &snapshot.containers[0];
    assert_eq!((row.v2_weight(), row.v1_shares()), (Some(39), Some(1024)));
    assert_eq!(snapshot.node.kernel.weight_rule, WeightRule::Linear);
}

#[test]
fn on_v2_shares_are_those_of_the_request_with_any_runtime() {
    // Requests whose weights correspond to many share values.
    let requests = [3, 7, 33, 101, 333, 1000, 1234, 7777, 31_999, 255_999];
    for rule in WeightRule::ALL {
        let shares_of = |millis: u64| (millis * 1024 / 1000).max(2);
        let specs: Vec<Spec> =
            requests.iter().map(|&millis| (Some(millis), rule.weight(shares_of(millis)))).collect();
        let snapshot = v2(&specs);
        assert_eq!(shares(&snapshot), requests.map(shares_of), "{rule:?}");
        assert_eq!(snapshot.node.kernel.weight_rule, rule);
    }
}

#[test]
fn on_v2_known_requests_show_the_rule_for_other_containers() {
    // Two containers from before the runtime's upgrade, three from after it, and an unlisted one.
    let specs = [
        (Some(1000), 39),
        (Some(2000), 79),
        (Some(500), 59),
        (Some(1000), 100),
        (Some(2000), 174),
        (None, 100),
    ];
    let snapshot = v2(&specs);
    assert_eq!(snapshot.node.kernel.weight_rule, WeightRule::Quadratic);
    assert_eq!(shares(&snapshot), [1024, 2048, 512, 1024, 2048, 1024]);
    assert_eq!(shares(&v2(&specs[..2])), [1024, 2048]);
}

#[test]
fn on_v2_the_linear_rule_holds_while_no_container_shows_one() {
    let snapshot = v2(&[(None, 100), (Some(0), 1)]);
    assert_eq!(snapshot.node.kernel.weight_rule, WeightRule::Linear);
    assert_eq!(shares(&snapshot), [2611, 2]);
}

#[test]
fn a_weight_that_was_changed_is_not_read_back_as_the_request() {
    let snapshot = v2(&[(Some(1000), 174), (Some(2000), 174)]);
    assert_eq!(shares(&snapshot), [2048, 2048]);
}
