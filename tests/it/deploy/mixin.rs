//! Rules and boards of the kubernetes-mixin and kube-prometheus on the agent's `/metrics/cadvisor`:
//! the same results as on the kubelet's page of the same pods at the same time.
//!
//! The pages are those that the install test `cri-stats` recorded. Both are in one promtool test, in
//! two clusters: the mixin's expressions keep clusters apart.
//!
//! Two variables add checkouts of the two projects, as of August 2026:
//! - `KUBE_PROMETHEUS=DIR/manifests`: all rules and board queries that read a series of the agent.
//! - `KUBERNETES_MIXIN=DIR`, after `make prometheus_rules.yaml prometheus_alerts.yaml`: the mixin's own
//!   rule tests, with the labels of each page.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{deploy, read};

/// Pages of each source in the recording, and the seconds between two.
const PAGES: usize = 7;
const INTERVAL: &str = "20s";
/// Values of each series: the recorded ones, repeated. Counters go on as they grew.
const VALUES: usize = 64;
const AT: &str = "21m";
const POD: &str = "stats-throttled";
/// Both clusters: the source of the series.
const SOURCES: [&str; 2] = ["kubelet", "agent"];
/// The agent's families, by the starts of their names.
const FAMILIES: [&str; 6] = [
    "container_cpu_usage_seconds_total",
    "container_cpu_cfs_",
    "container_spec_cpu_",
    "container_pressure_",
    "container_memory_working_set_bytes",
    "container_threads",
];

/// A rule file, and board queries with their places.
struct Mixin {
    rules: Value,
    queries: Vec<(String, String)>,
}

impl Mixin {
    /// The rules and queries of this repository.
    fn own() -> Self {
        let parse = |file: &str| serde_saphyr::from_str::<Value>(&read(file)).unwrap();
        let boards = parse("tests/kubernetes-mixin-boards.yaml");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let queries = boards.as_array().unwrap().iter();
        let queries = queries.map(|query| (text(&query["board"]), text(&query["expr"])));
        Self { rules: parse("tests/kubernetes-mixin-rules.yaml"), queries: queries.collect() }
    }

    /// Those of kube-prometheus that read a series of the agent.
    fn upstream(manifests: &Path) -> Self {
        let parse = |file: &str| {
            let text = fs::read_to_string(manifests.join(file)).unwrap();
            serde_saphyr::from_str::<Value>(&text).unwrap()
        };
        let rules = parse("kubernetesControlPlane-prometheusRule.yaml")["spec"].clone();
        let mut queries = Vec::new();
        let boards = parse("grafana-dashboardDefinitions.yaml");
        for data in boards["items"].as_array().unwrap().iter().flat_map(|it| it["data"].as_object())
        {
            for (name, board) in data {
                let board: Value = serde_json::from_str(board.as_str().unwrap()).unwrap();
                find_queries(&board, name, &mut queries);
            }
        }
        // Boards of several clusters cannot tell the two sources apart.
        let is_of_cluster = |query: &str| query.contains("$cluster");
        queries.retain(|(_, query)| {
            is_of_cluster(query) && FAMILIES.iter().any(|name| query.contains(name))
        });
        Self { rules, queries }
    }
}

/// Adds all expressions of a dashboard, with its title.
fn find_queries(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            if let Some(query) = fields.get("expr").and_then(Value::as_str) {
                found.push((place.to_owned(), query.to_owned()));
            }
            let title = fields.get("title").and_then(Value::as_str).unwrap_or(place);
            fields.values().for_each(|value| find_queries(value, title, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_queries(value, place, found)),
        _ => {}
    }
}

fn unpacked() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(deploy("evidence/cri-stats.tar.gz")).arg("-C").arg(directory.path());
    super::output_of(&mut tar);
    directory
}

