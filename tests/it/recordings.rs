//! The agent on recorded nodes: the real binary on their files, with a stub that answers like their
//! kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixtures::{Recording, recordings};
use crate::support::{Agent, Exposition, Kubelet, eventually};

/// Longer than the agent holds back an unnamed cgroup: series missing by then never appear.
const SETTLED: Duration = Duration::from_secs(15);

/// Namespace, pod and container.
type Name = (String, String, String);

/// A recording, with the agent's page after [`SETTLED`].
struct Page {
    recording: Recording,
    exposition: Exposition,
    /// The page with cAdvisor's names: recorded counters never change, so only this page, with the
    /// kernel's own values, shows what was read.
    cadvisor: String,
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let nodes: Vec<_> = recordings().into_iter().map(Node::start).collect();
    for node in &nodes {
        eventually("readiness", || node.agent.get("/readyz").0 == 200);
    }
    let ready = Instant::now();
    eventually("all settled", || ready.elapsed() > SETTLED);
    nodes
        .into_iter()
        .map(|node| Page {
            exposition: node.agent.metrics(),
            cadvisor: node.agent.get("/metrics/cadvisor").1,
            recording: node.recording,
        })
        .collect()
});

/// A running agent on a recording.
pub(crate) struct Node {
    recording: Recording,
    pub(crate) agent: Agent,
    _kubelet: Kubelet,
}

impl Node {
    pub(crate) fn start(recording: Recording) -> Self {
        let kubelet = Kubelet::start(fs::read(recording.path.join("pods.json")).unwrap());
        let mut flags = kubelet.flags();
        // Not every recording has this directory, and the agent rejects a missing root.
        fs::create_dir_all(recording.path.join("sys")).unwrap();
        flags.extend([
            "--cadvisor-metrics".to_owned(),
            format!("--cgroup-root={}", recording.path.join("cgroup-t0").display()),
            format!("--proc-root={}", recording.path.join("proc").display()),
            format!("--sys-root={}", recording.path.join("sys").display()),
        ]);
        Self { recording, agent: Agent::start(&flags), _kubelet: kubelet }
    }
}

#[test]
fn every_container_is_named_and_nothing_else_is_exported() {
    for Page { recording, exposition, .. } in &*PAGES {
        let samples = exposition.with_prefix("cpuwarden_container_");
        let exported: BTreeSet<Name> = samples
            .map(|s| ["namespace", "pod", "container"].map(|l| s.label(l).to_owned()).into())
            .collect();
        let expected = containers_with_a_cgroup(&recording.path);
        assert!(!expected.is_empty(), "{} has no container", recording.name);
        assert_eq!(exported, expected, "{}", recording.name);
    }
}

#[test]
fn every_container_has_its_usage() {
    for Page { recording, exposition, .. } in &*PAGES {
        let usage = exposition.with_prefix("cpuwarden_container_cpu_usage_seconds_total");
        let with_usage: BTreeSet<_> =
            usage.map(|sample| sample.label("container").to_owned()).collect();
        let expected = containers_with_a_cgroup(&recording.path);
        assert_eq!(
            with_usage,
            expected.iter().map(|name| name.2.clone()).collect(),
            "{}",
            recording.name
        );
    }
}

#[test]
fn promtool_agrees_with_the_page_of_every_node() {
    for page in &*PAGES {
        page.exposition.assert_promtool_agrees();
    }
}

#[test]
fn the_page_of_every_node_is_the_golden_one() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden");
    for page in PAGES.iter().filter(|page| page.recording.own) {
        let recording = &page.recording;
        let golden = directory.join(format!("{}.prom", recording.name));
        let actual = of_the_node(&page.exposition) + &page.cadvisor;
        if std::env::var_os("CPUWARDEN_BLESS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&golden, &actual).unwrap();
        }
        let expected = fs::read_to_string(&golden)
            .unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        let difference =
            expected.lines().zip(actual.lines()).find(|(expected, actual)| expected != actual);
        assert_eq!(
            difference,
            None,
            "{}: expected, actual; CPUWARDEN_BLESS=1 rewrites it",
            golden.display()
        );
        assert_eq!(expected.lines().count(), actual.lines().count(), "{}: lines", golden.display());
    }
}

/// Recordings whose kubelet named the containers on its own page, at the time of the first reading.
const WITH_A_PAGE: [&str; 3] = ["cluster-v2-systemd", "host-v1-apiserver", "host-v1-cgroupfs"];

