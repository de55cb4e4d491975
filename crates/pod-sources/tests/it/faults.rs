//! Faults of a kubelet: the last names stay, the status reports the fault, nothing is blocked, and
//! the same service recovers by itself.

use std::time::Duration;

use crate::support::{Node, RECORDED, TIMEOUT, down, node, one_pod, status, up, within};
use kubelet_stub::{CertificateKind, Fault, Grant};
use kubepods::Lookup;
use pod_sources::{Pods, SourceName};

const UID: &str = "ce091e71-5646-4d84-b82c-13ac3f52f67c";
const ID: &str = "383030601a2c92853083775b11ef2ca736bc5234c5a3f1c0a2382f3a4c8f2d23";

fn name(pods: &Pods, uid: &str, id: &str) -> Option<String> {
    match pods.index().container(uid, id) {
        Lookup::Named { pod, container } => Some(format!("{}/{}", pod.name, container.name)),
        _ => None,
    }
}

/// The recorded list with only this pod.
fn only(name: &str) -> Vec<u8> {
    let mut list: serde_json::Value = serde_json::from_slice(RECORDED).expect("JSON");
    list["items"].as_array_mut().expect("a list").retain(|pod| pod["metadata"]["name"] == name);
    list.to_string().into_bytes()
}

/// Asserts that the name known before the fault is still known, and that the status is down.
fn assert_names_live_on(pods: &Pods) {
    assert_eq!(name(pods, UID, ID).as_deref(), Some("throttled/hot"));
    let status = status(pods, SourceName::Kubelet);
    assert!(!status.up && status.ever() && pods.is_known());
}

/// Asserts that the recovered source delivers changes: not only its status is up.
async fn assert_recovers(node: &Node, pods: &Pods) {
    let id = "cd".repeat(32);
    node.stub.set_pods(one_pod("new", "news", &id));
    within(pods.until(|pods| name(pods, "new", &id).is_some())).await;
    up(pods, SourceName::Kubelet).await;
    assert_eq!(status(pods, SourceName::Kubelet).error, None);
}

