//! Metrics that the agent counts about itself between ticks; the values are in [`AgentMetrics`](crate::AgentMetrics).

use super::{Descriptor, counter, gauge, histogram, pinning};

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
    &pinning::PINNED_CPUS,
    &pinning::POOL_CPUS,
    &pinning::EXCLUSIVE_OVERLAP_SECONDS_TOTAL,
    &pinning::PIN_OPERATIONS_TOTAL,
    &pinning::PIN_REJECTIONS_TOTAL,
    &pinning::PINNING_ENFORCING,
    &pinning::PINNING_STEPPED_BACK,
    &pinning::PIN_EVENTS_TOTAL,
];

pub(crate) static BUILD_INFO: Descriptor =
    gauge("cpuwarden_build_info", &["version", "revision"], "Always 1, the build that runs.");

pub(crate) static SAMPLE_DURATION_SECONDS: Descriptor = histogram(
    "cpuwarden_sample_duration_seconds",
    "Wall time of each tick, from its first read to the published snapshot.",
);

pub(crate) static SAMPLE_LATENESS_SECONDS: Descriptor =
    histogram("cpuwarden_sample_lateness_seconds", "How long after its deadline each tick began.");

pub(crate) static SERIES_DROPPED_TOTAL: Descriptor = counter(
    "cpuwarden_series_dropped_total",
    &[],
    "Series left out because of the series cap; each page that leaves a series out counts it. Whole metrics are left \
     out, for all containers, in the order of the reference of metrics.",
);

pub(crate) static POD_SOURCE_UP: Descriptor = gauge(
    "cpuwarden_pod_source_up",
    &["source"],
    "1 where the last answer of this source of pod names was good, else 0. The last names live on while it is down.",
);

pub(crate) static POD_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS: Descriptor = gauge(
    "cpuwarden_pod_source_last_success_timestamp_seconds",
    &["source"],
    "Unix time of the last good answer of this source of pod names; absent before the first.",
);

pub(crate) static POD_LISTS_CUT_TOTAL: Descriptor = counter(
    "cpuwarden_pod_lists_cut_total",
    &[],
    "Pod lists of the kubelet that were longer than 128 MiB; the pods behind that have no names.",
);

pub(crate) static APISERVER_REQUESTS_TOTAL: Descriptor = counter(
    "cpuwarden_apiserver_requests_total",
    &[],
    "Requests that left for the API server; stays 0 unless it is the configured source of pod names, or asked who may \
     read the metrics.",
);

pub(crate) static SUBSYSTEM_UP: Descriptor = gauge(
    "cpuwarden_subsystem_up",
    &["subsystem"],
    "1 where this thread or task of the agent finishes its rounds, 0 where it has ended or has not finished one for 10 of \
     its intervals, at least 60 s; /healthz then fails. Only work that is switched on has a series.",
);

pub(crate) static SUBSYSTEM_RESTARTS_TOTAL: Descriptor = counter(
    "cpuwarden_subsystem_restarts_total",
    &["subsystem"],
    "Restarts of a thread of the agent after a panic; the log has the panic.",
);

pub(crate) static PAGE_RENDERS_TOTAL: Descriptor = counter(
    "cpuwarden_page_renders_total",
    &["page"],
    "Times that a page (metrics, cadvisor or advice) was rendered: at most once a sample and format, however often it is \
     read.",
);

pub(crate) static HTTP_CONNECTIONS_CUT_TOTAL: Descriptor = counter(
    "cpuwarden_http_connections_cut_total",
    &["reason"],
    "Connections to the endpoint that were cut or rejected: waiting (too many without a request), peer (too many pages \
     at a time for one address), total (for all) or slow (the page was not read in time).",
);
