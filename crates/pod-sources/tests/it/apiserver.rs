//! The API server as a source: content and rate of the requests, and behavior of the watch with
//! typical API server faults.

use std::time::Duration;

use crate::support::{Node, down, node, status, up, within};
use kubelet_stub::apiserver::ApiServerStub;
use kubepods::Lookup;
use pod_sources::{ConfigError, PodService, PodSource, Pods, SourceName};
use serde_json::{Value, json};
use tls_client::SettingError;
use tokio::runtime::Handle;

const SOURCE: SourceName = SourceName::ApiServer;
const MIRROR: &[u8] = include_bytes!("../../../kubepods/tests/data/apiserver-1.32-mirror-pod.json");

fn pod(uid: &str, id: &str) -> Value {
    json!({
        "metadata": {"name": format!("pod-{uid}"), "namespace": "n", "uid": uid},
        "spec": {"nodeName": "rig-host", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "containerID": format!("containerd://{id}"), "state": {"running": {}}}]},
    })
}

/// A node whose only source is an API server with one pod, with UID and container id `a`.
async fn cluster() -> (Node, ApiServerStub) {
    let mut node = node().await;
    let server = ApiServerStub::start(node.directory.path()).await.expect("the stub starts");
    server.apply(pod("a", "a"));
    node.config.source = PodSource::ApiServer;
    node.config.apiserver.url = Some(server.url());
    node.config.apiserver.ca_file = Some(server.ca_file());
    node.config.apiserver.token_file = Some(server.token_file());
    (node, server)
}

async fn until_named(pods: &Pods, uid: &str) {
    within(pods.until(|pods| matches!(pods.index().container(uid, uid), Lookup::Named { .. })))
        .await;
}

/// Waits until `count` requests have arrived.
async fn requests(server: &ApiServerStub, count: usize) -> Vec<String> {
    within(server.arrived(count)).await;
    server.requests()
}

fn has(request: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| request.split(['?', '&']).any(|present| present == *part))
}

#[tokio::test]
async fn one_list_from_the_cache_and_one_watch_with_bookmarks_is_all() {
    let (node, server) = cluster().await;
    let pods = node.start_known().await;
    let seen = requests(&server, 2).await;
    assert!(
        has(
            &seen[0],
            &["/api/v1/pods", "fieldSelector=spec.nodeName%3Drig-host", "resourceVersion=0"]
        ),
        "{seen:?}"
    );
    let watch = [
        "watch=true",
        "fieldSelector=spec.nodeName%3Drig-host",
        "allowWatchBookmarks=true",
        "resourceVersion=101",
    ];
    assert!(has(&seen[1], &watch), "{seen:?}");
    server.apply(pod("b", "b"));
    until_named(&pods, "b").await;
    server.delete("a");
    within(pods.until(|pods| pods.index().pods().len() == 1)).await;
    assert_eq!((server.requests().len(), pods.apiserver_requests()), (2, 2));
    assert!(status(&pods, SOURCE).up && node.stub.requests().is_empty());
}

#[tokio::test]
async fn a_static_pod_is_found_by_its_hash() {
    let (node, server) = cluster().await;
    let mirror: Value = serde_json::from_slice(MIRROR).unwrap();
    server.apply(mirror["items"][0].clone());
    let pods = node.start_known().await;
    assert!(pods.index().pod("6ec3ffcddcf927fb68b511fad21604ab").is_some());
}

#[tokio::test]
async fn a_watch_resumes_at_its_last_bookmark() {
    let (node, server) = cluster().await;
    let pods = node.start_known().await;
    requests(&server, 2).await;
    server.bookmark();
    server.apply(pod("b", "b"));
    server.bookmark();
    until_named(&pods, "b").await;
    server.end_watches();
    let seen = requests(&server, 3).await;
    assert!(has(&seen[2], &["watch=true", "resourceVersion=104"]), "{seen:?}");
    server.apply(pod("c", "c"));
    until_named(&pods, "c").await;
    assert_eq!(pods.apiserver_requests(), 3);
}

#[tokio::test]
async fn after_410_gone_it_lists_again_and_drops_removed_pods() {
    let (node, server) = cluster().await;
    server.apply(pod("b", "b"));
    let pods = node.start_known().await;
    requests(&server, 2).await;
    server.expire_watches();
    server.delete("a");
    within(pods.until(|pods| pods.index().pods().len() == 1)).await;
    until_named(&pods, "b").await;
    let seen = requests(&server, 4).await;
    assert!(!has(&seen[2], &["watch=true"]) && has(&seen[3], &["watch=true"]), "{seen:?}");
    assert!(status(&pods, SOURCE).up);
}

#[tokio::test]
async fn a_watch_rejected_with_gone_lists_again() {
    let (node, server) = cluster().await;
    server.refuse_watches_as_gone(1);
    let pods = node.start_known().await;
    requests(&server, 4).await;
    server.apply(pod("b", "b"));
    until_named(&pods, "b").await;
}

