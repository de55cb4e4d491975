//! Configuration in force: every value is set and checked.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use endpoint::TlsFiles;
use kubelet::{ApiServerConfig, ClientCertificate, KubeletConfig, PodConfig, PodService, PodSource, chain};

use super::values::{check_texts, check_values};
use super::{FamiliesConfig, LogFormat, Options, PinningConfig, PodSourceName, SchedTraceMode, Span, WeightRuleName};
use crate::exit::Failure;
use crate::logging::LogFilter;

const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9753);
const MAX_SERIES: usize = 50_000;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);
/// Default CPU budget of sampling, cores.
const CPU_BUDGET: f64 = 0.02;
/// Default number of open files. It costs 60 MiB of kernel memory, half of the chart's memory limit.
const MAX_OPEN_FILES: u64 = 12_288;
const ADVICE_AFTER: Duration = Duration::from_secs(300);

/// Default CPU budget of the trace, as a share of the node's CPUs.
const SCHED_TRACE_BUDGET: f64 = 0.01;

/// The configuration in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) families: FamiliesConfig,
    pub(crate) max_series: usize,
    pub(crate) cadvisor_metrics: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) metrics_auth: bool,
    pub(crate) cgroup_root: PathBuf,
    pub(crate) proc_root: PathBuf,
    pub(crate) sys_root: PathBuf,
    pub(crate) kubepods: Option<String>,
    pub(crate) sample_interval: Duration,
    pub(crate) reconcile_interval: Duration,
    pub(crate) cpu_budget: f64,
    pub(crate) max_open_files: u64,
    pub(crate) advice_after: Duration,
    pub(crate) weight_rule: WeightRuleName,
    pub(crate) sched_trace: SchedTraceMode,
    pub(crate) sched_trace_budget: f64,
    pub(crate) pods: PodConfig,
    /// Whether the node's name was configured, instead of taken from the host.
    pub(crate) node_name_said: bool,
    pub(crate) pinning: PinningConfig,
    pub(crate) log: LogFilter,
    pub(crate) log_format: LogFormat,
}

impl Config {
    /// Fills in the defaults and rejects values that are wrong on any machine.
    ///
    /// # Errors
    /// One line that names the option, with the remedy.
    pub(crate) fn resolve(options: Options) -> Result<Self, Failure> {
        check_texts(&options)?;
        let pods = pod_config(&options)?;
        let pinning = PinningConfig::resolve(&options)?;
        let families = FamiliesConfig::resolve(&options)?;
        PodService::validate(&pods).map_err(|error| Failure::config(chain(&error)))?;
        let span = |said: Option<Span>, default| said.map_or(default, |span| span.0);
        let directory = |said: Option<PathBuf>, default: &str| said.unwrap_or_else(|| default.into());
        let sample_interval = span(options.sample_interval, SAMPLE_INTERVAL);
        let config = Self {
            listen: options.listen.unwrap_or(LISTEN),
            families,
            max_series: options.max_series.unwrap_or(MAX_SERIES),
            cadvisor_metrics: options.cadvisor_metrics.unwrap_or(false),
            tls: tls_files(options.tls_cert, options.tls_key)?,
            metrics_auth: options.metrics_auth.unwrap_or(false),
            cgroup_root: directory(options.cgroup_root, "/sys/fs/cgroup"),
            proc_root: directory(options.proc_root, "/proc"),
            sys_root: directory(options.sys_root, "/sys"),
            kubepods: options.kubepods.map(|path| path.trim_matches('/').to_owned()),
            sample_interval,
            reconcile_interval: span(options.reconcile_interval, RECONCILE_INTERVAL.max(sample_interval)),
            cpu_budget: options.cpu_budget.unwrap_or(CPU_BUDGET),
            max_open_files: options.max_open_files.unwrap_or(MAX_OPEN_FILES),
            advice_after: span(options.advice_after, ADVICE_AFTER),
            weight_rule: options.weight_rule.unwrap_or_default(),
            sched_trace: options.sched_trace.unwrap_or_default(),
            sched_trace_budget: options.sched_trace_budget.unwrap_or(SCHED_TRACE_BUDGET),
            pods,
            node_name_said: options.node_name.is_some(),
            pinning,
            log: log_filter(options.log.as_deref().unwrap_or("info"))?,
            log_format: options.log_format.unwrap_or_default(),
        };
        check_values(&config)?;
        Ok(config)
    }

