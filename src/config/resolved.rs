//! Configuration in force: every value is set and checked.

use std::path::PathBuf;
use std::time::Duration;

use console::log::LogFilter;
use creation::variables::InjectionRules;
use endpoint::TlsFiles;
use metrics::catalogue::{CadvisorGroup, Selection};
use pod_sources::{ClientCertificate, KubeletConfig, PodConfig, PodService};
use sampler::ExportedLabel;
use tls_client::apiserver::ApiServerConfig;
use watchdog::errors::chain;

use super::families::{cadvisor_groups, selection};
use super::injection;
use super::pinning::PinningConfig;
use super::pod_labels::exported;
use super::record_dir::DEFAULT_RECORD_SIZE;
use super::values::{check_each, check_values};
use super::{ByteSize, HumanDuration, Options};
use crate::exit::Failure;

const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);

/// The configuration in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// All options, with their values in force.
    pub(crate) options: Options,
    /// Directory and maximum size of the recording; `None` if nothing is recorded.
    pub(crate) record: Option<(PathBuf, ByteSize)>,
    pub(crate) reconcile_interval: Duration,
    /// Metric families on the page.
    pub(crate) selection: Selection,
    /// Groups of series on the page of cAdvisor's names.
    pub(crate) cadvisor: Vec<CadvisorGroup>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) pods: PodConfig,
    /// Labels of pods on container_info.
    pub(crate) pod_labels: Vec<ExportedLabel>,
    pub(crate) pinning: PinningConfig,
    /// `None` if no variables are injected or observed.
    pub(crate) injection: Option<InjectionRules>,
    pub(crate) log: LogFilter,
}

impl Config {
    /// Fills in the defaults that depend on this machine or on other options, and rejects values
    /// that are wrong on any machine.
    ///
    /// # Errors
    /// One line that names the option, with the remedy.
    pub(crate) fn resolve(mut options: Options) -> Result<Self, Failure> {
        check_each(&options)?;
        let tls = tls_files(&options)?;
        check_values(&options)?;
        let record = recording(&mut options)?;
        let pod_labels = exported(options.pod_labels.as_deref())?;
        let pods = pod_config(&options, &pod_labels)?;
        let pinning = PinningConfig::resolve(&options)?;
        let injection = injection::resolve(&options)?;
        let selection = selection(&options)?;
        let cadvisor = cadvisor_groups(&options)?;
        PodService::validate(&pods).map_err(|error| Failure::config(chain(&error)))?;
        let log = LogFilter::parse(&options.log)
            .map_err(|error| Failure::config(format!("--log: {error}")))?;
        let HumanDuration(reconcile_interval) = *options
            .reconcile_interval
            .get_or_insert(HumanDuration(RECONCILE_INTERVAL.max(options.sample_interval.0)));
        options.kubepods = options.kubepods.map(|path| path.trim_matches('/').to_owned());
        options.node_name.clone_from(&pods.node_name);
        options.pod_resources_socket.clone_from(&pods.pod_resources_socket);
        options.pods_api_socket = Some(pods.pods_api_socket.clone());
        options.reserved_cpus = Some(pinning.reserved.to_string());
        options.cpuset_owner_namespaces = pinning.owner_namespaces.join(",");
        Ok(Self {
            options,
            record,
            reconcile_interval,
            selection,
            cadvisor,
            tls,
            pods,
            pod_labels,
            pinning,
            injection,
            log,
        })
    }
}

/// Directory and size of the recording; sets `record_size` to the size in force.
fn recording(options: &mut Options) -> Result<Option<(PathBuf, ByteSize)>, Failure> {
    let given = options.record_size;
    let size = match &options.record {
        Some(record) => record.size("--record-size", given)?,
        None => given.unwrap_or(DEFAULT_RECORD_SIZE),
    };
    options.record_size = Some(size);
    Ok(options.record.as_ref().map(|record| (record.dir.clone(), size)))
}

fn tls_files(options: &Options) -> Result<Option<TlsFiles>, Failure> {
    match (options.tls_cert.clone(), options.tls_key.clone()) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => {
            Err(Failure::config("--tls-cert needs --tls-key; set both or neither".into()))
        }
        (None, Some(_)) => {
            Err(Failure::config("--tls-key needs --tls-cert; set both or neither".into()))
        }
    }
}

