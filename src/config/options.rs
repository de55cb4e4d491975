//! Options of the agent: one declaration for flag, environment variable, YAML key, default and
//! help.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStr, Resettable};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches as _};
use console::log::LogFormat;
use creation::variables::InjectProfile;
use metrics::catalogue::Preset;
use placement::{Authorization, NumaStrategy, Profile};
use pod_sources::PodSource;
use serde::{Deserialize, Serialize};
use state_dir::ActingMode;

use super::choice;
use super::modes::{BpfCountersMode, GcMode, InjectEnvMode, NriMode, SchedTraceMode, UiMode};
use super::range::Within as _;
use super::record_dir::RECORDING_SIZE;
use super::sources::variable;
use super::{ByteSize, HumanDuration, ListenAddress, RecordDir};

/// Maximum of `--cpu-budget`, cores.
const MAX_CPU_BUDGET: f64 = 1024.0;

/// Every option of `run` and `check-config`. The name of a field is that of the option:
/// `sample_interval` is the flag `--sample-interval`, the variable `CPUWARDEN_SAMPLE_INTERVAL` and
/// the key `sampleInterval`.
#[derive(Debug, Clone, PartialEq, Args, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Options {
    /// Address and port of the page (/), the JSON API, /metrics and the probes /healthz and /readyz.
    /// [::] also accepts IPv4, and becomes 0.0.0.0 where the node has no IPv6
    #[arg(long, help_heading = "Server", value_name = "ADDR:PORT", default_value = "[::]:9753")]
    pub(crate) listen: ListenAddress,
    /// Amount of metrics per container
    #[arg(long, help_heading = "Server", value_name = "PRESET", default_value = "standard")]
    #[arg(value_parser = choice::parser::<Preset>())]
    #[serde(with = "choice")]
    pub(crate) metrics: Preset,
    /// Metrics to export in addition to the preset, with all their series: names of the metrics
    /// reference, separated by commas, e.g. container_threads [default: none]
    #[arg(long, help_heading = "Server", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_enable: Option<String>,
    /// Metrics of the preset to leave out, separated by commas [default: none]
    #[arg(long, help_heading = "Server", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_disable: Option<String>,
    /// Maximum number of series on /metrics; above it the agent drops whole metrics, in the order
    /// of the metrics reference, and counts their series in cpuwarden_series_dropped_total
    #[arg(long, help_heading = "Server", value_name = "N", default_value = "50000")]
    #[arg(within(1_usize..))]
    pub(crate) max_series: usize,
    /// Also serve /metrics/cadvisor: containers' series under cAdvisor's names, as the
    /// kubernetes-mixin uses them
    #[arg(long, help_heading = "Server")]
    pub(crate) cadvisor_metrics: bool,
    /// Groups of series on /metrics/cadvisor, separated by commas: usage, throttling, quota,
    /// spec (period, shares), pressure, memory, threads [default: all]
    #[arg(long, help_heading = "Server", value_name = "GROUPS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cadvisor_groups: Option<String>,
    /// Page at / and JSON API under /api/v1, with the last ten minutes in memory: 13,200 bytes per
    /// container. Off: only /metrics, /api/v1/advice and the probes
    #[arg(long, help_heading = "Server", value_name = "MODE", default_value = "on")]
    pub(crate) ui: UiMode,
    /// Record to this directory, for times before the last ten minutes: each second of the last
    /// hour, and before it means of ten seconds; created if it does not exist. DIR,SIZE also sets
    /// --record-size [default: no recording]
    #[arg(long, help_heading = "Server", value_name = "DIR[,SIZE]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<RecordDir>,
    /// Maximum size of the recording: the oldest part is removed to stay below it [default: 250MiB]
    #[arg(long, help_heading = "Server", value_name = "SIZE")]
    #[arg(within(RECORDING_SIZE))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) record_size: Option<ByteSize>,
    /// PEM file of the certificate for HTTPS, reloaded when it changes [default: HTTP]
    #[arg(long, help_heading = "Server", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, help_heading = "Server", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorize each bearer token for all paths but the probes with the API server; needs
    /// --tls-cert
    #[arg(long, help_heading = "Server")]
    pub(crate) metrics_auth: bool,
    /// Names under which browsers may open the page and the JSON API through a process on the
    /// node, such as a sidecar with a proxy, separated by commas, e.g. cpu.example.com. localhost
    /// and IP addresses are always allowed; other machines and --metrics-auth are not restricted
    /// [default: none]
    #[arg(long, help_heading = "Server", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_hosts: Option<String>,

    /// Mount point of the node's cgroup hierarchies
    #[arg(long, help_heading = "Node", value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub(crate) cgroup_root: PathBuf,
    /// The node's /proc
    #[arg(long, help_heading = "Node", value_name = "DIR", default_value = "/proc")]
    pub(crate) proc_root: PathBuf,
    /// The node's /sys
    #[arg(long, help_heading = "Node", value_name = "DIR", default_value = "/sys")]
    pub(crate) sys_root: PathBuf,
    /// Kubepods root, relative to the hierarchy, e.g. kubepods.slice
    /// [default: detected]
    #[arg(long, help_heading = "Node", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubepods: Option<String>,
    /// This node's name in Kubernetes [default: the host name]
    #[arg(long, help_heading = "Node", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_name: Option<String>,

    /// Time between samples
    #[arg(long, help_heading = "Sampling", value_name = "TIME", default_value = "1s")]
    #[arg(within(millis(100)..=seconds(60)))]
    pub(crate) sample_interval: HumanDuration,
    /// Time between walks of the whole cgroup tree, which find changes that inotify missed
    /// [default: 30s, or the sample interval if that is longer]
    #[arg(long, help_heading = "Sampling", value_name = "TIME")]
    #[arg(within(..=seconds(3600)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconcile_interval: Option<HumanDuration>,
    /// CPU that sampling may use, cores; above it the agent doubles the sample interval
    #[arg(long, help_heading = "Sampling", value_name = "CORES", default_value = "0.02")]
    #[arg(within(share(MAX_CPU_BUDGET)))]
    pub(crate) cpu_budget: f64,
    /// Maximum number of cgroup files that the agent keeps open: each costs 5 KiB of kernel memory
    /// in the agent's own cgroup, but opening a file for each read costs many times the CPU of
    /// reading an open one
    #[arg(long, help_heading = "Sampling", value_name = "N", default_value = "12288")]
    #[arg(within(1_u64..))]
    pub(crate) max_open_files: u64,
    /// Read the CPU counters of all cgroups by one call of an eBPF program instead of from their
    /// files
    #[arg(long, help_heading = "Sampling", value_name = "MODE", default_value = "auto")]
    pub(crate) bpf_counters: BpfCountersMode,
    /// Minimum history of a container before a CPU limit is recommended
    #[arg(long, help_heading = "Sampling", value_name = "TIME", default_value = "5m")]
    #[arg(within(seconds(10)..=seconds(7 * 86_400)))]
    pub(crate) advice_after: HumanDuration,
    /// Read what garbage collection costs Go programs and JVMs; needs root and CAP_SYS_PTRACE
    #[arg(long, help_heading = "Sampling", value_name = "MODE", default_value = "off")]
    pub(crate) gc: GcMode,

    /// Trace waits by cause with an eBPF program on every context switch
    #[arg(long, help_heading = "Waits", value_name = "MODE", default_value = "auto")]
    pub(crate) sched_trace: SchedTraceMode,
    /// Shown where waits are not traced because of --sched-trace=off: how to trace them. The chart
    /// sets it to its value and command [default: none]
    #[arg(long, help_heading = "Waits", value_name = "TEXT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sched_trace_hint: Option<String>,
    /// Share of the node's CPUs that the trace may use; above it, the trace samples in bursts or
    /// detaches
    #[arg(long, help_heading = "Waits", value_name = "SHARE", default_value = "0.01")]
    #[arg(within(share(1.0)))]
    pub(crate) sched_trace_budget: f64,
    /// Report in the condition CPUContention of the Node object whether pods wait for CPUs; needs
    /// the trace and the right to patch nodes/status
    #[arg(long, help_heading = "Waits")]
    pub(crate) node_condition: bool,

    /// Source of pod names
    #[arg(long, help_heading = "Pods", value_name = "SOURCE", default_value = "auto")]
    #[arg(value_parser = choice::parser::<PodSource>())]
    #[serde(with = "choice")]
    pub(crate) pod_source: PodSource,
    /// The kubelet's HTTPS port
    #[arg(
        long,
        help_heading = "Pods",
        value_name = "URL",
        default_value = "https://127.0.0.1:10250"
    )]
    pub(crate) kubelet_url: String,
    /// PEM file of the CA that signed the kubelet's certificate [default: the service account's]
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_ca_file: Option<PathBuf>,
    /// PEM file of the kubelet's serving certificate: trusted as it is, reloaded when it changes,
    /// may be missing [default, without --kubelet-ca-file: /var/lib/kubelet/pki/kubelet.crt and
    /// /var/lib/rancher/k3s/agent/serving-kubelet.crt]
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_host_certificate: Option<PathBuf>,
    /// File with the bearer token, reloaded when it changes [default: the service account's]
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_token_file: Option<PathBuf>,
    /// PEM file of a client certificate, instead of a token
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_client_cert_file: Option<PathBuf>,
    /// PEM file of the client certificate's key
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_client_key_file: Option<PathBuf>,
    /// Required name in a certificate that a CA signed [default: the node's name or the host of
    /// --kubelet-url]
    #[arg(long, help_heading = "Pods", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_server_name: Option<String>,
    /// Do not verify the kubelet's certificate (insecure: an impostor can steal the token and forge
    /// the pod list)
    #[arg(long, help_heading = "Pods")]
    pub(crate) kubelet_insecure_skip_verify: bool,
    /// The kubelet's read-only port, e.g. http://127.0.0.1:10255 [default: not used]
    #[arg(long, help_heading = "Pods", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubelet_readonly_url: Option<String>,
    /// The kubelet's pod-resources socket [default: /var/lib/kubelet/pod-resources/kubelet.sock]
    #[arg(long, help_heading = "Pods", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_resources_socket: Option<PathBuf>,
    /// The kubelet's Pods API socket (Kubernetes 1.36 and later) [default:
    /// /var/lib/kubelet/pods-api/pods-api.sock]
    #[arg(long, help_heading = "Pods", value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pods_api_socket: Option<PathBuf>,
    /// Time between polls of the kubelet while all cgroups have names
    #[arg(long, help_heading = "Pods", value_name = "TIME", default_value = "30s")]
    #[arg(within(seconds(1)..=seconds(3600)))]
    pub(crate) pod_poll_interval: HumanDuration,
    /// Watch this node's pods at the API server if every local source fails
    #[arg(long, help_heading = "Pods")]
    pub(crate) apiserver_fallback: bool,
    /// Labels of pods to export on container_info, separated by commas, e.g. team,app.kubernetes.io/name:
    /// each becomes a label such as label_team, at most 10 [default: none]
    #[arg(long, help_heading = "Pods", value_name = "KEYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_labels: Option<String>,
    /// URL of the API server [default: from the pod's environment]
    #[arg(long, help_heading = "Pods", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) apiserver_url: Option<String>,
    /// PEM file of the API server's CA [default: the service account's]
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) apiserver_ca_file: Option<PathBuf>,
    /// File with the token for the API server [default: the service account's]
    #[arg(long, help_heading = "Pods", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) apiserver_token_file: Option<PathBuf>,

    /// Exclusive CPUs for pods that request them: off, observe (plan and report only) or enforce
    #[arg(long, help_heading = "Pinning", value_name = "MODE", default_value = "off")]
    #[arg(value_parser = choice::parser::<ActingMode>())]
    #[serde(with = "choice")]
    pub(crate) pinning: ActingMode,
    /// CPUs that are never assigned to pods as exclusive CPUs, e.g. 0-1 [default: none]
    #[arg(long, help_heading = "Pinning", value_name = "CPUS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reserved_cpus: Option<String>,
    /// Minimum number of CPUs in the shared pool
    #[arg(long, help_heading = "Pinning", value_name = "N", default_value = "2")]
    #[arg(within(1_usize..))]
    pub(crate) share_floor: usize,
    /// Maximum number of CPUs for best-effort pods [default: all except those of LSE pods]
    #[arg(long, help_heading = "Pinning", value_name = "N")]
    #[arg(within(1_usize..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) best_effort_cpus: Option<usize>,
    /// Order in which NUMA nodes are filled
    #[arg(
        long,
        help_heading = "Pinning",
        value_name = "STRATEGY",
        default_value = "most-allocated"
    )]
    #[arg(value_parser = choice::parser::<NumaStrategy>())]
    #[serde(with = "choice")]
    pub(crate) numa_strategy: NumaStrategy,
    /// Honor the annotation resource-status: every author of a pod can then claim any free CPU
    #[arg(long, help_heading = "Pinning")]
    pub(crate) trust_resource_status: bool,
    /// State file of the kubelet's CPU manager
    #[arg(long, help_heading = "Pinning", value_name = "PATH", default_value = pinning::CPU_MANAGER_STATE)]
    pub(crate) cpu_manager_state: PathBuf,
    /// Namespaces in which the agent looks for other agents that place containers, such as
    /// koordlet; if one runs on the node, pinning writes nothing
    #[arg(
        long,
        help_heading = "Pinning",
        value_name = "NAMES",
        default_value = "kube-system,koordinator-system"
    )]
    pub(crate) cpuset_owner_namespaces: String,
    /// Directory of pinning's state, which must survive restarts
    #[arg(long, help_heading = "Pinning", value_name = "DIR", default_value = state_dir::STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Create Kubernetes Events for the owners of pods: decisions about a pod, and pods that make
    /// it wait; at most 10 requests in 30 seconds
    #[arg(long, help_heading = "Pinning")]
    pub(crate) events: bool,

    /// Rules that give pods a class and a policy; in the file only.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) profiles: Vec<Profile>,
    /// Permissions to request exclusive CPUs; in the file only.
    #[arg(skip)]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) authorization: Authorization,

    /// Connect to the container runtime through the Node Resource Interface (containerd 1.7 and
    /// later, CRI-O 1.26 and later): names of new containers and --inject-env, their CPUs with
    /// --pinning=enforce, and smaller limits with --burst=enforce
    #[arg(long, help_heading = "Environment", value_name = "MODE", default_value = "off")]
    pub(crate) nri: NriMode,
    /// The runtime's NRI socket
    #[arg(long, help_heading = "Environment", value_name = "PATH", default_value = nri::DEFAULT_SOCKET)]
    pub(crate) nri_socket: PathBuf,
    /// Environment variables for new containers, such as GOMAXPROCS and GOMEMLIMIT, from their
    /// limits; needs --nri=on
    #[arg(long, help_heading = "Environment", value_name = "MODE", default_value = "off")]
    pub(crate) inject_env: InjectEnvMode,
    /// Share of the memory limit for GOMEMLIMIT; more if the live set of earlier containers needs
    /// it
    #[arg(long, help_heading = "Environment", value_name = "SHARE", default_value = "0.7")]
    #[arg(within(share(analysis::MAX_HEAP_SHARE)))]
    pub(crate) inject_memory_share: f64,
    /// Threads per requested core for containers without a CPU limit, rounded up, e.g. 2 [default:
    /// GOMAXPROCS only with a limit]
    #[arg(long, help_heading = "Environment", value_name = "FACTOR")]
    #[arg(within(share(MAX_REQUEST_FACTOR)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inject_request_factor: Option<f64>,
    /// Pods whose containers get variables without an annotation; in the file only.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) inject_profiles: Vec<InjectProfile>,

    /// Make best-effort pods yield CPU while latency-sensitive pods wait for them: off, observe
    /// (decide and report only) or enforce
    #[arg(long, help_heading = "Co-location", value_name = "MODE", default_value = "off")]
    #[arg(value_parser = choice::parser::<ActingMode>())]
    #[serde(with = "choice")]
    pub(crate) best_effort: ActingMode,
    /// Minimum number of CPUs that best-effort pods keep
    #[arg(long, help_heading = "Co-location", value_name = "N", default_value = "2")]
    #[arg(within(2_usize..))]
    pub(crate) best_effort_floor: usize,
    /// Let CPU limits burst (cpu.max.burst) where the container's own quota throttles short peaks:
    /// off, observe (decide and report only) or enforce
    #[arg(long, help_heading = "Co-location", value_name = "MODE", default_value = "off")]
    #[arg(value_parser = choice::parser::<ActingMode>())]
    #[serde(with = "choice")]
    pub(crate) burst: ActingMode,
    /// Maximum burst, percent of the quota: a limit can be lowered in place down to this part of
    /// itself without a delay
    #[arg(long, help_heading = "Co-location", value_name = "PERCENT", default_value = "75")]
    #[arg(within(1..=99_u64))]
    pub(crate) burst_percent: u64,

    /// Log level: off, error, warn, info, debug or trace, optionally per module, e.g.
    /// sampler=debug,warn
    #[arg(long, help_heading = "Logging", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
    /// Log format
    #[arg(long, help_heading = "Logging", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