    /// The values in force, in the form of the configuration file.
    pub(crate) fn to_options(&self) -> Options {
        let kubelet = &self.pods.kubelet;
        let certificate = kubelet.client_certificate.as_ref();
        let families = self.families.to_options();
        Options {
            listen: Some(self.listen),
            metrics: families.metrics,
            metrics_enable: families.metrics_enable,
            metrics_disable: families.metrics_disable,
            max_series: Some(self.max_series),
            cadvisor_metrics: Some(self.cadvisor_metrics),
            tls_cert: self.tls.as_ref().map(|files| files.certificate.clone()),
            tls_key: self.tls.as_ref().map(|files| files.key.clone()),
            metrics_auth: Some(self.metrics_auth),
            cgroup_root: Some(self.cgroup_root.clone()),
            proc_root: Some(self.proc_root.clone()),
            sys_root: Some(self.sys_root.clone()),
            kubepods: self.kubepods.clone(),
            node_name: self.pods.node_name.clone(),
            sample_interval: Some(Span(self.sample_interval)),
            reconcile_interval: Some(Span(self.reconcile_interval)),
            cpu_budget: Some(self.cpu_budget),
            max_open_files: Some(self.max_open_files),
            advice_after: Some(Span(self.advice_after)),
            weight_rule: Some(self.weight_rule),
            sched_trace: Some(self.sched_trace),
            sched_trace_budget: Some(self.sched_trace_budget),
            pod_source: Some(source_name(self.pods.source)),
            kubelet_url: Some(kubelet.url.clone()),
            kubelet_ca_file: kubelet.ca_file.clone(),
            kubelet_host_certificate: kubelet.host_certificate.clone(),
            kubelet_token_file: kubelet.token_file.clone(),
            kubelet_client_cert_file: certificate.map(|files| files.certificate_file.clone()),
            kubelet_client_key_file: certificate.map(|files| files.key_file.clone()),
            kubelet_server_name: kubelet.server_name.clone(),
            kubelet_insecure_skip_verify: Some(kubelet.insecure_skip_verify),
            kubelet_readonly_url: self.pods.readonly_url.clone(),
            pod_resources_socket: self.pods.pod_resources_socket.clone(),
            pods_api_socket: Some(self.pods.pods_api_socket.clone()),
            pod_poll_interval: Some(Span(self.pods.poll_interval)),
            apiserver_fallback: Some(self.pods.apiserver.fallback),
            apiserver_url: self.pods.apiserver.url.clone(),
            apiserver_ca_file: self.pods.apiserver.ca_file.clone(),
            apiserver_token_file: self.pods.apiserver.token_file.clone(),
            log: Some(self.log.to_string()),
            log_format: Some(self.log_format),
            ..self.pinning.to_options()
        }
    }
}

fn log_filter(text: &str) -> Result<LogFilter, Failure> {
    LogFilter::parse(text).map_err(|error| Failure::config(format!("--log: {error}")))
}

fn tls_files(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<TlsFiles>, Failure> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => Err(Failure::config("--tls-cert needs --tls-key; give both, or neither".into())),
        (None, Some(_)) => Err(Failure::config("--tls-key needs --tls-cert; give both, or neither".into())),
    }
}

fn pod_config(options: &Options) -> Result<PodConfig, Failure> {
    let defaults = PodConfig::default();
    let server_name = options.kubelet_server_name.clone();
    let profiles = options.profiles.iter().flatten();
    let profiles = profiles.flat_map(|profile| profile.selector.match_labels.keys().map(String::as_str));
    let permissions = options.authorization.iter().flat_map(placement::Authorization::label_keys);
    Ok(PodConfig {
        source: source(options.pod_source.unwrap_or_default()),
        node_name: options.node_name.clone().or_else(host_name),
        kubelet: KubeletConfig {
            url: options.kubelet_url.clone().unwrap_or(defaults.kubelet.url),
            ca_file: options.kubelet_ca_file.clone(),
            host_certificate: options.kubelet_host_certificate.clone(),
            token_file: options.kubelet_token_file.clone(),
            client_certificate: client_certificate(options)?,
            server_name,
            insecure_skip_verify: options.kubelet_insecure_skip_verify.unwrap_or(false),
        },
        readonly_url: options.kubelet_readonly_url.clone(),
        pods_api_other_socket: defaults.pods_api_other_socket.filter(|_| options.pods_api_socket.is_none()),
        pods_api_socket: options.pods_api_socket.clone().unwrap_or(defaults.pods_api_socket),
        label_keys: profiles.chain(permissions).map(str::to_owned).collect(),
        pod_list_limit: defaults.pod_list_limit,
        pod_resources_socket: options.pod_resources_socket.clone().or(defaults.pod_resources_socket),
        apiserver: ApiServerConfig {
            fallback: options.apiserver_fallback.unwrap_or(false),
            url: options.apiserver_url.clone(),
            ca_file: options.apiserver_ca_file.clone(),
            token_file: options.apiserver_token_file.clone(),
            ..defaults.apiserver
        },
        poll_interval: options.pod_poll_interval.map_or(defaults.poll_interval, |span| span.0),
        connect_timeout: defaults.connect_timeout,
        request_timeout: defaults.request_timeout,
    })
}

