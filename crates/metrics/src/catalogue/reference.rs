//! The metric reference as Markdown, generated from the tables.

use std::fmt::Write as _;

use super::{Descriptor, Extent, Form, Preset, Scope, Selection, all, cadvisor, families, steps};

const SECTIONS: [(Scope, &str); 5] = [
    (Scope::Container, "Containers"),
    (Scope::Pod, "Pods whose own cgroup has a quota"),
    (Scope::Interference, "Who made whom wait"),
    (Scope::Node, "Node"),
    (Scope::Agent, "Agent"),
];

/// Metrics that no dashboard or rule uses, and their purpose in custom queries.
pub const QUERY_ONLY: &[(&str, &str)] = &[
    ("cpuwarden_bpf_switches_total", "how busy the scheduler is: the unit in which the trace's cost grows"),
    ("cpuwarden_container_cfs_burst_periods_total", "how often bursts happen, beside how long they are"),
    ("cpuwarden_container_cpu_weight", "whether the weight in force is that of the request"),
    ("cpuwarden_container_cpuset_cpus", "CPUs a container may use, as a number"),
    ("cpuwarden_container_memory_request_bytes", "memory requested, against the working set"),
    ("cpuwarden_container_numa_memory_bytes", "memory away from the CPUs that the container runs on"),
    ("cpuwarden_container_recommended_cpu_burst_seconds", "cpu.max.burst, where the container runtime can set it"),
    ("cpuwarden_pod_cfs_burst_periods_total", "as for containers"),
    ("cpuwarden_pod_cfs_periods_total", "the pod's active periods, for the share of them that is throttled"),
    ("cpuwarden_pod_throttled_window_ratio", "as the heat map of containers, for the pod's own quota"),
    ("cpuwarden_sched_trace_evicted_histories_total", "why waits are unattributed"),
    ("process_max_fds", "whether open file descriptors reach their limit"),
    ("process_open_fds", "leaks of file descriptors"),
    ("process_start_time_seconds", "when the agent was restarted: changes(process_start_time_seconds[1h])"),
    ("process_virtual_memory_bytes", "as in every exporter; the resident memory is what counts"),
];

const PRESETS: &str = "\
`--metrics` chooses how much is exported: `lean`, `standard` (the default) or `full`. The column *preset* has the smallest one
with the whole metric, and where a smaller one has some of its series, these. `--metrics-enable` and `--metrics-disable` switch
single metrics on top of a preset. The page of cAdvisor's names is the same with each. [sizing.md](sizing.md) says what each preset costs and what needs more than `lean`.

";

const ORDER: &str = "
## Order in which the series cap drops metrics

Above `--max-series` whole metrics are left out, for all containers of the node, from the top of this list on. The metrics of the
node and the agent stay. A metric comes back when the page with it is 5 % smaller than the cap.

";

/// The reference of all metrics: one section per scope, one table row per metric.
#[must_use]
pub fn reference() -> String {
    let mut text = PRESETS.to_owned();
    for (at, (scope, title)) in SECTIONS.into_iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        section(&mut text, scope, title, all().filter(|(of, _)| *of == scope).map(|(_, descriptor)| descriptor));
    }
    text.push('\n');
    section(&mut text, Scope::Container, "cAdvisor's names, on `/metrics/cadvisor`", cadvisor::descriptors());
    text.push_str("\n## Only for queries\n\nEvery other metric is in a panel of the dashboards or in a rule.\n\n");
    text.push_str("| name | for |\n|---|---|\n");
    for (name, purpose) in QUERY_ONLY {
        writeln!(text, "| `{name}` | {purpose} |").expect("a String takes any text");
    }
    order(&mut text);
    text
}

fn order(text: &mut String) {
    text.push_str(ORDER);
    let full = Selection::preset(Preset::Full);
    for (at, step) in steps(&full).into_iter().enumerate() {
        let family = families(step.family.table).nth(step.family.index).expect("a step is of the table");
        let rest = match (step.to, family.extent.brief) {
            (Form::Brief, Some((_, series))) => format!(", but not: {series}"),
            _ => String::new(),
        };
        writeln!(text, "{}. `{}`{rest}", at + 1, family.name).expect("a String takes any text");
    }
}

/// The presets of a metric: "standard", or "full; standard: buckets 0 and 0.25".
fn presets(Extent { whole, brief }: Extent) -> String {
    let brief = brief.map(|(preset, series)| format!("; {}: {series}", preset.as_str())).unwrap_or_default();
    format!("{}{brief}", whole.as_str())
}

fn section(text: &mut String, scope: Scope, title: &str, metrics: impl Iterator<Item = &'static Descriptor>) {
    text.push_str("## ");
    text.push_str(title);
    text.push_str("\n\n");
    if !scope.labels().is_empty() {
        text.push_str("Every series carries ");
        text.push_str(&code_list(scope.labels()));
        text.push_str(".\n\n");
    }
    text.push_str("| name | type | unit | labels | preset | meaning |\n|---|---|---|---|---|---|\n");
    metrics.for_each(|descriptor| row(text, descriptor));
}

fn row(text: &mut String, descriptor: &Descriptor) {
    let Descriptor { name, kind, labels, help, extent } = descriptor;
    let (kind, unit, labels) = (kind.as_str(), descriptor.unit().unwrap_or_default(), code_list(labels));
    let presets = presets(*extent);
    writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {presets} | {help} |").expect("a String takes any text");
}

fn code_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