/// A faulty answer: names stay, the status contains `expected`, and the source recovers.
async fn survives(fault: Fault, expected: &[&str]) {
    let mut node = node().await;
    node.config.request_timeout = Duration::from_millis(1500);
    let pods = node.start_known().await;
    node.stub.set_fault(Some(fault));
    let error = down(&pods, SourceName::Kubelet).await;
    for words in expected {
        assert!(error.contains(words), "{fault:?}: {error}");
    }
    assert_names_live_on(&pods);
    node.stub.set_fault(None);
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_kubelet_that_refuses_connections() {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.stop_listening().await;
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains("onnection refused"), "{error}");
    assert_names_live_on(&pods);
    node.stub.listen_again().await.unwrap();
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_kubelet_that_is_not_there_yet_at_the_start() {
    let node = node().await;
    node.stub.stop_listening().await;
    let pods = node.start();
    down(&pods, SourceName::Kubelet).await;
    assert!(!pods.is_known() && !status(&pods, SourceName::Kubelet).ever());
    node.stub.listen_again().await.unwrap();
    within(pods.known()).await;
}

#[tokio::test]
async fn a_kubelet_that_hangs() {
    survives(Fault::Hang, &["no complete answer within 1.5s"]).await;
}

/// The timeout exceeds the test's limit: a reader that waited for the request would fail the test.
#[tokio::test]
async fn while_a_request_hangs_readers_are_served() {
    let mut node = node().await;
    node.config.request_timeout = TIMEOUT * 10;
    let pods = node.start_known().await;
    node.stub.set_fault(Some(Fault::Hang));
    let seen = node.stub.requests().len();
    within(node.stub.pod_requests(seen + 1)).await;
    assert_eq!(name(&pods, UID, ID).as_deref(), Some("throttled/hot"));
    pods.ask("unknown", ID);
    assert!(status(&pods, SourceName::Kubelet).up);
}

#[tokio::test]
async fn an_answer_of_500() {
    survives(Fault::Status(500), &["status 500", "Internal Server Error"]).await;
}

#[tokio::test]
async fn an_answer_of_429() {
    survives(Fault::Status(429), &["status 429"]).await;
}

#[tokio::test]
async fn garbage() {
    survives(Fault::Garbage, &["invalid pod list", "expected"]).await;
}

#[tokio::test]
async fn json_that_is_no_list() {
    survives(Fault::NotAList, &["not a PodList"]).await;
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_body() {
    survives(Fault::HalfBody, &["GET https://127.0.0.1", "failed"]).await;
}

#[tokio::test]
async fn a_body_that_ends_in_the_middle() {
    survives(Fault::CutBody, &["invalid pod list", "EOF"]).await;
}

#[tokio::test]
async fn a_body_that_comes_too_slowly() {
    survives(Fault::Slow { pieces: 4, pause: TIMEOUT }, &["no complete answer"]).await;
}

#[tokio::test]
async fn a_body_that_never_ends() {
    survives(Fault::Endless, &["GET https://"]).await;
}

#[tokio::test]
async fn a_body_that_comes_slowly_but_in_time_is_no_fault() {
    let node = node().await;
    node.stub.set_fault(Some(Fault::Slow { pieces: 50, pause: Duration::from_millis(2) }));
    let pods = node.start_known().await;
    assert_eq!(pods.index().pods().len(), 7);
}

#[tokio::test]
async fn a_rejected_token() {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.invalidate_token();
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains("401 Unauthorized") && error.contains("token"), "{error}");
    assert_names_live_on(&pods);
    node.stub.write_token().unwrap();
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_token_that_is_not_configured() {
    let mut node = node().await;
    node.config.kubelet.token_file = None;
    let error = down(&node.start(), SourceName::Kubelet).await;
    // In a pod, the service account's token exists without configuration.
    let expected = if std::path::Path::new(tls_client::SERVICE_ACCOUNT_TOKEN).exists() {
        "401"
    } else {
        "no token was sent"
    };
    assert!(error.contains(expected), "{error}");
}

/// The rejected request is repeated at once with the new token from the file: no attempt fails.
#[tokio::test]
async fn a_token_that_is_rotated_while_a_request_is_under_way() {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.rotate_token_under_next_request();
    let rotated = || node.stub.requests().iter().position(|request| request.status == Some(401));
    within(pods.until(|_| rotated().is_some())).await;
    let at = rotated().unwrap();
    within(node.stub.pod_requests(at + 2)).await;
    within(pods.until(|_| node.stub.requests()[at + 1].status.is_some())).await;
    assert_eq!(node.stub.requests()[at + 1].status, Some(200));
    assert!(status(&pods, SourceName::Kubelet).up);
    assert!(node.stub.requests().iter().filter(|request| request.status == Some(401)).count() == 1);
}

#[tokio::test]
async fn a_token_file_that_is_missing_for_a_moment_changes_nothing() {
    let node = node().await;
    let pods = node.start_known().await;
    std::fs::remove_file(node.stub.token_file()).unwrap();
    let seen = node.stub.requests().len();
    within(node.stub.pod_requests(seen + 3)).await;
    assert!(status(&pods, SourceName::Kubelet).up);
}

#[tokio::test]
async fn a_token_file_that_is_missing_at_the_start_is_waited_for() {
    let node = node().await;
    std::fs::remove_file(node.stub.token_file()).unwrap();
    let pods = node.start();
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(
        error.contains(node.stub.token_file().to_str().unwrap()) && error.contains("No such file"),
        "{error}"
    );
    node.stub.write_token().unwrap();
    within(pods.known()).await;
}

#[tokio::test]
async fn a_token_file_that_is_empty_is_named() {
    let node = node().await;
    std::fs::write(node.stub.token_file(), "\n").unwrap();
    let error = down(&node.start(), SourceName::Kubelet).await;
    assert!(error.contains("the token file is empty"), "{error}");
}

/// The remedies for the subresources that the kubelet reports.
#[tokio::test]
async fn a_missing_right_is_named_with_its_rule() {
    let node = node().await;
    node.stub.set_grants(&[Grant::METRICS]);
    let pods = node.start();
    let fine = down(&pods, SourceName::Kubelet).await;
    assert!(
        fine.contains("403 Forbidden (Forbidden (user=system:serviceaccount:kube-system:cpuwarden"),
        "{fine}"
    );
    assert!(
        fine.contains("verb get on the resource nodes/pods") && !fine.contains("nodes/proxy"),
        "{fine}"
    );

    node.stub.set_fine_grained(false);
    let coarse = |pods: &Pods| {
        status(pods, SourceName::Kubelet).error.is_some_and(|error| error.contains("1.33"))
    };
    within(pods.until(coarse)).await;
    let coarse = status(&pods, SourceName::Kubelet).error.unwrap();
    for value in
        ["config.podSource=apiserver", "kubelet.readOnlyPort=10255", "rbac.nodesProxy=true"]
    {
        assert!(coarse.contains(value), "{value}: {coarse}");
    }

    node.stub.set_grants(&[Grant::PROXY]);
    within(pods.known()).await;
}

#[tokio::test]
async fn an_empty_list_while_containers_run_is_not_believed() {
    for empty in [r#"{"items":null}"#, r#"{"items":[]}"#] {
        let node = node().await;
        let pods = node.start_known().await;
        node.stub.set_pods(empty);
        let error = down(&pods, SourceName::Kubelet).await;
        assert!(error.contains("empty although pods run"), "{error}");
        assert_names_live_on(&pods);
        node.stub.set_pods(RECORDED);
        assert_recovers(&node, &pods).await;
    }
}

/// The kubelet removes a static pod from its list before its containers have ended.
#[tokio::test]
async fn an_empty_list_after_the_last_static_pod_went_is_no_failure() {
    let node = node().await;
    node.stub.set_pods(only("static-one-rig-host"));
    let pods = node.start_known().await;
    let uid = pods.index().pods()[0].uid.clone();
    pods.pod_lives(&uid, true);
    node.stub.set_pods(r#"{"items":[]}"#);
    pods.ask("another", ID);
    let before = status(&pods, SourceName::Kubelet).last_success;
    within(pods.until(|pods| status(pods, SourceName::Kubelet).last_success != before)).await;
    assert!(status(&pods, SourceName::Kubelet).up && pods.index().pod(&uid).is_some());
    pods.withdraw(ID);
    pods.pod_lives(&uid, false);
    within(pods.until(|pods| pods.index().pods().is_empty())).await;
    assert!(status(&pods, SourceName::Kubelet).up);
}

/// As after a simultaneous start of agent and kubelet: cgroups exist, but the kubelet does not list
/// pods yet.
#[tokio::test]
async fn an_empty_first_list_is_rejected_while_cgroups_need_names() {
    let node = node().await;
    node.stub.set_pods(r#"{"items":null}"#);
    let pods = node.start();
    pods.ask(UID, ID);
    down(&pods, SourceName::Kubelet).await;
    assert!(!pods.is_known());
    node.stub.set_pods(RECORDED);
    within(pods.known()).await;
    assert_eq!(name(&pods, UID, ID).as_deref(), Some("throttled/hot"));
}

#[tokio::test]
async fn an_empty_node_is_known_to_be_empty() {
    let node = node().await;
    node.stub.set_pods(r#"{"items":[]}"#);
    let pods = node.start_known().await;
    assert!(status(&pods, SourceName::Kubelet).up && pods.index().pods().is_empty());
}

/// Serves a certificate that must be rejected, and then one that must be accepted.
async fn distrusts(kind: CertificateKind, expected: &str, remedy: &str) {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.rotate_certificate(kind).expect("a certificate");
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains(expected) && error.contains(remedy), "{kind:?}: {error}");
    assert_names_live_on(&pods);
    let refused = node.stub.requests().len();
    node.stub.rotate_certificate(CertificateKind::Valid).expect("a certificate");
    assert_eq!(node.stub.requests().len(), refused, "a token was sent to an unverified peer");
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_yet_valid() {
    distrusts(CertificateKind::NotYetValid, "not valid yet", "clock").await;
}

#[tokio::test]
async fn a_certificate_that_has_expired() {
    distrusts(CertificateKind::Expired, "expired", "renew").await;
}

#[tokio::test]
async fn a_certificate_of_another_node() {
    distrusts(
        CertificateKind::OtherName,
        "not valid for name \"rig-host\"",
        "--kubelet-server-name",
    )
    .await;
}

#[tokio::test]
async fn certificate_rotation_within_a_ca_is_no_fault() {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.rotate_certificate(CertificateKind::Valid).unwrap();
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_new_authority_is_trusted_once_its_file_is_there() {
    let node = node().await;
    let pods = node.start_known().await;
    node.stub.rotate_certificate(CertificateKind::NewAuthority).unwrap();
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains("certificate") && error.contains("kubelet.hostCertificate"), "{error}");
    assert_names_live_on(&pods);
    node.stub.write_ca().unwrap();
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn a_ca_file_that_turns_unreadable_is_named_and_comes_back() {
    let node = node().await;
    let pods = node.start_known().await;
    std::fs::write(node.stub.ca_file(), "no certificate").unwrap();
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains("contains no PEM certificate"), "{error}");
    assert_names_live_on(&pods);
    node.stub.write_ca().unwrap();
    assert_recovers(&node, &pods).await;
}

#[tokio::test]
async fn skipping_verification_takes_any_certificate() {
    let mut node = node().await;
    node.stub.rotate_certificate(CertificateKind::OtherName).unwrap();
    node.config.kubelet.ca_file = None;
    node.config.kubelet.insecure_skip_verify = true;
    assert_eq!(node.start_known().await.index().pods().len(), 7);
}

#[tokio::test]
async fn without_any_authority_the_remedy_is_named() {
    let mut node = node().await;
    node.config.kubelet.ca_file = None;
    let error = down(&node.start(), SourceName::Kubelet).await;
    // A machine with a service account or a kubelet has a CA, but it is not the stub's.
    assert!(error.contains("give --kubelet-ca-file") || error.contains("certificate"), "{error}");
}

/// A huge pod does not cost other pods their names.
#[tokio::test]
async fn a_list_above_the_limit_is_truncated_and_counted() {
    let mut node = node().await;
    let mut list: serde_json::Value = serde_json::from_slice(RECORDED).expect("JSON");
    let mut huge = list["items"][0].clone();
    huge["metadata"]["uid"] = "huge".into();
    huge["metadata"]["annotations"] = serde_json::json!({"x": "y".repeat(1 << 20)});
    list["items"].as_array_mut().expect("a list").push(huge);
    node.stub.set_pods(list.to_string());
    node.config.pod_list_limit = 1 << 20;
    let pods = node.start_known().await;
    assert_eq!((pods.index().pods().len(), pods.index().pod("huge")), (7, None));
    assert_eq!(name(&pods, UID, ID).as_deref(), Some("throttled/hot"));
    assert!(status(&pods, SourceName::Kubelet).up && pods.cut_lists() > 0);
}

#[tokio::test]
async fn a_pod_of_too_many_containers_costs_only_itself_its_name() {
    let node = node().await;
    let mut list: serde_json::Value = serde_json::from_slice(RECORDED).expect("JSON");
    let mut huge = list["items"][0].clone();
    huge["metadata"]["uid"] = "huge".into();
    huge["spec"]["containers"] = vec![serde_json::json!({"name": "c"}); 501].into();
    list["items"].as_array_mut().expect("a list").insert(0, huge);
    node.stub.set_pods(list.to_string());
    let pods = node.start_known().await;
    assert_eq!((pods.index().pods().len(), pods.index().pod("huge")), (7, None));
    assert!(status(&pods, SourceName::Kubelet).up && pods.cut_lists() > 0);
}

/// Pod authors choose the labels, as many as fit into 1.5 MiB.
#[tokio::test]
async fn only_the_labels_that_something_selects_on_are_kept() {
    let mut node = node().await;
    let mut list: serde_json::Value = serde_json::from_slice(RECORDED).expect("JSON");
    let labels = serde_json::json!({"tier": "web", "koordinator.sh/qosClass": "LSR", "app": "x", "note": "y"});
    list["items"][0]["metadata"]["labels"] = labels;
    list["items"][0]["metadata"]["annotations"] =
        serde_json::json!({"scheduling.koordinator.sh/resource-spec": "z".repeat(100_000)});
    let name = list["items"][0]["metadata"]["name"].as_str().expect("a name").to_owned();
    node.stub.set_pods(list.to_string());
    node.config.label_keys = ["tier".to_owned()].into();
    let index = node.start_known().await.index();
    let pod = index.pods().iter().find(|pod| *pod.name == *name).expect("it is listed");
    let kept: Vec<_> = pod.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(kept, [("koordinator.sh/qosClass", "LSR"), ("tier", "web")]);
    assert_eq!(pod.pinning.resource_spec.as_ref().map(|text| text.len()), Some(4 << 10));
}