fn client_certificate(options: &Options) -> Result<Option<ClientCertificate>, Failure> {
    match (&options.kubelet_client_cert_file, &options.kubelet_client_key_file) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(ClientCertificate { certificate_file: certificate.clone(), key_file: key.clone() }))
        }
        (Some(_), None) => Err(Failure::config("--kubelet-client-cert-file needs --kubelet-client-key-file".into())),
        (None, Some(_)) => Err(Failure::config("--kubelet-client-key-file needs --kubelet-client-cert-file".into())),
    }
}

/// Default node name. By default a kubelet uses the host's name in lower case.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

fn source(name: PodSourceName) -> PodSource {
    match name {
        PodSourceName::Auto => PodSource::Auto,
        PodSourceName::Kubelet => PodSource::Kubelet,
        PodSourceName::PodsApi => PodSource::PodsApi,
        PodSourceName::ReadOnly => PodSource::ReadOnly,
        PodSourceName::ApiServer => PodSource::ApiServer,
        PodSourceName::None => PodSource::None,
    }
}

fn source_name(source: PodSource) -> PodSourceName {
    match source {
        PodSource::Auto => PodSourceName::Auto,
        PodSource::Kubelet => PodSourceName::Kubelet,
        PodSource::PodsApi => PodSourceName::PodsApi,
        PodSource::ReadOnly => PodSourceName::ReadOnly,
        PodSource::ApiServer => PodSourceName::ApiServer,
        PodSource::None => PodSourceName::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Options {
        Options { pod_source: Some(PodSourceName::None), ..Options::default() }
    }

    fn refused(options: Options) -> String {
        Config::resolve(options).unwrap_err().to_string()
    }

    #[test]
    fn what_is_in_force_reads_back_as_itself() {
        let config = Config::resolve(none()).unwrap();
        let text = serde_saphyr::to_string(&config.to_options()).unwrap();
        let again = Config::resolve(serde_saphyr::from_str(&text).unwrap()).unwrap();
        assert_eq!(again.to_options(), config.to_options());
    }

    #[test]
    fn an_interval_out_of_bounds_is_refused() {
        for millis in [0, 99, 60_001] {
            let said = Some(Span(Duration::from_millis(millis)));
            let error = refused(Options { sample_interval: said, ..none() });
            assert!(error.contains("--sample-interval"), "{error}");
        }
    }

    #[test]
    fn an_interval_at_its_bounds_needs_no_other_option() {
        for millis in [100, 60_000] {
            let interval = Duration::from_millis(millis);
            let config = Config::resolve(Options { sample_interval: Some(Span(interval)), ..none() }).unwrap();
            assert_eq!(config.sample_interval, interval);
        }
    }

    #[test]
    fn too_short_a_watch_for_advice_is_refused() {
        let error = refused(Options { advice_after: Some(Span(Duration::from_millis(9_999))), ..none() });
        assert!(error.contains("--advice-after"), "{error}");
    }

    #[test]
    fn a_budget_that_is_no_share_is_refused() {
        for budget in [0.0, -0.1, 1.5, f64::NAN] {
            let error = refused(Options { sched_trace_budget: Some(budget), ..none() });
            assert!(error.contains("--sched-trace-budget"), "{error}");
        }
    }

    #[test]
    fn half_a_client_certificate_is_refused() {
        let error = refused(Options { kubelet_client_cert_file: Some("x".into()), ..none() });
        assert!(error.contains("--kubelet-client-key-file"), "{error}");
    }

    #[test]
    fn labels_that_permissions_select_by_are_kept() {
        let yaml = "authorization: {classes: {LSE: [{matchLabels: {tier: web}}]}}";
        let options = Options { pod_source: Some(PodSourceName::None), ..serde_saphyr::from_str(yaml).unwrap() };
        assert!(pod_config(&options).unwrap().label_keys.contains("tier"));
    }

    #[test]
    fn an_unreadable_ca_is_named() {
        let ca = Some("/nowhere/ca.crt".into());
        let error = refused(Options { kubelet_ca_file: ca, ..Options::default() });
        assert!(error.contains("/nowhere/ca.crt") && error.contains("--kubelet-ca"), "{error}");
    }
}
