//! Metrics that the agent counts about itself between ticks; the values are in
//! [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, best_effort, burst, counter, gauge, histogram, injection, pinning};

pub(crate) static AGENT: &[&Descriptor] = &[
    &BUILD_INFO,
    &SAMPLE_DURATION_SECONDS,
    &SAMPLE_LATENESS_SECONDS,
    &SERIES_DROPPED_TOTAL,
    &POD_SOURCE_UP,
    &POD_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS,
    &APISERVER_REQUESTS_TOTAL,
    &SUBSYSTEM_UP,
    &SUBSYSTEM_RESTARTS_TOTAL,
    &PAGE_RENDERS_TOTAL,
    &HTTP_CONNECTIONS_CUT_TOTAL,
    &POD_LISTS_CUT_TOTAL,
    &RECORDING,
    &NODE_CONDITION_PATCHES_TOTAL,
    &pinning::PINNED_CPUS,
    &pinning::POOL_CPUS,
    &pinning::EXCLUSIVE_OVERLAP_SECONDS_TOTAL,
    &pinning::PIN_OPERATIONS_TOTAL,
    &pinning::PIN_REJECTIONS_TOTAL,
    &pinning::PINNING_ENFORCING,
    &pinning::PINNING_STEPPED_BACK,
    &pinning::PIN_EVENTS_TOTAL,
    &injection::NRI_CONNECTED,
    &injection::NRI_DISCONNECTED_SECONDS_TOTAL,
    &injection::NRI_RECONNECTIONS_TOTAL,
    &injection::NRI_EMPTY_ANSWERS_TOTAL,
    &injection::ENV_INJECTIONS_MISSED_TOTAL,
    &injection::CONTAINER_INJECTED_ENV_INFO,
    &best_effort::BEST_EFFORT_STEP,
    &best_effort::BEST_EFFORT_STEP_SECONDS_TOTAL,
    &best_effort::BEST_EFFORT_TRANSITIONS_TOTAL,
    &best_effort::BEST_EFFORT_WRITES_TOTAL,
    &best_effort::BEST_EFFORT_ENFORCING,
    &best_effort::BEST_EFFORT_RESTRICTED,
    &best_effort::BEST_EFFORT_HARM_RATIO,
    &best_effort::BEST_EFFORT_BUDGET_CORES,
    &burst::BURST_ENFORCING,
    &burst::CONTAINER_BURST_SECONDS,
    &burst::BURST_CONTAINERS,
    &burst::BURST_CHANGES_TOTAL,
    &burst::BURST_WRITES_TOTAL,
];

pub(crate) static BUILD_INFO: Descriptor = gauge(
    "cpuwarden_build_info",
    &["version", "revision"],
    "Always 1: version and revision of the running build.",
);

pub(crate) static RECORDING: Descriptor = gauge(
    "cpuwarden_recording",
    &[],
    "1 while each second is written to the directory of --record, 0 while it cannot be written; the log contains the \
     reason. Absent without --record.",
);

pub(crate) static SAMPLE_DURATION_SECONDS: Descriptor = histogram(
    "cpuwarden_sample_duration_seconds",
    "Wall time of each tick, from its first read to the published snapshot.",
);

pub(crate) static SAMPLE_LATENESS_SECONDS: Descriptor = histogram(
    "cpuwarden_sample_lateness_seconds",
    "Delay between the deadline of each tick and its start.",
);

pub(crate) static SERIES_DROPPED_TOTAL: Descriptor = counter(
    "cpuwarden_series_dropped_total",
    &[],
    "Series left out because of the series cap (--max-series); every page without a series counts it once. The agent \
     leaves out whole metrics, for all containers, in the order that the metrics reference lists.",
);

pub(crate) static POD_SOURCE_UP: Descriptor = gauge(
    "cpuwarden_pod_source_up",
    &["source"],
    "1 if the last answer of this pod source was valid (nri: if the container runtime is connected), else 0. Pods keep \
     their last names while the source is down.",
);

pub(crate) static POD_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS: Descriptor = gauge(
    "cpuwarden_pod_source_last_success_timestamp_seconds",
    &["source"],
    "Unix time of the last valid answer of this pod source; absent before the first.",
);

pub(crate) static POD_LISTS_CUT_TOTAL: Descriptor = counter(
    "cpuwarden_pod_lists_cut_total",
    &[],
    "Pod lists of which pods were refused and have no names: beyond 128 MiB, 5000 pods or 20000 containers, or with \
     more than 500 containers or labels each.",
);

pub(crate) static APISERVER_REQUESTS_TOTAL: Descriptor = counter(
    "cpuwarden_apiserver_requests_total",
    &[],
    "Requests sent to the API server: pod lists, authorization of readers of the metrics, Kubernetes Events and the \
     node condition; stays 0 unless one of these is configured.",
);

pub(crate) static SUBSYSTEM_UP: Descriptor = gauge(
    "cpuwarden_subsystem_up",
    &["subsystem"],
    "1 if this thread or task of the agent makes progress; 0 if it ended or completed no iteration for 10 of its \
     intervals (at least 60 s), and /healthz then fails. Only enabled work has a series.",
);

pub(crate) static SUBSYSTEM_RESTARTS_TOTAL: Descriptor = counter(
    "cpuwarden_subsystem_restarts_total",
    &["subsystem"],
    "Restarts of an agent thread after a panic; the log contains the panic.",
);

pub(crate) static PAGE_RENDERS_TOTAL: Descriptor = counter(
    "cpuwarden_page_renders_total",
    &["page"],
    "Number of times that a page (metrics, cadvisor or advice) was rendered: at most once per sample and format, \
     regardless of the number of requests.",
);

pub(crate) static NODE_CONDITION_PATCHES_TOTAL: Descriptor = counter(
    "cpuwarden_node_condition_patches_total",
    &["result"],
    "Requests to the API server that set the node condition CPUContention, by result: ok or error; the log contains \
     the reason. Absent without --node-condition.",
);

pub(crate) static HTTP_CONNECTIONS_CUT_TOTAL: Descriptor = counter(
    "cpuwarden_http_connections_cut_total",
    &["reason"],
    "Connections that the endpoint closed or rejected, by reason: waiting (too many connections without a request), \
     peer (too many pages at the same time for one address), total (too many for all addresses), slow (the client did \
     not read the page in time).",
);