/// The recorded series: for each source name and labels, with the value on each page.
fn recorded() -> Vec<Value> {
    let directory = unpacked();
    let mut series = Vec::new();
    for source in SOURCES {
        let mut values = BTreeMap::<String, Vec<f64>>::new();
        for page in 0..PAGES {
            let path = directory.path().join(format!("off-{page}-{source}-cadvisor.txt"));
            for line in fs::read_to_string(path).unwrap().lines() {
                if let Some((series, value)) = parse(line) {
                    values.entry(series).or_default().push(value);
                }
            }
        }
        values.retain(|_, values| values.len() == PAGES);
        let scrape = format!(
            ",job=\"kubelet\",metrics_path=\"/metrics/cadvisor\",instance=\"10.0.0.2\",cluster=\"{source}\"}}"
        );
        series.extend(values.into_iter().map(|(name, values)| {
            let is_counter = name.split('{').next().unwrap().ends_with("_total");
            json!({
                "series": format!("{}{scrape}", name.trim_end_matches('}')),
                "values": continued(&values, is_counter).join(" "),
            })
        }));
    }
    series
}

/// Series and value of a line, without its timestamp, if it is a container's of [`FAMILIES`]. The
/// kubelet also has series of cgroups and sandboxes, without a container.
fn parse(line: &str) -> Option<(String, f64)> {
    let end = line.rfind('}')?;
    let value = line[end + 1..].split_whitespace().next()?.parse().ok()?;
    let is_known = FAMILIES.iter().any(|name| line.starts_with(name));
    let is_container =
        ["", "POD"].iter().all(|name| !line.contains(&format!("container=\"{name}\"")));
    (is_known && is_container).then(|| (line[..=end].to_owned(), value))
}

/// Values of a series from those on the pages. A gauge has the median of them: the working set of a
/// pod that starts a process each second has another value for each reader.
fn continued(values: &[f64], is_counter: bool) -> Vec<String> {
    if !is_counter {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        return vec![sorted[PAGES / 2].to_string(); VALUES];
    }
    let grown = values[PAGES - 1] - values[0];
    // The last page is the first of the next round.
    let value = |at: usize| {
        let (round, at) = (at / (PAGES - 1), at % (PAGES - 1));
        values[at] + round as f64 * grown
    };
    (0..VALUES).map(|at| value(at).to_string()).collect()
}

/// Series of kube-state-metrics about the pods of the recording.
fn state_metrics(series: &[Value]) -> Vec<Value> {
    let label = |series: &str, name: &str| {
        let (_, rest) = series.split_once(&format!("{name}=\""))?;
        Some(rest.split('"').next().unwrap().to_owned())
    };
    let named = series.iter().filter_map(|one| {
        let series = one["series"].as_str().unwrap();
        let container = label(series, "container").filter(|name| !name.is_empty())?;
        Some((label(series, "namespace")?, label(series, "pod")?, container))
    });
    let containers: std::collections::BTreeSet<_> = named.collect();
    let mut found = Vec::new();
    for cluster in SOURCES {
        let mut add = |name: &str, labels: String, value: &str| {
            let labels = format!("job=\"kube-state-metrics\",cluster=\"{cluster}\",{labels}");
            found.push(
                json!({"series": format!("{name}{{{labels}}}"), "values": format!("{value}x{VALUES}")}),
            );
        };
        for resource in ["cpu", "memory"] {
            let labels = format!("node=\"node\",resource=\"{resource}\"");
            add("kube_node_status_allocatable", labels, "8");
        }
        let (mut last, node) = (String::new(), "node=\"node\"");
        for (namespace, pod, container) in &containers {
            let of_pod = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
            if last != of_pod {
                add("kube_pod_info", format!("{of_pod},node=\"node\""), "1");
                add("kube_pod_status_phase", format!("{of_pod},phase=\"Running\""), "1");
                let owner = format!("{of_pod},owner_kind=\"DaemonSet\",owner_name=\"{pod}\"");
                add("kube_pod_owner", owner, "1");
                last.clone_from(&of_pod);
            }
            for (resource, value) in [("cpu", "2"), ("memory", "100000000")] {
                for kind in ["requests", "limits"] {
                    let labels = format!(
                        "{of_pod},container=\"{container}\",{node},resource=\"{resource}\""
                    );
                    add(&format!("kube_pod_container_resource_{kind}"), labels, value);
                }
            }
        }
    }
    found
}

