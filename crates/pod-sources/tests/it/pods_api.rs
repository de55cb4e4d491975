//! The Pods API socket: a watch instead of polls, and the fallback when it breaks.

use crate::support::{Node, down, node, status, up, within};
use bytes::Bytes;
use kubelet_stub::grpc::PodsApiStub;
use kubelet_stub::grpc::core_v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus,
};
use kubelet_stub::grpc::core_v1::{ObjectMeta, Pod, PodSpec, PodStatus};
use kubelet_stub::grpc::pods_v1alpha1::ListPodsResponse;
use kubepods::Lookup;
use pod_sources::{PodSource, Pods, SourceName};
use prost::Message;
use tonic::Code;

const SOURCE: SourceName = SourceName::PodsApi;
const RECORDED: &[u8] = include_bytes!("../../../kubepods/tests/data/kubelet-1.32-pods.pb");

fn recorded() -> Vec<Bytes> {
    ListPodsResponse::decode(RECORDED).expect("the recording is a response").pods
}

fn running(uid: &str, name: &str, id: &str) -> Pod {
    let text = |text: &str| Some(text.to_owned());
    let state = ContainerState { running: Some(ContainerStateRunning {}), terminated: None };
    let status = ContainerStatus {
        name: text("c"),
        container_id: Some(format!("containerd://{id}")),
        state: Some(state),
        ..ContainerStatus::default()
    };
    Pod {
        metadata: Some(ObjectMeta { uid: text(uid), name: text(name), ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            containers: vec![Container { name: text("c"), ..Container::default() }],
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: text("Running"),
            container_statuses: vec![status],
            ..PodStatus::default()
        }),
    }
}

async fn node_with_socket(source: PodSource) -> (Node, PodsApiStub) {
    let mut node = node().await;
    node.config.source = source;
    node.config.pods_api_socket = node.directory.path().join("pods-api.sock");
    let stub = PodsApiStub::start(&node.config.pods_api_socket, recorded())
        .expect("the socket can be made");
    (node, stub)
}

/// Kubernetes has used two paths for the socket.
#[tokio::test]
async fn the_socket_is_found_in_either_place() {
    let (mut node, stub) = node_with_socket(PodSource::PodsApi).await;
    let there = std::mem::replace(
        &mut node.config.pods_api_socket,
        node.directory.path().join("nothing.sock"),
    );
    node.config.pods_api_other_socket = Some(there);
    let pods = node.start_known().await;
    assert_eq!((pods.index().pods().len(), stub.watches_begun()), (7, 1));
}

fn is_named(pods: &Pods, uid: &str, id: &str) -> bool {
    matches!(pods.index().container(uid, id), Lookup::Named { .. })
}

#[tokio::test]
async fn an_existing_socket_replaces_polling() {
    let (node, stub) = node_with_socket(PodSource::Auto).await;
    let pods = node.start_known().await;
    assert_eq!(pods.index().pods().len(), 7);
    stub.apply(&running("u", "new", "1d"));
    within(pods.until(|pods| is_named(pods, "u", "1d"))).await;
    stub.apply(&running("u", "new", "2d"));
    within(pods.until(|pods| is_named(pods, "u", "2d"))).await;
    stub.delete("u");
    within(pods.until(|pods| pods.index().pods().len() == 7)).await;
    assert!(node.stub.requests().is_empty() && stub.watches_begun() == 1);
    assert!(status(&pods, SOURCE).up);
}

#[tokio::test]
async fn a_watch_that_the_kubelet_ends_is_begun_again() {
    let (node, stub) = node_with_socket(PodSource::PodsApi).await;
    let pods = node.start_known().await;
    stub.end_watches();
    let error = down(&pods, SOURCE).await;
    assert!(
        error.contains("WatchPods") && error.contains("watch client channel closed"),
        "{error}"
    );
    assert_eq!(pods.index().pods().len(), 7);
    stub.apply(&running("u", "new", "1d"));
    within(pods.until(|pods| is_named(pods, "u", "1d"))).await;
    assert!(status(&pods, SOURCE).up && stub.watches_begun() == 2);
}

#[tokio::test]
async fn polling_replaces_a_broken_watch_until_it_is_back() {
    let (node, stub) = node_with_socket(PodSource::Auto).await;
    let pods = node.start_known().await;
    stub.set_failure(Some(Code::FailedPrecondition));
    stub.end_watches();
    up(&pods, SourceName::Kubelet).await;
    assert!(!status(&pods, SOURCE).up);
    stub.set_failure(None);
    up(&pods, SOURCE).await;
    let polls = node.stub.requests().len();
    stub.apply(&running("u", "new", "1d"));
    within(pods.until(|pods| is_named(pods, "u", "1d"))).await;
    // At most one poll was in progress when the watch was back.
    assert!(node.stub.requests().len() <= polls + 1);
}

/// A starting kubelet rejects the call; one without the method reports that.
#[tokio::test]
async fn a_failing_socket_is_reported_and_polls_name_the_pods() {
    for code in [Code::FailedPrecondition, Code::Unimplemented] {
        let (node, stub) = node_with_socket(PodSource::Auto).await;
        stub.set_failure(Some(code));
        let pods = node.start_known().await;
        assert!(status(&pods, SOURCE).error.unwrap().contains("ordered fault"));
        assert!(status(&pods, SourceName::Kubelet).up);
    }
}

#[tokio::test]
async fn a_watch_that_stalls_in_its_first_list_does_not_block_polls() {
    let (mut node, stub) = node_with_socket(PodSource::Auto).await;
    node.config.request_timeout = std::time::Duration::from_millis(500);
    stub.set_stuck(true);
    let pods = node.start_known().await;
    assert!(status(&pods, SOURCE).error.unwrap().contains("no answer within 500ms"));
    assert!(status(&pods, SourceName::Kubelet).up && !status(&pods, SOURCE).ever());
    assert_eq!(pods.index().pods().len(), 7);
}

#[tokio::test]
async fn bytes_that_are_no_pod_end_the_watch_and_keep_the_names() {
    let (node, stub) = node_with_socket(PodSource::PodsApi).await;
    let pods = node.start_known().await;
    stub.send_garbage();
    let error = down(&pods, SOURCE).await;
    assert!(error.contains("sent an invalid pod"), "{error}");
    assert_eq!(pods.index().pods().len(), 7);
    up(&pods, SOURCE).await;
}

#[tokio::test]
async fn a_recreated_socket_is_found() {
    let (node, stub) = node_with_socket(PodSource::PodsApi).await;
    let pods = node.start_known().await;
    stub.stop().await.unwrap();
    down(&pods, SOURCE).await;
    assert_eq!(pods.index().pods().len(), 7);
    stub.start_again().unwrap();
    up(&pods, SOURCE).await;
    stub.apply(&running("u", "new", "1d"));
    within(pods.until(|pods| is_named(pods, "u", "1d"))).await;
}

#[tokio::test]
async fn a_missing_socket_fails_only_as_the_only_source() {
    let (node, stub) = node_with_socket(PodSource::PodsApi).await;
    stub.stop().await.unwrap();
    assert!(down(&node.start(), SOURCE).await.contains("no socket"));

    let (node, stub) = node_with_socket(PodSource::Auto).await;
    stub.stop().await.unwrap();
    let pods = node.start_known().await;
    assert!(pods.status().iter().all(|status| status.source != SOURCE));
}