fn pod_config(options: &Options, exported: &[ExportedLabel]) -> Result<PodConfig, Failure> {
    let defaults = PodConfig::default();
    let profiles = options
        .profiles
        .iter()
        .flat_map(|profile| profile.selector.match_labels.keys().map(String::as_str));
    let permissions = options.authorization.label_keys();
    let exported = exported.iter().map(|label| &*label.key);
    let injected = options
        .inject_profiles
        .iter()
        .flat_map(|profile| profile.selector.match_labels.keys().map(String::as_str));
    Ok(PodConfig {
        source: options.pod_source,
        node_name: options.node_name.clone().or_else(host_name),
        kubelet: KubeletConfig {
            url: options.kubelet_url.clone(),
            ca_file: options.kubelet_ca_file.clone(),
            host_certificate: options.kubelet_host_certificate.clone(),
            token_file: options.kubelet_token_file.clone(),
            client_certificate: client_certificate(options)?,
            server_name: options.kubelet_server_name.clone(),
            insecure_skip_verify: options.kubelet_insecure_skip_verify,
        },
        readonly_url: options.kubelet_readonly_url.clone(),
        pods_api_other_socket: defaults
            .pods_api_other_socket
            .filter(|_| options.pods_api_socket.is_none()),
        pods_api_socket: options.pods_api_socket.clone().unwrap_or(defaults.pods_api_socket),
        label_keys: profiles
            .chain(permissions)
            .chain(injected)
            .chain(exported)
            .map(str::to_owned)
            .collect(),
        pod_list_limit: defaults.pod_list_limit,
        pod_resources_socket: options
            .pod_resources_socket
            .clone()
            .or(defaults.pod_resources_socket),
        apiserver: ApiServerConfig {
            url: options.apiserver_url.clone(),
            ca_file: options.apiserver_ca_file.clone(),
            token_file: options.apiserver_token_file.clone(),
            ..defaults.apiserver
        },
        apiserver_fallback: options.apiserver_fallback,
        apiserver_fallback_after: defaults.apiserver_fallback_after,
        apiserver_spread: defaults.apiserver_spread,
        poll_interval: options.pod_poll_interval.0,
        names_after: defaults.names_after,
        connect_timeout: defaults.connect_timeout,
        request_timeout: defaults.request_timeout,
    })
}

fn client_certificate(options: &Options) -> Result<Option<ClientCertificate>, Failure> {
    match (&options.kubelet_client_cert_file, &options.kubelet_client_key_file) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate {
            certificate_file: certificate.clone(),
            key_file: key.clone(),
        })),
        (Some(_), None) => Err(Failure::config(
            "--kubelet-client-cert-file needs --kubelet-client-key-file".into(),
        )),
        (None, Some(_)) => Err(Failure::config(
            "--kubelet-client-key-file needs --kubelet-client-cert-file".into(),
        )),
    }
}

