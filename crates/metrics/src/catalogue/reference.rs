//! The metric reference as Markdown, generated from the tables.

use std::fmt::Write as _;

use super::{Descriptor, Extent, Form, Preset, Scope, Selection, all, cadvisor, families, steps};

const SECTIONS: [(Scope, &str); 5] = [
    (Scope::Container, "Containers"),
    (Scope::Pod, "Pods: quotas of their own cgroups, and slowed pods"),
    (Scope::Interference, "Waits of a pod, by the pod that caused them"),
    (Scope::Node, "Node"),
    (Scope::Agent, "Agent"),
];

/// Metrics that no dashboard or rule uses, and their purpose in custom queries.
pub const QUERY_ONLY: &[(&str, &str)] = &[
    (
        "cpuwarden_best_effort_budget_cores",
        "comparison of the utilization rule with the waits that are measured",
    ),
    (
        "cpuwarden_best_effort_harm_ratio",
        "choice between observe and enforce, and the effect of the steps",
    ),
    ("cpuwarden_best_effort_step", "how far best-effort pods yield now"),
    ("cpuwarden_best_effort_transitions_total", "frequency and reasons of the steps"),
    (
        "cpuwarden_bpf_switches_total",
        "scheduler activity, to which the cost of the trace is proportional",
    ),
    ("cpuwarden_burst_changes_total", "frequency and reasons of changed bursts"),
    ("cpuwarden_burst_containers", "containers with burst, and the reasons of the others"),
    (
        "cpuwarden_container_burst_seconds",
        "containers that burst, next to cpuwarden_container_cfs_burst_seconds_total",
    ),
    (
        "cpuwarden_container_cfs_burst_periods_total",
        "frequency of bursts, in addition to their length",
    ),
    (
        "cpuwarden_container_cpu_weight",
        "comparison of the weight in force with that of the request",
    ),
    ("cpuwarden_container_cpuset_cpus", "number of CPUs that a container may use"),
    ("cpuwarden_container_gc_cpu_seconds_total", "CPU time of the collector over any span"),
    (
        "cpuwarden_container_gc_pause_seconds_total",
        "share of the time in which the program was stopped",
    ),
    (
        "cpuwarden_container_injected_env_info",
        "containers with injected variables, and those whose values a resize has outdated",
    ),
    (
        "cpuwarden_container_memory_request_bytes",
        "comparison of the memory request with the working set",
    ),
    (
        "cpuwarden_container_numa_memory_bytes",
        "memory on another NUMA node than the container's CPUs",
    ),
    (
        "cpuwarden_container_recommended_cpu_burst_seconds",
        "value for cpu.max.burst, if the container runtime can set it",
    ),
    (
        "cpuwarden_env_injections_missed_total",
        "containers that started before the kubelet listed their pod",
    ),
    ("cpuwarden_node_condition_patches_total", "failing reports of the node condition"),
    ("cpuwarden_nri_connected", "nodes on which new containers are not adjusted before they start"),
    (
        "cpuwarden_nri_disconnected_seconds_total",
        "time in which containers started without CPUs and variables of the agent",
    ),
    ("cpuwarden_nri_empty_answers_total", "containers that a fault left without variables"),
    ("cpuwarden_nri_reconnections_total", "lost connections to the container runtime"),
    ("cpuwarden_pod_cfs_burst_periods_total", "the same as for containers"),
    (
        "cpuwarden_pod_cfs_periods_total",
        "active periods of the pod, to calculate the throttled share",
    ),
    (
        "cpuwarden_pod_throttled_window_ratio",
        "heat map of throttled windows for the pod's own quota",
    ),
    ("cpuwarden_qos_class_contention_seconds_total", "contention without throttling by QoS class"),
    ("cpuwarden_recording", "nodes whose last seconds are not kept for a replay"),
    ("cpuwarden_sched_trace_evicted_histories_total", "explanation of unattributed waits"),
    ("process_max_fds", "comparison of open file descriptors with their limit"),
    ("process_open_fds", "detection of descriptor leaks"),
    (
        "process_start_time_seconds",
        "restarts of the agent: changes(process_start_time_seconds[1h])",
    ),
    (
        "process_virtual_memory_bytes",
        "standard metric of exporters; resident memory is the relevant one",
    ),
    ("cpuwarden_gc_readings_dropped_total", "trust in the figures of garbage collection"),
    ("cpuwarden_gc_unread_containers", "why a runtime is not read"),
];

const PRESETS: &str = "\
`--metrics` selects the preset: `lean`, `standard` (the default) or `full`. The column *preset* shows the smallest preset with
the whole metric, and a smaller one that has some of its series, with these series. `--metrics-enable` and `--metrics-disable`
switch single metrics on or off. The page of cAdvisor's names is the same for each preset. [Sizing](sizing.md) shows the cost of
each preset, and the panels and alerts that need more than `lean`.

";

const ORDER: &str = "
## Order in which the series cap drops metrics

Above `--max-series` the agent leaves out whole metrics, for all containers of the node, starting at the top of this list.
Metrics of the node and the agent remain. A metric returns when the page that includes it is 5 % smaller than the cap.

";

/// The reference of all metrics: one section per scope, one table row per metric.
#[must_use]
pub fn reference() -> String {
    let mut text = PRESETS.to_owned();
    for (at, (scope, title)) in SECTIONS.into_iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        section(
            &mut text,
            scope,
            title,
            all().filter(|(of, _)| *of == scope).map(|(_, descriptor)| descriptor),
        );
    }
    text.push('\n');
    section(
        &mut text,
        Scope::Container,
        "cAdvisor's names, on `/metrics/cadvisor`",
        cadvisor::descriptors(),
    );
    text.push_str("\n## Only for queries\n\nNo dashboard and no rule uses these metrics.\n\n");
    text.push_str("| name | purpose |\n|---|---|\n");
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
        let family =
            families(step.family.table).nth(step.family.index).expect("a step is of the table");
        let rest = match (step.to, family.extent.brief) {
            (Form::Brief, Some((_, series))) => format!(", but not: {series}"),
            _ => String::new(),
        };
        writeln!(text, "{}. `{}`{rest}", at + 1, family.name).expect("a String takes any text");
    }
}

/// The presets of a metric: "standard", or "full; standard: buckets 0 and 0.25".
fn presets(Extent { whole, brief }: Extent) -> String {
    let brief = brief
        .map(|(preset, series)| format!("; {}: {series}", preset.as_str()))
        .unwrap_or_default();
    format!("{}{brief}", whole.as_str())
}

fn section(
    text: &mut String,
    scope: Scope,
    title: &str,
    metrics: impl Iterator<Item = &'static Descriptor>,
) {
    text.push_str("## ");
    text.push_str(title);
    text.push_str("\n\n");
    if !scope.labels().is_empty() {
        text.push_str("Every series has the labels ");
        text.push_str(&code_list(scope.labels()));
        text.push_str(".\n\n");
    }
    text.push_str(
        "| name | type | unit | labels | preset | meaning |\n|---|---|---|---|---|---|\n",
    );
    metrics.for_each(|descriptor| row(text, descriptor));
}

fn row(text: &mut String, descriptor: &Descriptor) {
    let Descriptor { name, kind, labels, help, extent } = descriptor;
    let (kind, unit, labels) =
        (kind.as_str(), descriptor.unit().unwrap_or_default(), code_list(labels));
    let presets = presets(*extent);
    writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {presets} | {help} |")
        .expect("a String takes any text");
}

fn code_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
