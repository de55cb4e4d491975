//! Container statistics from the runtime instead of cAdvisor (KEP-2371): the kubelet's pages with the
//! feature gate off and on, and the agent's `/metrics/cadvisor` next to them.
//!
//! Raw pages, and the table of `deploy/docs/upgrade.md`, are in `target/cri-stats` afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::agent::{self, NAMESPACE, Series};
use xtask::cluster::pods::{container, pod};
use xtask::cluster::{Cluster, ClusterError, ensure, wait_until, write};
use xtask::workspace;

const GATE: &str = "PodAndContainerStatsFromCRI";
const TIMEOUT: Duration = Duration::from_secs(180);
/// Pages of each kind. The first and the last are the bounds of the agent's values in between.
const SAMPLES: usize = 7;
/// More than the time between two reads of a container by cAdvisor (10 to 15 s) or by the agent (10 s
/// while it runs).
const BETWEEN_SAMPLES: Duration = Duration::from_secs(20);
/// Pages between a value of the agent and its bounds. The agent reads the slow files of an idle
/// container more rarely, but its values stand still.
const DISTANCE: usize = 3;
/// Pods whose series are compared: all run for the whole test.
const PODS: [&str; 4] = ["stats-throttled", "stats-busy", "stats-idle", "stats-best-effort"];
/// Labels by which series are compared. `cpu` is on one metric only.
const LABELS: [&str; 7] = ["id", "name", "image", "namespace", "pod", "container", "cpu"];