/// A promtool test of the recorded series.
struct Promtool {
    directory: TempDir,
    series: Vec<Value>,
}

impl Promtool {
    fn new(rules: &Value, mut series: Vec<Value>) -> Self {
        series.extend(state_metrics(&series));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("rules.yaml"), rules.to_string()).unwrap();
        Self { directory, series }
    }

    /// Evaluates expressions with their expected samples.
    fn run(&self, expected: &[(String, Value)]) -> Output {
        let tests = expected
            .iter()
            .map(|(expr, samples)| json!({"expr": expr, "eval_time": AT, "exp_samples": samples}));
        let test = json!({
            "interval": INTERVAL, "input_series": self.series, "promql_expr_test": tests.collect::<Vec<_>>(),
        });
        let file = self.directory.path().join("test.yaml");
        let text =
            json!({"rule_files": ["rules.yaml"], "evaluation_interval": INTERVAL, "tests": [test]});
        fs::write(&file, text.to_string()).unwrap();
        Command::new("promtool").args(["test", "rules"]).arg(file).output().unwrap()
    }
}

/// A query of a source.
fn of(source: &str, query: &str) -> String {
    [
        ("$cluster", source),
        ("$namespace", "default"),
        ("$node", "node"),
        ("$pod", POD),
        ("$__rate_interval", "5m"),
        ("$workload", ".*"),
        ("$type", ".*"),
    ]
    .iter()
    .fold(query.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Expressions without samples where both sources have the same series and about the same values.
/// The kubelet reads its values at other times, up to 15 s before the page: its rates over two minutes
/// differ. That the counters are the same is a test of `cri-stats`.
fn differences(kubelet: &str, agent: &str) -> [String; 3] {
    let on = "ignoring (cluster)";
    [
        format!("({kubelet}) unless {on} ({agent})"),
        format!("({agent}) unless {on} ({kubelet})"),
        format!("abs(({kubelet}) - {on} ({agent})) > 0.25 * abs({kubelet}) + 0.02"),
    ]
}

#[test]
fn rules_and_boards_of_the_mixin_have_the_kubelets_results() {
    let empty = compare(&Mixin::own());
    assert!(empty.is_empty(), "without a series: {empty:?}");
    if let Some(manifests) = std::env::var_os("KUBE_PROMETHEUS") {
        // Windows nodes were not recorded.
        let empty = compare(&Mixin::upstream(Path::new(&manifests)));
        println!("{} rules and queries without a series: {empty:?}", empty.len());
    }
    if let Some(mixin) = std::env::var_os("KUBERNETES_MIXIN") {
        run_own_tests(Path::new(&mixin));
    }
}

/// Compares the results of all rules and queries. Returns the places of those without a series.
fn compare(mixin: &Mixin) -> Vec<String> {
    let promtool = Promtool::new(&mixin.rules, recorded());
    let groups = mixin.rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap()).filter_map(|rule| {
        let expression = rule["expr"].as_str().unwrap();
        let reads = FAMILIES.iter().any(|name| expression.contains(name));
        let selector = |name: &str| format!("{name}{{cluster=\"$cluster\"}}");
        match rule["record"].as_str() {
            Some(name) => reads.then(|| (name.to_owned(), selector(name))),
            None => reads.then(|| {
                let name = rule["alert"].as_str().unwrap();
                let firing = format!("alertname=\"{name}\",alertstate=\"firing\"");
                (name.to_owned(), format!("ALERTS{{{firing},cluster=\"$cluster\"}}"))
            }),
        }
    });
    let all: Vec<_> = rules.chain(mixin.queries.clone()).collect();
    let shows = |query: &str| {
        let samples = json!([{"labels": "{}", "value": 1}]);
        (format!("count({}) > bool 0", of("kubelet", query)), samples)
    };
    let first = promtool.run(&all.iter().map(|(_, query)| shows(query)).collect::<Vec<_>>());
    let failed = text_of(&first);
    // promtool names the failed expressions in quotes.
    let is_shown = |query: &str| !failed.contains(&json!(shows(query).0).to_string());
    let (shown, empty): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, query)| is_shown(query));
    let expected = shown.iter().flat_map(|(_, query)| {
        let [kubelet, agent] = SOURCES.map(|source| of(source, query));
        differences(&kubelet, &agent).map(|expr| (expr, json!([])))
    });
    let output = promtool.run(&expected.collect::<Vec<_>>());
    assert!(!shown.is_empty() && output.status.success(), "{}", text_of(&output));
    println!("{} rules and queries with equal results", shown.len());
    empty.into_iter().map(|(place, _)| place).collect()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Name and labels of a series.