#[test]
fn series_under_cadvisors_names_equal_those_of_the_recorded_kubelet() {
    for page in PAGES.iter().filter(|page| WITH_A_PAGE.contains(&&*page.recording.name)) {
        let node = &page.recording.name;
        let text = fs::read_to_string(page.recording.path.join("metrics-cadvisor.txt")).unwrap();
        let (own, kubelet) = (by_series(&page.cadvisor), by_series(&text));
        // Kubelets before 1.34 show no pressure by default.
        let own: BTreeMap<_, _> =
            own.into_iter().filter(|(s, _)| !s.0.starts_with("container_pressure_")).collect();
        let families: BTreeSet<&str> = own.keys().map(|series| &*series.0).collect();
        // The recordings do not contain memory.stat, and those of v1 have no threads.
        let is_v2 = node.starts_with("cluster");
        assert_eq!(families.len(), if is_v2 { 8 } else { 7 }, "{node}: {families:?}");
        let expected = kubelet.iter().filter(|((name, labels), _)| {
            families.contains(&**name)
                && labels.get("container").is_some_and(|name| !name.is_empty())
        });
        let expected: BTreeMap<_, _> = expected.map(|(s, v)| (s.clone(), *v)).collect();
        let series = |page: &Series| page.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(series(&own), series(&expected), "{node}");

        let types = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter(|line| line.starts_with("# TYPE "));
            let of =
                |line: &&str| line.split(' ').nth(2).is_some_and(|name| families.contains(name));
            lines.filter(of).map(str::to_owned).collect()
        };
        assert_eq!(types(&page.cadvisor), types(&text), "{node}");

        // A container that has used the same CPU time has not run between the two readings.
        let unchanged = |labels: &Labels| {
            let mut usage = labels.clone();
            usage.insert("cpu".to_owned(), "total".to_owned());
            let usage = ("container_cpu_usage_seconds_total".to_owned(), usage);
            own[&usage] == expected[&usage]
        };
        let mut compared = 0;
        for ((name, labels), value) in &own {
            // cAdvisor converts a v2 weight to shares by a rule that no runtime uses.
            let is_converted = is_v2 && name == "container_spec_cpu_shares";
            if unchanged(labels) && !is_converted {
                compared += 1;
                let of_kubelet = expected[&(name.clone(), labels.clone())];
                assert_eq!(*value, of_kubelet, "{node}: {name} {labels:?}");
            }
        }
        assert!(compared >= 10, "{node}: {compared}");
    }
}

type Labels = BTreeMap<String, String>;
/// Values of a page by name and labels.
type Series = BTreeMap<(String, Labels), f64>;

/// The container series of a page, without the timestamps that a kubelet adds.
fn by_series(page: &str) -> Series {
    let lines = page.lines().filter(|line| line.starts_with("container_"));
    let without_time = lines.map(|line| match line.rsplit_once("} ") {
        Some((series, rest)) => {
            format!("{series}}} {}\n", rest.split(' ').next().unwrap_or_default())
        }
        None => String::new(),
    });
    let page = Exposition::new(without_time.collect());
    page.samples().map(|sample| ((sample.name, sample.labels), sample.value)).collect()
}

/// Families about the node and its pods, without those about the agent or the machine of the test.
fn of_the_node(exposition: &Exposition) -> String {
    const FAMILIES: [&str; 7] = [
        "container_",
        "pod_cfs_",
        "pod_cpu_",
        "pod_throttled_",
        "node_",
        "cgroups",
        "unmapped_cgroups",
    ];
    let is_of_node = |line: &str| {
        let name = line
            .trim_start_matches("# HELP ")
            .trim_start_matches("# TYPE ")
            .trim_start_matches("cpuwarden_");
        FAMILIES.iter().any(|family| name.starts_with(family))
    };
    exposition
        .text
        .lines()
        .filter(|line| is_of_node(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Containers of `containers.tsv` that had a cgroup, by the runtime's names.
fn containers_with_a_cgroup(node: &Path) -> BTreeSet<Name> {
    let pods = fs::read_to_string(node.join("pods.json")).unwrap();
    let namespaces = namespaces(&pods);
    let hierarchy = if node.join("cgroup-t0/cpu").is_dir() { "cgroup-t0/cpu" } else { "cgroup-t0" };
    let has_cgroup = |path: &str| node.join(hierarchy).join(path.trim_start_matches('/')).is_dir();
    let rows = fs::read_to_string(node.join("containers.tsv")).unwrap();
    let rows = rows.lines().filter_map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
        [_, "container", _, uid, pod, container, path] if has_cgroup(path) => {
            Some((namespaces[uid].clone(), pod.to_owned(), container.to_owned()))
        }
        _ => None,
    });
    rows.collect()
}

/// Maps pod UIDs to namespaces.
fn namespaces(pods: &str) -> BTreeMap<String, String> {
    let list: Value = serde_json::from_str(pods).unwrap();
    let text = |pod: &Value, key: &str| pod["metadata"][key].as_str().unwrap().to_owned();
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| (text(pod, "uid"), text(pod, "namespace")))
        .collect()
}
