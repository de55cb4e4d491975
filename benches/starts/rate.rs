//! Starts on a full node: 500 pods of two containers run, and ten pods start per second. Each takes
//! the place of the oldest one. The kubelet's stub lists a pod once its cgroups exist.
//!
//! Printed: p50, p99 and maximum of the time from the first `mkdir` of a pod until the named series
//! of both its containers are on `/metrics`. Target: p99 below 1 s.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::LOST;
use crate::support::{Agent, Cgroup, Kubelet, Qos, RealTree, eventually, pod_list, running_pod};

const PODS: usize = 500;
const STARTS: usize = 300;
const EVERY: Duration = Duration::from_millis(100);
/// Pause between two reads of the page, which the agent renders once per snapshot.
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn run() {
    let mut node = Node::new();
    let kubelet = Kubelet::start(pod_list(node.listed.make_contiguous()));
    let mut flags = kubelet.flags();
    flags.push(format!("--kubepods={}", node.tree.kubepods().path().display()));
    flags.push("--metrics=standard".to_owned());
    let agent = Agent::start(&flags);
    let all = || infos(&agent.metrics().text).lines().filter(|line| line.contains("bench")).count();
    eventually("the names of the running pods", || all() == 2 * PODS);
    let (began, mut started) = (Instant::now(), 0);
    let (mut waiting, mut took) = (Vec::new(), Vec::new());
    while took.len() < STARTS {
        while started < STARTS && began.elapsed() >= due(started) {
            waiting.push((prefix(PODS + started), Instant::now()));
            node.replace_oldest(PODS + started);
            kubelet.list(node.listed.make_contiguous());
            started += 1;
        }
        let page = agent.metrics().text;
        let infos = infos(&page);
        waiting.retain(|(prefix, began)| {
            let is_shown = infos.matches(prefix).count() == 2;
            assert!(is_shown || began.elapsed() < LOST, "{prefix} never appeared");
            if is_shown {
                took.push(began.elapsed());
            }
            !is_shown
        });
        std::thread::sleep(POLL);
    }
    took.sort_unstable();
    let (p50, p99, max) = (took[STARTS / 2], took[STARTS * 99 / 100 - 1], took[STARTS - 1]);
    println!(
        "{STARTS} starts of two containers at 10/s on a node of {PODS} pods, mkdir to both named series: \
         p50 {p50:.0?}, p99 {p99:.0?}, longest {max:.0?}; target: p99 below 1 s"
    );
}

/// Time of a start: ten per second, spread over every part of a second.
fn due(start: usize) -> Duration {
    EVERY * start as u32 + Duration::from_millis(start as u64 * 37 % 100)
}

/// The node's pods, oldest first.
struct Node {
    tree: RealTree,
    listed: VecDeque<Value>,
    cgroups: VecDeque<[Cgroup; 3]>,
}

impl Node {
    fn new() -> Self {
        let mut node =
            Self { tree: RealTree::new(), listed: VecDeque::new(), cgroups: VecDeque::new() };
        (0..PODS).for_each(|number| node.start(number));
        node
    }

    fn start(&mut self, number: usize) {
        let pod = self.tree.pod(Qos::Burstable, &uid(number));
        let containers = [0, 1].map(|container| pod.child(&id(number, container)));
        let [first, second] = containers;
        self.cgroups.push_back([first, second, pod]);
        self.listed.push_back(listed(number));
    }

    fn replace_oldest(&mut self, number: usize) {
        self.start(number);
        self.listed.pop_front();
        self.cgroups.pop_front().unwrap().iter().for_each(Cgroup::remove);
    }
}

/// The lines of the family that names containers.
fn infos(page: &str) -> &str {
    let family = page.split_once("# TYPE cpuwarden_container_info ");
    family.and_then(|(_, lines)| lines.split('#').next()).unwrap_or_default()
}

/// Beginning of the lines of a pod's containers in that family.
fn prefix(number: usize) -> String {
    format!("cpuwarden_container_info{{namespace=\"bench\",pod=\"{}\",", name(number))
}

fn name(number: usize) -> String {
    format!("start-{number}")
}

fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

fn id(pod: usize, container: usize) -> String {
    format!("{:064x}", 2 * pod + container)
}

fn listed(number: usize) -> Value {
    let pod = |container| running_pod(&uid(number), "bench", &name(number), &id(number, container));
    let (mut both, second) = (pod(0), pod(1));
    for (part, list) in [("spec", "containers"), ("status", "containerStatuses")] {
        let mut second = second[part][list][0].clone();
        second["name"] = "second".into();
        both[part][list].as_array_mut().unwrap().push(second);
    }
    both
}