fn labels_of(series: &str) -> (&str, BTreeMap<String, String>) {
    let (name, labels) = series.split_once('{').unwrap();
    let pairs = labels.trim_end_matches('}').split("\",");
    let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    let pairs = pairs.map(|(label, value)| (label.to_owned(), value.replace('"', "")));
    (name, pairs.collect())
}

/// Labels of a scrape, and those that the mixin's tests add to a duplicate.
fn is_of_the_scrape(label: &str) -> bool {
    ["job", "instance", "endpoint", "service", "cluster"].contains(&label)
        || label.starts_with("node_")
}

/// The series with exactly the labels of the page and of the scrape, and the values of the test.
/// Without a series of its family on the page, one that no rule reads.
fn as_on(page: &BTreeMap<String, BTreeMap<String, String>>, series: &str) -> String {
    if !FAMILIES.iter().any(|name| series.starts_with(name)) {
        return series.to_owned();
    }
    let (name, mut labels) = labels_of(series);
    let Some(on_page) = page.get(name) else { return "absent{}".into() };
    labels.retain(|label, _| on_page.contains_key(label) || is_of_the_scrape(label));
    for (label, value) in on_page {
        labels.entry(label.clone()).or_insert_with(|| value.clone());
    }
    let labels = labels.iter().map(|(label, value)| format!("{label}=\"{value}\""));
    format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// Whether a test reads a series of the agent.
fn is_of_a_family(test: &Value) -> bool {
    let series = test["input_series"].as_array().into_iter().flatten();
    let mut names = series.filter_map(|one| one["series"].as_str());
    names.any(|series| FAMILIES.iter().any(|name| series.starts_with(name)))
}

/// Runs the mixin's own rule tests that read a series of the agent.
fn run_own_tests(mixin: &Path) {
    let recording = unpacked();
    let rules = ["prometheus_rules.yaml", "prometheus_alerts.yaml"].map(|file| mixin.join(file));
    for source in SOURCES {
        let path = recording.path().join(format!("off-0-{source}-cadvisor.txt"));
        let text = fs::read_to_string(path).unwrap();
        let series: Vec<_> = text.lines().filter_map(parse).collect();
        let families = series.iter().map(|(series, _)| labels_of(series));
        let page = families.map(|(name, labels)| (name.to_owned(), labels)).collect();
        let mut tested = 0;
        for file in fs::read_dir(mixin.join("tests")).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let mut file: Value = serde_saphyr::from_str(&text).unwrap();
            let tests = file["tests"].as_array_mut().unwrap();
            tests.retain(is_of_a_family);
            for test in &mut *tests {
                for series in test["input_series"].as_array_mut().unwrap() {
                    series["series"] = as_on(&page, series["series"].as_str().unwrap()).into();
                }
            }
            tested += tests.len();
            file["rule_files"] = json!(rules);
            let path = recording.path().join("tests.yaml");
            fs::write(&path, file.to_string()).unwrap();
            super::output_of(Command::new("promtool").args(["test", "rules"]).arg(path));
        }
        println!("{source}: {tested} tests");
        assert!(tested > 0);
    }
}