/// The agent's page has the names, types, labels and values of the kubelet's before the gate, and the
/// series that the runtime lacks.
pub(super) fn the_agent_has_what_the_runtime_lacks(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let ready = agent::install(cluster, &["profile=monitor", "cadvisorMetrics=true"])?;
    create_pods(cluster)?;
    set_gate(cluster, false)?;
    let before = Pages::collect(cluster, "off")?;
    set_gate(cluster, true)?;
    let after = Pages::collect(cluster, "on")?;
    set_gate(cluster, false)?;
    let table = Table::new(&before, &after);
    write(&directory().join("table.md"), table.to_string())?;
    let (same, series) = before.compare()?;
    let (with_gate, _) = after.compare_types_of(&before)?;
    let gap = table.gap();
    ensure(!gap.is_empty(), || "the runtime lacks nothing".into())?;
    let filled: Vec<_> = gap.iter().filter(|name| table.agent.contains(**name)).copied().collect();
    for name in PODS {
        cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    Ok(format!(
        "{ready}; gate off: {series} series of {same} families equal the kubelet's; gate on: {} families missing of {}, \
         the agent has {} of them ({}), and {with_gate} families with the types of before",
        gap.len(),
        table.before.len(),
        filled.len(),
        filled.join(", ")
    ))
}

/// A pod throttled by its limit, one that runs without a limit, an idle one with all limits and two
/// containers, and a best-effort one.
fn create_pods(cluster: &Cluster) -> Result<(), ClusterError> {
    wait_until("default service account", TIMEOUT, || {
        Ok(cluster.kubectl(&["get", "serviceaccount", "default"]).is_ok())
    })?;
    let busy = "while true; do true; done";
    let work = "while true; do sleep 1; done";
    let equal = "{requests: {cpu: 300m, memory: 64Mi}, limits: {cpu: 300m, memory: 64Mi}}";
    let containers = [
        container("main", busy, "{requests: {cpu: 10m}, limits: {cpu: 300m}}"),
        container("main", work, "{requests: {cpu: 20m, memory: 16Mi}}"),
        container("main", "sleep 1000000", equal) + &container("second", "sleep 1000000", equal),
        container("main", work, "{}"),
    ];
    for (name, containers) in PODS.iter().zip(containers) {
        cluster.apply(&pod(name, "", &containers))?;
    }
    for name in PODS {
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=600s", &pod])?;
    }
    Ok(())
}

/// Restarts the kubelet with or without the gate, until its page has the containers: cAdvisor looks
/// for containerd once, at the kubelet's start, and may find it too busy.
fn set_gate(cluster: &Cluster, on: bool) -> Result<(), ClusterError> {
    let gate = if on { format!("featureGates: {{{GATE}: true}}") } else { String::new() };
    let script = format!(
        "config=/etc/kubernetes/kubelet.yaml; systemctl stop kubelet && sed -i '/^featureGates/d' $config && \
         echo '{gate}' >> $config && systemctl start kubelet"
    );
    let mut last = Ok(());
    for _ in 0..3 {
        cluster.in_node(&script)?;
        last = wait_until("containers on the kubelet's page", TIMEOUT, || {
            let page = Page::parse(&cluster.kubelet("metrics/cadvisor").unwrap_or_default());
            let has = |pod: &str| page.series.keys().any(|key| key[5] == pod);
            Ok(PODS.iter().all(|pod| has(pod)))
        })
        .map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn directory() -> PathBuf {
    workspace::target_dir().join("cri-stats")
}

/// Pages of one state of the gate, in the order in which they were read: kubelet, then agent.
struct Pages {
    kubelet: Vec<Page>,
    agent: Vec<Page>,
}

impl Pages {
    fn collect(cluster: &Cluster, gate: &str) -> Result<Self, ClusterError> {
        let agent = agent::pod(cluster)?;
        let agent =
            format!("/api/v1/namespaces/{NAMESPACE}/pods/{agent}:9753/proxy/metrics/cadvisor");
        let mut pages = Self { kubelet: Vec::new(), agent: Vec::new() };
        for number in 0..SAMPLES {
            std::thread::sleep(BETWEEN_SAMPLES);
            let keep = |name: &str, text: String| {
                write(&directory().join(format!("{gate}-{number}-{name}.txt")), &text)?;
                Ok::<_, ClusterError>(Page::parse(&text))
            };
            pages.kubelet.push(keep("kubelet-cadvisor", cluster.kubelet("metrics/cadvisor")?)?);
            pages.agent.push(keep("agent-cadvisor", cluster.kubectl(&["get", "--raw", &agent])?)?);
            keep("kubelet-resource", cluster.kubelet("metrics/resource")?)?;
        }
        Ok(pages)
    }

    /// Compares the agent's series with the kubelet's: types, labels, and values between those of
    /// earlier and later pages. Returns the number of families and of series.
    fn compare(&self) -> Result<(usize, usize), ClusterError> {
        let (families, _) = self.compare_types_of(self)?;
        let middle = SAMPLES / 2;
        let (earlier, later) =
            (&self.kubelet[middle - DISTANCE].series, &self.kubelet[middle + DISTANCE].series);
        let own = &self.agent[middle].series;
        let mut wrong = Vec::new();
        for (key, value) in own {
            let Some((low, high)) = earlier.get(key).zip(later.get(key)) else {
                wrong.push(format!("{key:?}: not the kubelet's"));
                continue;
            };
            // A gauge may have any value between two pages, unless it stands still on all of them.
            let is_counter = key[0].ends_with("_total");
            let between = &self.kubelet[middle - DISTANCE..=middle + DISTANCE];
            let within = if is_counter {
                low <= value && value <= high
            } else {
                value == low || between.iter().any(|page| page.series.get(key) != Some(low))
            };
            // cAdvisor converts a weight to shares by a rule that no runtime uses.
            if !within && key[0] != "container_spec_cpu_shares" {
                wrong.push(format!("{key:?}: {value}, the kubelet's {low} to {high}"));
            }
        }
        let names: BTreeSet<_> = own.keys().map(|key| &key[0]).collect();
        let kubelets = earlier.keys().filter(|key| names.contains(&key[0]));
        let missing = kubelets.filter(|key| !own.contains_key(*key));
        wrong.extend(missing.map(|key| format!("{key:?}: not on the agent's page")));
        ensure(wrong.is_empty(), || wrong.join("\n"))?;
        Ok((families, own.len()))
    }

    /// Compares the types of the agent's families with the kubelet's of `other`. Returns the number of
    /// families, and of those that only the agent has.
    fn compare_types_of(&self, other: &Self) -> Result<(usize, usize), ClusterError> {
        let (own, kubelet) = (&self.agent[SAMPLES / 2].types, &other.kubelet[SAMPLES / 2].types);
        let mut alone = 0;
        for (name, kind) in own {
            match kubelet.get(name) {
                Some(other) => ensure(other == kind, || format!("{name}: {kind}, not {other}"))?,
                None => alone += 1,
            }
        }
        Ok((own.len(), alone))
    }
}

/// A page: type of each family, and the series of [`PODS`] by name and [`LABELS`].
struct Page {
    types: BTreeMap<String, String>,
    series: BTreeMap<[String; 8], f64>,
    /// Families with a series of a container of [`PODS`].
    of_containers: BTreeSet<String>,
    /// Labels of the series of a family.
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let types = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
        let mut page = Self {
            types,
            series: BTreeMap::new(),
            of_containers: BTreeSet::new(),
            labels: BTreeMap::new(),
        };
        for line in text.lines() {
            let Some(series) = parse_series(line) else { continue };
            let is_container = !["", "POD"].contains(&series.label("container"));
            if !is_container || !PODS.contains(&series.label("pod")) {
                continue;
            }
            page.of_containers.insert(series.name.clone());
            page.labels
                .entry(series.name.clone())
                .or_default()
                .extend(series.labels.keys().cloned());
            let key = std::array::from_fn(|at| match at {
                0 => series.name.clone(),
                _ => series.label(LABELS[at - 1]).to_owned(),
            });
            page.series.insert(key, series.value);
        }
        page
    }
}

/// A series whose line may end with a timestamp.
fn parse_series(line: &str) -> Option<Series> {
    let end = line.rfind('}')?;
    let value = line[end + 1..].split_whitespace().next()?;
    Series::parse(&format!("{} {value}", &line[..=end]))
}

/// Families of containers on the pages.
struct Table<'a> {
    before: &'a BTreeSet<String>,
    after: &'a BTreeSet<String>,
    agent: &'a BTreeSet<String>,
    labels: [&'a BTreeMap<String, BTreeSet<String>>; 2],
}

impl<'a> Table<'a> {
    fn new(before: &'a Pages, after: &'a Pages) -> Self {
        let middle = SAMPLES / 2;
        let (old, new) = (&before.kubelet[middle], &after.kubelet[middle]);
        Self {
            before: &old.of_containers,
            after: &new.of_containers,
            agent: &after.agent[middle].of_containers,
            labels: [&old.labels, &new.labels],
        }
    }

    /// Families that the gate takes away.
    fn gap(&self) -> Vec<&'a str> {
        self.before.difference(self.after).map(String::as_str).collect()
    }
}

impl std::fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("| series | gate off | gate on | agent |\n|---|---|---|---|\n")?;
        let yes = |has: bool| if has { "yes" } else { "no" };
        for name in self.before.union(self.after) {
            let (before, after) = (self.before.contains(name), self.after.contains(name));
            let mut labels = String::new();
            if before && after {
                let of = |at: usize| self.labels[at].get(name).cloned().unwrap_or_default();
                let (old, new) = (of(0), of(1));
                let changes = [(" without", old.difference(&new)), (" with", new.difference(&old))];
                for (word, names) in changes {
                    for label in names {
                        let _ = write!(labels, ",{word} `{label}`");
                    }
                }
            }
            let agent = yes(self.agent.contains(name));
            writeln!(f, "| `{name}` | {} | {}{labels} | {agent} |", yes(before), yes(after))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn page(series: &[(&str, f64)]) -> Page {
        let mut text = "# TYPE a_total counter\n# TYPE b gauge\n".to_owned();
        for (name, value) in series {
            let labels = "container=\"main\",id=\"/x\",namespace=\"n\",pod=\"stats-idle\"";
            let _ = writeln!(text, "{name}{{{labels}}} {value} 1764321345678");
        }
        Page::parse(&text)
    }

    fn pages(kubelet: [f64; SAMPLES], agent: &[(&str, f64)]) -> Pages {
        Pages {
            kubelet: kubelet.map(|value| page(&[("a_total", value), ("b", 5.0)])).into(),
            agent: (0..SAMPLES).map(|_| page(agent)).collect(),
        }
    }

    #[test]
    fn values_lie_between_those_of_earlier_and_later_pages() {
        let rising = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let result =
            |agent: &[(&str, f64)]| pages(rising, agent).compare().map_err(|e| e.to_string());
        assert_eq!(result(&[("a_total", 4.5), ("b", 5.0)]), Ok((2, 2)));
        assert!(result(&[("a_total", 7.5), ("b", 5.0)]).unwrap_err().contains("a_total"));
        assert!(result(&[("a_total", 4.5), ("b", 6.0)]).unwrap_err().contains("\"b\""));
        assert!(result(&[("c", 1.0)]).unwrap_err().contains("not the kubelet's"));
        let mut moving = pages(rising, &[("a_total", 4.5), ("b", 6.0)]);
        moving.kubelet[1] = page(&[("a_total", 2.0), ("b", 7.0)]);
        assert_eq!(moving.compare().map_err(|e| e.to_string()), Ok((2, 2)));
    }

    /// The pages of `deploy/evidence` with the gate off or on.
    fn kept(gate: &str) -> Pages {
        let directory = tempfile::tempdir().unwrap();
        let archive = workspace::root().join("deploy/evidence/cri-stats.tar.gz");
        let mut tar = Command::new("tar");
        xtask::process::run(tar.arg("xzf").arg(archive).arg("-C").arg(directory.path())).unwrap();
        let page = |name: &str, at: usize| {
            let path = directory.path().join(format!("{gate}-{at}-{name}-cadvisor.txt"));
            Page::parse(&fs::read_to_string(path).unwrap())
        };
        let of = |name: &str| (0..SAMPLES).map(|at| page(name, at)).collect();
        Pages { kubelet: of("kubelet"), agent: of("agent") }
    }

    #[test]
    fn pages_of_the_evidence_agree_and_have_its_table() {
        let [before, after] = ["off", "on"].map(kept);
        let (families, series) = before.compare().unwrap();
        let (table, page) =
            (Table::new(&before, &after), include_str!("../../../../deploy/evidence/cri-stats.md"));
        for shown in [format!("{series} series of {families} families"), table.to_string()] {
            assert!(page.contains(shown.trim_end()), "{shown}");
        }
    }

    #[test]
    fn a_table_names_the_series_that_the_gate_takes_away() {
        let steady = [1.0; SAMPLES];
        let before = pages(steady, &[("b", 5.0)]);
        let mut after = pages(steady, &[("b", 5.0)]);
        after.kubelet = (0..SAMPLES).map(|_| page(&[("a_total", 1.0)])).collect();
        let table = Table::new(&before, &after);
        assert_eq!(table.gap(), ["b"]);
        assert!(table.to_string().contains("| `b` | yes | no | yes |"), "{table}");
        assert!(table.to_string().contains("| `a_total` | yes | yes | no |"), "{table}");
    }
}
