//! The kubelet's HTTPS and read-only ports without faults: requests, credentials and results.

use crate::support::{self, node, one_pod, status, within};
use kubelet_stub::Grant;
use kubepods::{Lookup, Reported};
use pod_sources::{ClientCertificate, ConfigError, PodService, PodSource, Pods, SourceName};
use tls_client::SettingError;
use tokio::runtime::Handle;

#[tokio::test]
async fn pods_are_read_over_verified_tls_by_the_nodes_name() {
    let node = node().await;
    let pods = node.start_known().await;
    let index = pods.index();
    assert_eq!(index.pods().len(), 7);
    let found = index.container(
        "ce091e71-5646-4d84-b82c-13ac3f52f67c",
        "383030601a2c92853083775b11ef2ca736bc5234c5a3f1c0a2382f3a4c8f2d23",
    );
    assert!(matches!(found, Lookup::Named { container, .. } if &*container.name == "hot"));
    assert_eq!(node.stub.requests()[0].path, "/pods");
    let status = status(&pods, SourceName::Kubelet);
    assert!(status.up && status.ever() && status.error.is_none());
    assert_eq!((status.pods, pods.apiserver_requests()), (7, 0));
}

#[tokio::test]
async fn the_read_only_port_needs_neither_token_nor_certificate() {
    let mut node = node().await;
    node.config.source = PodSource::ReadOnly;
    node.config.readonly_url = node.stub.read_only_url();
    node.stub.invalidate_token();
    let pods = node.start_known().await;
    assert_eq!(pods.index().pods().len(), 7);
    assert!(status(&pods, SourceName::ReadOnly).up);
}

#[tokio::test]
async fn a_client_certificate_stands_in_for_the_token() {
    let mut node = node().await;
    node.stub.invalidate_token();
    node.config.kubelet.token_file = None;
    let (certificate_file, key_file) = node.stub.client_certificate().unwrap();
    node.config.kubelet.client_certificate = Some(ClientCertificate { certificate_file, key_file });
    assert_eq!(node.start_known().await.index().pods().len(), 7);
}

#[tokio::test]
async fn auto_falls_back_to_the_read_only_port_and_returns() {
    let mut node = node().await;
    node.config.source = PodSource::Auto;
    node.config.readonly_url = node.stub.read_only_url();
    node.stub.invalidate_token();
    let pods = node.start_known().await;
    assert!(status(&pods, SourceName::Kubelet).error.unwrap().contains("401"));
    assert!(status(&pods, SourceName::ReadOnly).up);
    node.stub.write_token().unwrap();
    support::up(&pods, SourceName::Kubelet).await;
}

#[tokio::test]
async fn without_a_source_there_are_no_requests_and_no_waits() {
    let mut node = node().await;
    node.config.source = PodSource::None;
    let pods = node.start_known().await;
    assert!(pods.status().is_empty() && pods.index().generation() == 0);
    assert!(node.stub.requests().is_empty());
}

#[tokio::test]
async fn the_service_ends_with_its_last_handle() {
    let node = node().await;
    let pods = node.start_known().await;
    drop(pods.clone());
    let before = node.stub.requests().len();
    within(node.stub.pod_requests(before + 1)).await;
    drop(pods);
    node.stub.stop_listening().await;
    node.stub.listen_again().await.unwrap();
    let after = node.stub.requests().len();
    // Three poll intervals: a running service would have sent a request.
    tokio::time::sleep(node.config.poll_interval * 3).await;
    assert_eq!(node.stub.requests().len(), after);
}

#[tokio::test]
async fn an_unchanged_list_creates_no_new_index() {
    let node = node().await;
    let pods = node.start_known().await;
    let generation = pods.index().generation();
    let seen = node.stub.requests().len();
    within(node.stub.pod_requests(seen + 4)).await;
    assert_eq!(pods.index().generation(), generation);
    node.stub.set_pods(one_pod("u", "new", &"ab".repeat(32)));
    within(pods.until(|pods| pods.index().generation() == generation + 1)).await;
}

