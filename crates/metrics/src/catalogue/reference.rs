//! The metric reference as Markdown, generated from the tables.

use std::fmt::Write as _;

use super::{Descriptor, Scope, all, cadvisor};

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

/// The reference of all metrics: one section per scope, one table row per metric.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for (scope, title) in SECTIONS {
        if !text.is_empty() {
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
    text
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
    text.push_str("| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    metrics.for_each(|descriptor| row(text, descriptor));
}

fn row(text: &mut String, descriptor: &Descriptor) {
    let Descriptor { name, kind, labels, help } = descriptor;
    let (kind, unit, labels) = (kind.as_str(), descriptor.unit().unwrap_or_default(), code_list(labels));
    writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {help} |").expect("a String takes any text");
}

fn code_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
