//! Options of the agent: one table for flags, environment variables and the YAML file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::span::Span;
use placement::{Authorization, Profile};

/// Declares each option once. Flag, environment variable and YAML key have the same name, each in its own spelling. A
/// value from a stronger source overrides one from a weaker source.
macro_rules! options {
    ($( $(#[$meta:meta])* $name:ident : $type:ty ),* $(,)?) => {
        /// Every option of `run` and `check-config`, as it was said; `None` where it was not.
        #[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        pub(crate) struct Options {
            $( $(#[$meta])* #[serde(skip_serializing_if = "Option::is_none")] pub(crate) $name: Option<$type>, )*
        }

        impl Options {
            /// `self` where it says something, else `weaker`.
            pub(crate) fn or(self, weaker: Self) -> Self {
                Self { $( $name: self.$name.or(weaker.$name), )* }
            }
        }
    };
}

options! {
    /// Address and port of /metrics, /healthz and /readyz [default: 0.0.0.0:9753]
    #[arg(long, env = "CPUWARDEN_LISTEN", help_heading = "Server", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// How much of each container is exported [default: standard]
    #[arg(long, env = "CPUWARDEN_METRICS", help_heading = "Server", value_name = "PRESET")]
    metrics: MetricsPreset,
    /// Metrics that are exported in addition to the preset's, with all their series: names of the reference, separated by
    /// commas, such as container_threads [default: none]
    #[arg(long, env = "CPUWARDEN_METRICS_ENABLE", help_heading = "Server", value_name = "NAMES")]
    metrics_enable: String,
    /// Metrics of the preset that are not exported [default: none]
    #[arg(long, env = "CPUWARDEN_METRICS_DISABLE", help_heading = "Server", value_name = "NAMES")]
    metrics_disable: String,
    /// Maximum number of series on /metrics; above it whole metrics are left out, in the order of the reference, and
    /// cpuwarden_series_dropped_total counts their series [default: 50000]
    #[arg(long, env = "CPUWARDEN_MAX_SERIES", help_heading = "Server", value_name = "N")]
    max_series: usize,
    /// Also serve /metrics/cadvisor: the kubernetes-mixin's series under cAdvisor's names
    #[arg(long, env = "CPUWARDEN_CADVISOR_METRICS", help_heading = "Server", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cadvisor_metrics: bool,
    /// PEM file of the certificate to serve HTTPS with, read again when it changes [default: HTTP]
    #[arg(long, env = "CPUWARDEN_TLS_CERT", help_heading = "Server", value_name = "FILE")]
    tls_cert: PathBuf,
    /// PEM file of the certificate's key
    #[arg(long, env = "CPUWARDEN_TLS_KEY", help_heading = "Server", value_name = "FILE")]
    tls_key: PathBuf,
    /// Ask the API server for each bearer token whether it may read /metrics; needs --tls-cert
    #[arg(long, env = "CPUWARDEN_METRICS_AUTH", help_heading = "Server", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_auth: bool,

    /// Where the node's cgroup hierarchies are mounted [default: /sys/fs/cgroup]
    #[arg(long, env = "CPUWARDEN_CGROUP_ROOT", help_heading = "Node", value_name = "DIR")]
    cgroup_root: PathBuf,
    /// The node's /proc [default: /proc]
    #[arg(long, env = "CPUWARDEN_PROC_ROOT", help_heading = "Node", value_name = "DIR")]
    proc_root: PathBuf,
    /// The node's /sys [default: /sys]
    #[arg(long, env = "CPUWARDEN_SYS_ROOT", help_heading = "Node", value_name = "DIR")]
    sys_root: PathBuf,
    /// The kubelet's top cgroup below the hierarchy, such as kubepods.slice [default: looked for]
    #[arg(long, env = "CPUWARDEN_KUBEPODS", help_heading = "Node", value_name = "PATH")]
    kubepods: String,
    /// This node's name in Kubernetes [default: the host name]
    #[arg(long, env = "CPUWARDEN_NODE_NAME", help_heading = "Node", value_name = "NAME")]
    node_name: String,

    /// Time between samples, 100ms to 60s [default: 1s]
    #[arg(long, env = "CPUWARDEN_SAMPLE_INTERVAL", help_heading = "Sampling", value_name = "TIME")]
    sample_interval: Span,
    /// Time between walks of the whole tree, which find what inotify has missed [default: 30s, or the
    /// sample interval where that is longer]
    #[arg(long, env = "CPUWARDEN_RECONCILE_INTERVAL", help_heading = "Sampling", value_name = "TIME")]
    reconcile_interval: Span,
    /// CPU that sampling may use, cores; above it the sample interval is doubled [default: 0.02]
    #[arg(long, env = "CPUWARDEN_CPU_BUDGET", help_heading = "Sampling", value_name = "CORES")]
    cpu_budget: f64,
    /// Most cgroup files that are kept open: each costs the agent's own cgroup 5 KiB of kernel memory, and a file that
    /// is opened for each read costs ten times the CPU [default: 12288]
    #[arg(long, env = "CPUWARDEN_MAX_OPEN_FILES", help_heading = "Sampling", value_name = "N")]
    max_open_files: u64,
    /// How long a container is watched before a limit is advised, at least 10s [default: 5m]
    #[arg(long, env = "CPUWARDEN_ADVICE_AFTER", help_heading = "Sampling", value_name = "TIME")]
    advice_after: Span,
    /// On cgroup v1, the rule that turns a container's cpu.shares into the weight that its runtime would have written on
    /// v2. Nodes that still run v1 have older runtimes as a rule, so linear is the default. On v2 the rule is read off
    /// the containers whose CPU request is known, and this one is in force until one shows it [default: linear]
    #[arg(long, env = "CPUWARDEN_WEIGHT_RULE", help_heading = "Sampling", value_name = "RULE")]
    weight_rule: WeightRuleName,

    /// Trace who makes whom wait, by an eBPF program on every context switch [default: auto]
    #[arg(long, env = "CPUWARDEN_SCHED_TRACE", help_heading = "Waits", value_name = "MODE")]
    sched_trace: SchedTraceMode,
    /// Share of the node's CPUs that the trace may take; above it, it samples in bursts or detaches [default: 0.01]
    #[arg(long, env = "CPUWARDEN_SCHED_TRACE_BUDGET", help_heading = "Waits", value_name = "SHARE")]
    sched_trace_budget: f64,

    /// Where pod names come from [default: auto]
    #[arg(long, env = "CPUWARDEN_POD_SOURCE", help_heading = "Pods", value_name = "SOURCE")]
    pod_source: PodSourceName,
    /// The kubelet's HTTPS port [default: https://127.0.0.1:10250]
    #[arg(long, env = "CPUWARDEN_KUBELET_URL", help_heading = "Pods", value_name = "URL")]
    kubelet_url: String,
    /// PEM file of the CA that signed the kubelet's certificate [default: the service account's]
    #[arg(long, env = "CPUWARDEN_KUBELET_CA_FILE", help_heading = "Pods", value_name = "FILE")]
    kubelet_ca_file: PathBuf,
    /// PEM file of the certificate that the kubelet serves with: accepted as it is, read again when it changes, and it
    /// need not exist [default, without --kubelet-ca-file: /var/lib/kubelet/pki/kubelet.crt and
    /// /var/lib/rancher/k3s/agent/serving-kubelet.crt]
    #[arg(long, env = "CPUWARDEN_KUBELET_HOST_CERTIFICATE", help_heading = "Pods", value_name = "FILE")]
    kubelet_host_certificate: PathBuf,
    /// File with the bearer token, read again when it changes [default: the service account's]
    #[arg(long, env = "CPUWARDEN_KUBELET_TOKEN_FILE", help_heading = "Pods", value_name = "FILE")]
    kubelet_token_file: PathBuf,
    /// PEM file of a client certificate, in place of a token
    #[arg(long, env = "CPUWARDEN_KUBELET_CLIENT_CERT_FILE", help_heading = "Pods", value_name = "FILE")]
    kubelet_client_cert_file: PathBuf,
    /// PEM file of the client certificate's key
    #[arg(long, env = "CPUWARDEN_KUBELET_CLIENT_KEY_FILE", help_heading = "Pods", value_name = "FILE")]
    kubelet_client_key_file: PathBuf,
    /// Name that a certificate from a CA must bear [default: the node's name or the host of --kubelet-url]
    #[arg(long, env = "CPUWARDEN_KUBELET_SERVER_NAME", help_heading = "Pods", value_name = "NAME")]
    kubelet_server_name: String,
    /// Do not verify the kubelet's certificate (insecure: an impostor can steal the token and forge the pod list)
    #[arg(long, env = "CPUWARDEN_KUBELET_INSECURE_SKIP_VERIFY", help_heading = "Pods", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kubelet_insecure_skip_verify: bool,
    /// The kubelet's read-only port, such as http://127.0.0.1:10255 [default: not used]
    #[arg(long, env = "CPUWARDEN_KUBELET_READONLY_URL", help_heading = "Pods", value_name = "URL")]
    kubelet_readonly_url: String,
    /// The kubelet's pod-resources socket [default: /var/lib/kubelet/pod-resources/kubelet.sock]
    #[arg(long, env = "CPUWARDEN_POD_RESOURCES_SOCKET", help_heading = "Pods", value_name = "PATH")]
    pod_resources_socket: PathBuf,
    /// The kubelet's Pods API socket (Kubernetes 1.36 and later) [default: /var/lib/kubelet/pods-api/pods-api.sock]
    #[arg(long, env = "CPUWARDEN_PODS_API_SOCKET", help_heading = "Pods", value_name = "PATH")]
    pods_api_socket: PathBuf,
    /// Time between polls of the kubelet while nothing unknown is seen [default: 30s]
    #[arg(long, env = "CPUWARDEN_POD_POLL_INTERVAL", help_heading = "Pods", value_name = "TIME")]
    pod_poll_interval: Span,
    /// Watch this node's pods at the API server when every local source has failed
    #[arg(long, env = "CPUWARDEN_APISERVER_FALLBACK", help_heading = "Pods", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    apiserver_fallback: bool,
    /// The API server [default: what the pod's environment says]
    #[arg(long, env = "CPUWARDEN_APISERVER_URL", help_heading = "Pods", value_name = "URL")]
    apiserver_url: String,
    /// PEM file of the API server's CA [default: the service account's]
    #[arg(long, env = "CPUWARDEN_APISERVER_CA_FILE", help_heading = "Pods", value_name = "FILE")]
    apiserver_ca_file: PathBuf,
    /// File with the token for the API server [default: the service account's]
    #[arg(long, env = "CPUWARDEN_APISERVER_TOKEN_FILE", help_heading = "Pods", value_name = "FILE")]
    apiserver_token_file: PathBuf,

    /// CPUs of their own for pods that ask for them: off, observe (plan and tell, write nothing) or enforce [default: off]
    #[arg(long, env = "CPUWARDEN_PINNING", help_heading = "Pinning", value_name = "MODE")]
    pinning: PinningMode,
    /// CPUs that no pod gets, such as 0-1 [default: none]
    #[arg(long, env = "CPUWARDEN_RESERVED_CPUS", help_heading = "Pinning", value_name = "CPUS")]
    reserved_cpus: String,
    /// Fewest CPUs that pods without their own are left with [default: 2]
    #[arg(long, env = "CPUWARDEN_SHARE_FLOOR", help_heading = "Pinning", value_name = "N")]
    share_floor: usize,
    /// Most CPUs for best-effort pods [default: all but those of LSE pods]
    #[arg(long, env = "CPUWARDEN_BEST_EFFORT_CPUS", help_heading = "Pinning", value_name = "N")]
    best_effort_cpus: usize,
    /// Which NUMA nodes are filled first [default: most-allocated]
    #[arg(long, env = "CPUWARDEN_NUMA_STRATEGY", help_heading = "Pinning", value_name = "STRATEGY")]
    numa_strategy: NumaStrategyName,
    /// Honour the annotation resource-status: any pod's author can then claim any CPU that is free
    #[arg(long, env = "CPUWARDEN_TRUST_RESOURCE_STATUS", help_heading = "Pinning", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    trust_resource_status: bool,
    /// Where the kubelet keeps its CPU manager's state [default: /var/lib/kubelet/cpu_manager_state]
    #[arg(long, env = "CPUWARDEN_CPU_MANAGER_STATE", help_heading = "Pinning", value_name = "PATH")]
    cpu_manager_state: PathBuf,
    /// Namespaces whose pods may be agents that place containers, such as koordlet; beside one, pinning writes nothing
    /// [default: kube-system,koordinator-system]
    #[arg(long, env = "CPUWARDEN_CPUSET_OWNER_NAMESPACES", help_heading = "Pinning", value_name = "NAMES")]
    cpuset_owner_namespaces: String,
    /// Where pinning keeps what survives a restart [default: /var/lib/cpuwarden]
    #[arg(long, env = "CPUWARDEN_STATE_DIR", help_heading = "Pinning", value_name = "DIR")]
    state_dir: PathBuf,
    /// Tell pods' owners by Kubernetes Events what was decided for their pods, at most 10 requests in half a minute
    #[arg(long, env = "CPUWARDEN_EVENTS", help_heading = "Pinning", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    events: bool,
    /// In the file only.
    #[arg(skip)]
    profiles: Vec<Profile>,
    /// In the file only.
    #[arg(skip)]
    authorization: Authorization,

    /// What to log: off, error, warn, info, debug or trace, and per module as in sampler=debug,warn [default: info]
    #[arg(long, env = "CPUWARDEN_LOG", help_heading = "Logging", value_name = "FILTER")]
    log: String,
    /// How to log [default: text]
    #[arg(long, env = "CPUWARDEN_LOG_FORMAT", help_heading = "Logging", value_name = "FORMAT")]
    log_format: LogFormat,
}

/// `--pod-source`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PodSourceName {
    /// Whatever this node offers, without the API server unless asked for
    #[default]
    Auto,
    /// The kubelet's HTTPS port
    Kubelet,
    /// The kubelet's Pods API socket (Kubernetes 1.37)
    #[value(name = "podsapi")]
    PodsApi,
    /// The kubelet's read-only port
    #[value(name = "readonly")]
    ReadOnly,
    /// One watch on the API server
    #[value(name = "apiserver")]
    ApiServer,
    /// None: cgroups carry what their path tells
    None,
}

/// `--weight-rule`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WeightRuleName {
    /// runc up to 1.3.1 and crun up to 1.22: 1024 shares are weight 39
    #[default]
    Linear,
    /// runc from 1.3.2 and crun from 1.23: 1024 shares are weight 100
    Quadratic,
}

/// `--metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetricsPreset {
    /// Usage, limits, throttling and waits for neighbors: what the main alerts read
    Lean,
    /// What the shipped dashboards and alerts read
    #[default]
    Standard,
    /// Everything, the trace's histograms included
    Full,
}

/// `--sched-trace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SchedTraceMode {
    /// Not at all
    Off,
    /// Where the kernel allows it
    #[default]
    Auto,
    /// Or do not start
    On,
}

/// `--pinning`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PinningMode {
    /// No planning, no writing
    #[default]
    Off,
    /// Plan, log and export; write nothing
    Observe,
    /// Write cpusets
    Enforce,
}

/// `--numa-strategy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NumaStrategyName {
    /// The fullest node that fits
    #[default]
    MostAllocated,
    /// The emptiest
    LeastAllocated,
    /// An even split over all nodes
    DistributeEvenly,
}

/// `--log-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// A line of text an event
    #[default]
    Text,
    /// A JSON object an event
    Json,
}