/// The kubelet removes a force-deleted pod from its list before its cgroups.
#[tokio::test]
async fn a_pod_that_has_left_keeps_its_names_for_a_while() {
    let node = node().await;
    let id = "ab".repeat(32);
    node.stub.set_pods(one_pod("u", "first", &id));
    let pods = node.start_known().await;
    node.stub.set_pods(one_pod("v", "second", &"cd".repeat(32)));
    within(pods.until(|pods| pods.index().pod("v").is_some())).await;
    assert!(
        matches!(pods.index().container("u", &id), Lookup::Named { pod, .. } if &*pod.name == "first")
    );
    assert_eq!(pods.index().pods().len(), 1);
}

/// One call of `ask` requests until the id is listed, although the list first has the pod without
/// it.
#[tokio::test]
async fn an_id_that_lags_behind_its_cgroup_is_asked_for_again() {
    let mut node = node().await;
    node.config.poll_interval = support::TIMEOUT * 100;
    let pods = node.start_known().await;
    let id = "ab".repeat(32);
    let waiting = r#"{"items":[{"metadata":{"uid":"u"},"spec":{"containers":[{"name":"c"}]}}]}"#;
    node.stub.set_pods(waiting);
    pods.ask("u", &id);
    let seen = node.stub.requests().len();
    within(node.stub.pod_requests(seen + 2)).await;
    assert!(matches!(pods.index().container("u", &id), Lookup::Unlisted { .. }));
    node.stub.set_pods(one_pod("u", "late", &id));
    within(pods.until(|pods| matches!(pods.index().container("u", &id), Lookup::Named { .. })))
        .await;
}

/// A batch of new cgroups causes one request, and an id that is never listed does not flood the
/// kubelet.
#[tokio::test]
async fn requests_for_names_are_debounced_and_spaced() {
    let mut node = node().await;
    node.config.poll_interval = support::TIMEOUT * 100;
    let pods = node.start_known().await;
    let seen = node.stub.requests().len();
    for number in 0..100 {
        pods.ask("unknown", &format!("{number:064x}"));
    }
    within(node.stub.pod_requests(seen + 4)).await;
    let requests = node.stub.requests();
    let gaps: Vec<_> = requests[seen..].windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    // Half a second each, minus the delay of the first of two on a busy machine.
    assert!(gaps.iter().all(|gap| gap.as_millis() > 300), "{gaps:?}");
}

/// The sampler runs on a plain thread outside the runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_without_a_runtime_may_read_and_ask() {
    let mut node = node().await;
    node.config.poll_interval = support::TIMEOUT * 100;
    let pods = node.start_known().await;
    let id = "ab".repeat(32);
    node.stub.set_pods(one_pod("u", "late", &id));
    let handle = pods.clone();
    let asker = std::thread::spawn(move || {
        assert_eq!(handle.index().container("u", &"ab".repeat(32)), Lookup::UnknownPod);
        handle.ask("u", &"ab".repeat(32));
    });
    asker.join().unwrap();
    within(pods.until(|pods| matches!(pods.index().container("u", &id), Lookup::Named { .. })))
        .await;
}