/// Default node name. By default a kubelet uses the host's name in lower case.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use pod_sources::PodSource;

    use super::*;
    use crate::config::sources::flag;

    fn none() -> Options {
        Options { pod_source: PodSource::None, ..Options::default() }
    }

    fn refused(options: Options) -> String {
        Config::resolve(options).unwrap_err().to_string()
    }

    #[test]
    fn the_printed_configuration_reads_back_unchanged() {
        let config = Config::resolve(none()).unwrap();
        let text = serde_saphyr::to_string(&config.options).unwrap();
        let again = Config::resolve(serde_saphyr::from_str(&text).unwrap()).unwrap();
        assert_eq!(again.options, config.options);
    }

    #[test]
    fn the_size_after_the_comma_is_that_of_the_recording() {
        let resolve = |yaml: &str| {
            let options: Options = serde_saphyr::from_str(yaml).unwrap();
            Config::resolve(Options { pod_source: PodSource::None, ..options })
        };
        let config = resolve("record: /a,2MiB").unwrap();
        assert_eq!(config.record, Some(("/a".into(), ByteSize(2 << 20))));
        assert_eq!(config.options.record_size, Some(ByteSize(2 << 20)));
        let text = serde_saphyr::to_string(&config.options).unwrap();
        assert_eq!(resolve(&text).unwrap().record, config.record, "{text}");
        let size = |yaml| resolve(yaml).unwrap().options.record_size.unwrap().0;
        assert_eq!([size("record: /a"), size("recordSize: 1MiB")], [250 << 20, 1 << 20]);
        let error = resolve("record: /a,2MiB\nrecordSize: 1MiB").unwrap_err().to_string();
        assert_eq!(error, "--record-size: 1MiB differs from the size in /a,2MiB; set one of them");
    }

    #[test]
    fn permissions_and_profiles_are_printed_as_given() {
        let print =
            |options| serde_saphyr::to_string(&Config::resolve(options).unwrap().options).unwrap();
        assert!(!print(none()).contains("authorization") && !print(none()).contains("profiles"));
        let yaml = "podSource: none\nauthorization: {classes: {LSE: [{namespaces: [trading]}]}, maxExclusiveCpus: 8}\n\
                    profiles: [{name: web, selector: {namespaces: [shop]}, qosClass: LSR}]\n";
        let options: Options = serde_saphyr::from_str(yaml).unwrap();
        let again: Options = serde_saphyr::from_str(&print(options.clone())).unwrap();
        assert_eq!(
            (again.authorization, again.profiles),
            (options.authorization, options.profiles)
        );
    }

    #[test]
    fn a_value_out_of_range_is_rejected_with_the_range() {
        for (key, value, range) in [
            ("sampleInterval", "0s", "100ms to 1m"),
            ("sampleInterval", "99ms", "100ms to 1m"),
            ("sampleInterval", "1m 1s", "100ms to 1m"),
            ("reconcileInterval", "2h", "at most 1h"),
            ("adviceAfter", "9s 999ms", "10s to 7days"),
            ("podPollInterval", "0s", "1s to 1h"),
            ("maxSeries", "0", "at least 1"),
            ("recordSize", "1kB", "at least 1MiB"),
            ("cpuBudget", "0.0", "above 0, at most 1024"),
            ("cpuBudget", "1024.5", "above 0, at most 1024"),
            ("maxOpenFiles", "0", "at least 1"),
            ("schedTraceBudget", "-0.1", "above 0, at most 1"),
            ("schedTraceBudget", "1.5", "above 0, at most 1"),
            ("injectMemoryShare", "0.0", "above 0, at most 0.9"),
            ("injectMemoryShare", "0.91", "above 0, at most 0.9"),
            ("shareFloor", "0", "at least 1"),
            ("bestEffortCpus", "0", "at least 1"),
            ("bestEffortFloor", "1", "at least 2"),
            ("burstPercent", "0", "1 to 99"),
            ("burstPercent", "100", "1 to 99"),
        ] {
            let options = serde_saphyr::from_str(&format!("{key}: {value}")).unwrap();
            let expected = format!("{}: {value} is out of range: expected {range}", flag(key));
            assert_eq!(refused(options), expected);
        }
        for value in [".nan", ".inf"] {
            let options = serde_saphyr::from_str(&format!("cpuBudget: {value}")).unwrap();
            assert_eq!(refused(options), "--cpu-budget: is not a finite number; correct it");
        }
    }

    #[test]
    fn an_interval_at_its_bounds_needs_no_other_option() {
        for millis in [100, 60_000] {
            let interval = Duration::from_millis(millis);
            let config =
                Config::resolve(Options { sample_interval: HumanDuration(interval), ..none() })
                    .unwrap();
            assert_eq!(config.options.sample_interval.0, interval);
        }
    }

    #[test]
    fn a_client_certificate_without_its_key_is_rejected() {
        let error = refused(Options { kubelet_client_cert_file: Some("x".into()), ..none() });
        assert!(error.contains("--kubelet-client-key-file"), "{error}");
    }

    #[test]
    fn labels_that_permissions_select_by_are_kept() {
        let yaml = "authorization: {classes: {LSE: [{matchLabels: {tier: web}}]}}";
        let options =
            Options { pod_source: PodSource::None, ..serde_saphyr::from_str(yaml).unwrap() };
        assert!(pod_config(&options, &[]).unwrap().label_keys.contains("tier"));
    }

    #[test]
    fn an_unreadable_ca_is_named() {
        let ca = Some("/nowhere/ca.crt".into());
        let error = refused(Options { kubelet_ca_file: ca, ..Options::default() });
        assert!(error.contains("/nowhere/ca.crt") && error.contains("--kubelet-ca"), "{error}");
    }
}