impl Default for Options {
    fn default() -> Self {
        let nothing = Self::augment_args(Command::new("defaults")).no_binary_name(true);
        let defaults = nothing.try_get_matches_from(std::iter::empty::<OsString>());
        defaults
            .and_then(|defaults| Self::from_arg_matches(&defaults))
            .expect("an option is optional or has a default")
    }
}

/// Adds the options to a command: flags and variables without a default, so that only what was
/// given is in the matches.
/// [`Options::update_from_arg_matches`](clap::FromArgMatches::update_from_arg_matches) then
/// overrides weaker sources.
pub(crate) fn augment(command: Command) -> Command {
    Options::augment_args(command)
        .mut_args(|arg| if arg.get_help_heading().is_some() { given(arg) } else { arg })
}

fn given(arg: Arg) -> Arg {
    let arg = match arg
        .get_default_values()
        .first()
        .map(|default| default.to_string_lossy().into_owned())
    {
        Some(default) => {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} [default: {default}]"))
                .default_value(Resettable::<OsStr>::Reset)
        }
        None => arg,
    };
    let variable = variable(arg.get_long().unwrap_or_default());
    let arg = arg.env(variable);
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    // `--events` and `--events=false`: a variable or the file may have turned it on.
    let arg = arg.action(ArgAction::Set).num_args(0..=1).require_equals(true);
    arg.default_missing_value("true").value_name("BOOL")
}

const fn millis(millis: u64) -> HumanDuration {
    HumanDuration(Duration::from_millis(millis))
}

const fn seconds(seconds: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(seconds))
}

/// Maximum number of threads per requested core.
const MAX_REQUEST_FACTOR: f64 = 100.0;

const fn share(most: f64) -> (Bound<f64>, Bound<f64>) {
    (Bound::Excluded(0.0), Bound::Included(most))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