/// 429 with Retry-After: the client waits for the given time, and every attempt is counted.
#[tokio::test]
async fn retry_after_is_honored_and_every_attempt_counted() {
    let (node, server) = cluster().await;
    // Longer than the first backoff, whatever its jitter.
    server.throttle(1, 5);
    let begun = std::time::Instant::now();
    let pods = node.start_known().await;
    assert!(begun.elapsed() >= Duration::from_secs(5), "asked again after {:?}", begun.elapsed());
    let seen = requests(&server, 3).await;
    assert_eq!((seen.len() as u64, pods.apiserver_requests()), (3, 3));
}

#[tokio::test]
async fn an_api_server_outage_is_reported_and_recovers() {
    let (node, server) = cluster().await;
    let pods = node.start_known().await;
    requests(&server, 2).await;
    server.stop_listening().await;
    let error = down(&pods, SOURCE).await;
    assert!(
        error.contains("API server https://127.0.0.1") && error.contains("onnection refused"),
        "{error}"
    );
    assert_eq!(pods.index().pods().len(), 1);
    server.listen_again().await.unwrap();
    server.apply(pod("b", "b"));
    until_named(&pods, "b").await;
    up(&pods, SOURCE).await;
}

#[tokio::test]
async fn a_token_that_is_missing_is_waited_for() {
    let (mut node, server) = cluster().await;
    let missing = node.directory.path().join("later");
    node.config.apiserver.token_file = Some(missing.clone());
    let pods = node.start();
    down(&pods, SOURCE).await;
    assert_eq!(pods.apiserver_requests(), 0);
    std::fs::copy(server.token_file(), missing).unwrap();
    within(pods.known()).await;
}

/// The rate limit applies however often the watch breaks.
#[tokio::test]
async fn a_watch_that_breaks_again_and_again_does_not_become_a_flood() {
    let (node, server) = cluster().await;
    let pods = node.start_known().await;
    for count in 2..10 {
        requests(&server, count).await;
        server.end_watches();
    }
    requests(&server, 10).await;
    server.end_watches();
    // Each of the earlier requests took milliseconds. Nothing reports a request that does not come.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((server.requests().len(), pods.apiserver_requests()), (10, 10));
}

#[tokio::test]
async fn without_opt_in_the_api_server_gets_no_requests() {
    let (mut node, server) = cluster().await;
    node.config.source = PodSource::Auto;
    node.config.apiserver_fallback_after = Duration::from_millis(100);
    node.stub.stop_listening().await;
    let pods = node.start();
    down(&pods, SourceName::Kubelet).await;
    let seen = pods.status();
    assert!(seen.iter().all(|status| status.source != SOURCE), "{seen:?}");
    assert!(server.requests().is_empty() && pods.apiserver_requests() == 0);
}

#[tokio::test]
async fn as_a_fallback_it_stands_in_while_the_kubelet_is_down() {
    let (mut node, server) = cluster().await;
    node.config.source = PodSource::Auto;
    node.config.apiserver_fallback = true;
    node.config.apiserver_fallback_after = Duration::from_millis(500);
    let pods = node.start_known().await;
    assert_eq!(pods.index().pods().len(), 7);
    assert_eq!(pods.apiserver_requests(), 0, "the kubelet answers");
    node.stub.stop_listening().await;
    until_named(&pods, "a").await;
    assert!(status(&pods, SOURCE).up && pods.apiserver_requests() >= 1);

    node.stub.listen_again().await.unwrap();
    within(pods.until(|pods| pods.index().pods().len() == 7)).await;
    let after = status(&pods, SOURCE);
    assert!(!after.up && after.error.is_none() && after.ever(), "{after:?}");
    let asked = server.requests().len();
    server.apply(pod("b", "b"));
    up(&pods, SourceName::Kubelet).await;
    assert_eq!((server.requests().len(), pods.index().pods().len()), (asked, 7));
}

#[tokio::test]
async fn missing_settings_are_reported_at_startup() {
    let (node, _server) = cluster().await;
    let error = |change: &dyn Fn(&mut pod_sources::PodConfig)| {
        let mut config = node.config.clone();
        change(&mut config);
        PodService::start(&config, &Handle::current()).expect_err("must not start")
    };
    let node_name = error(&|config| config.node_name = None);
    assert!(
        matches!(node_name, ConfigError::Missing { setting: "--node-name", .. }),
        "{node_name}"
    );
    let url = error(&|config| config.apiserver.url = Some("http://x".into()));
    assert!(
        matches!(url, ConfigError::Setting(SettingError::Url { setting: "--apiserver-url", .. })),
        "{url}"
    );
    let ca = error(&|config| config.apiserver.ca_file = Some("/nonexistent".into()));
    assert!(
        matches!(
            ca,
            ConfigError::Setting(SettingError::File { setting: "--apiserver-ca-file", .. })
        ),
        "{ca}"
    );
}