#[tokio::test]
async fn invalid_settings_are_reported_at_startup_with_the_remedy() {
    let node = node().await;
    let error = |change: &dyn Fn(&mut pod_sources::PodConfig)| {
        let mut config = node.config.clone();
        change(&mut config);
        let error = PodService::start(&config, &Handle::current()).expect_err("must not start");
        assert_eq!(PodService::validate(&config).unwrap_err().to_string(), error.to_string());
        error
    };
    for url in
        ["", "127.0.0.1:10250", "http://127.0.0.1:1", "https://", "https://x/pods", "https://x?y"]
    {
        let found = error(&|config| config.kubelet.url = url.into());
        assert!(
            matches!(
                found,
                ConfigError::Setting(SettingError::Url { setting: "--kubelet-url", .. })
            ),
            "{url}: {found}"
        );
    }
    let missing = error(&|config| config.kubelet.ca_file = Some("/nonexistent/ca.crt".into()));
    assert!(
        missing.to_string().contains("--kubelet-ca-file: cannot read /nonexistent/ca.crt"),
        "{missing}"
    );
    let no_pem = error(&|config| config.kubelet.ca_file = Some(node.stub.token_file()));
    assert!(
        matches!(no_pem, ConfigError::Setting(SettingError::Pem { what: "certificate", .. })),
        "{no_pem}"
    );
    let name = error(&|config| config.kubelet.server_name = Some("a node".into()));
    assert!(matches!(name, ConfigError::ServerName { .. }), "{name}");
    let identity =
        ClientCertificate { certificate_file: node.stub.ca_file(), key_file: node.stub.ca_file() };
    let key = error(&|config| config.kubelet.client_certificate = Some(identity.clone()));
    assert!(
        matches!(
            key,
            ConfigError::Setting(SettingError::Pem {
                setting: "--kubelet-client-key-file",
                what: "private key",
                ..
            })
        ),
        "{key}"
    );
    let source = error(&|config| config.source = PodSource::ReadOnly);
    assert!(
        matches!(source, ConfigError::Missing { setting: "--kubelet-readonly-url", .. }),
        "{source}"
    );
}

#[tokio::test]
async fn the_cpu_manager_policy_is_the_one_that_the_kubelet_reports() {
    let node = node().await;
    let pods = node.start_known().await;
    assert_eq!(*pods.cpu_manager_policy(), Reported::NotAsked);
    pods.ask_cpu_manager_policy(&node.config, &Handle::current(), unwatched).unwrap();
    until_policy(&pods, |policy| *policy != Reported::NotAsked).await;
    assert_eq!(*pods.cpu_manager_policy(), Reported::Read("none".to_owned()));
}

/// Waits for a policy, which its task publishes without a signal.
async fn until_policy(pods: &Pods, is_wanted: impl Fn(&Reported<String>) -> bool) {
    within(async {
        while !is_wanted(&pods.cpu_manager_policy()) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A heartbeat without a listener.
fn unwatched() -> pod_sources::Beat {
    Box::new(|_| {})
}

#[tokio::test]
async fn the_policy_task_reports_progress_without_answers() {
    let mut node = node().await;
    node.config.poll_interval = std::time::Duration::from_millis(20);
    let pods = node.start_known().await;
    let (beats, mut beaten) = tokio::sync::mpsc::unbounded_channel();
    let watch =
        || -> pod_sources::Beat { Box::new(move |every| beats.send(every).unwrap_or_default()) };
    pods.ask_cpu_manager_policy(&node.config, &Handle::current(), watch).unwrap();
    for _ in 0..3 {
        assert_eq!(within(beaten.recv()).await, Some(node.config.poll_interval));
    }
    node.stub.set_fault(Some(kubelet_stub::Fault::Status(500)));
    for _ in 0..5 {
        assert!(within(beaten.recv()).await.is_some());
    }
    drop(pods);
    // The task ends with the service, and so does its heartbeat.
    within(async { while beaten.recv().await.is_some() {} }).await;
}

#[tokio::test]
async fn a_policy_that_the_kubelet_does_not_confirm_ages_out() {
    let mut node = node().await;
    node.config.poll_interval = std::time::Duration::from_millis(50);
    let pods = node.start_known().await;
    pods.ask_cpu_manager_policy(&node.config, &Handle::current(), unwatched).unwrap();
    until_policy(&pods, |policy| matches!(policy, Reported::Read(_))).await;
    node.stub.set_grants(&[Grant::PODS]);
    until_policy(&pods, |policy| !matches!(policy, Reported::Read(_))).await;
    let policy = pods.cpu_manager_policy();
    assert!(matches!(&*policy, Reported::Failed(why) if why.contains("403")), "{policy:?}");
}
