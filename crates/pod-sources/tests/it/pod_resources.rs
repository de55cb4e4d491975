//! The pod-resources socket: exclusive CPUs, and all its failures.

use crate::support::{self, Node, down, node, one_pod, status, up, within};
use kubelet_stub::grpc::PodResourcesStub;
use kubelet_stub::grpc::podresources_v1::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, PodResources,
};
use pod_sources::{Pods, SourceName};
use tonic::Code;

const SOURCE: SourceName = SourceName::PodResources;

fn pod(name: &str, containers: &[(&str, &[i64])]) -> PodResources {
    let container = |(name, cpus): &(&str, &[i64])| ContainerResources {
        name: (*name).into(),
        cpu_ids: cpus.to_vec(),
        ..ContainerResources::default()
    };
    let containers = containers.iter().map(container).collect();
    PodResources {
        name: name.into(),
        namespace: "default".into(),
        containers,
        ..PodResources::default()
    }
}

/// Part of a recording from a kubelet 1.32 with the static policy: unsorted ids, and pods in the
/// shared pool.
fn recorded() -> Vec<PodResources> {
    vec![
        pod("guaranteed", &[("a", &[2, 3]), ("b", &[1])]),
        pod("mixed", &[("whole", &[4]), ("part", &[])]),
        pod("lsr", &[("main", &[7, 6])]),
        pod("finished", &[("once", &[])]),
    ]
}

async fn node_with_socket() -> (Node, PodResourcesStub) {
    let mut node = node().await;
    let socket = node.directory.path().join("pod-resources.sock");
    let stub = PodResourcesStub::start(&socket).expect("the socket can be made");
    stub.set(&[3, 4, 5, 6, 7, 1, 2], recorded());
    node.config.pod_resources_socket = Some(socket);
    (node, stub)
}

async fn until_exclusive(pods: &Pods, container: (&str, &str), cpus: &[u32]) {
    within(
        pods.until(|pods| pods.exclusive_cpus().of("default", container.0, container.1) == cpus),
    )
    .await;
}

#[tokio::test]
async fn exclusive_cpus_are_known_by_container_and_sorted() {
    let (node, _stub) = node_with_socket().await;
    let pods = node.start();
    until_exclusive(&pods, ("lsr", "main"), &[6, 7]).await;
    let cpus = pods.exclusive_cpus();
    assert_eq!(cpus.allocatable, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(
        (cpus.of("default", "guaranteed", "a"), cpus.of("default", "guaranteed", "b")),
        (&[2, 3][..], &[1][..])
    );
    assert!(
        cpus.of("default", "mixed", "part").is_empty()
            && cpus.of("other", "lsr", "main").is_empty()
    );
    assert_eq!(cpus.all(), [1, 2, 3, 4, 6, 7]);
    assert!(status(&pods, SOURCE).up);
}

#[tokio::test]
async fn drivers_that_have_allocated_devices_are_known() {
    let (node, stub) = node_with_socket().await;
    let mut claimed = pod("claimed", &[("main", &[]), ("helper", &[]), ("shared", &[])]);
    let claim = || ClaimResource { driver_name: "dra.cpu".into(), ..ClaimResource::default() };
    for container in &mut claimed.containers[..2] {
        container.dynamic_resources = vec![DynamicResource {
            claim_resources: vec![claim(), claim()],
            ..DynamicResource::default()
        }];
    }
    stub.set(&[], vec![claimed]);
    let pods = node.start();
    within(pods.until(|pods| pods.exclusive_cpus().drivers.get("dra.cpu") == Some(&2))).await;
    assert_eq!(pods.exclusive_cpus().holders().count(), 0);
    let is_claimant = |name| pods.exclusive_cpus().is_claimant("default", "claimed", name);
    assert_eq!(["main", "helper", "shared"].map(is_claimant), [true, true, false]);
}

/// Field 4 of `PodResources`, part of the published API since 1.36.
#[tokio::test]
async fn cpus_of_a_pod_as_a_whole_are_exclusive_too() {
    let (node, stub) = node_with_socket().await;
    stub.set(&[0, 1], vec![PodResources { cpu_ids: vec![1, 0], ..pod("whole", &[("a", &[1])]) }]);
    let pods = node.start();
    until_exclusive(&pods, ("whole", "a"), &[1]).await;
    assert_eq!(pods.exclusive_cpus().pods[&("default".into(), "whole".into())], [0, 1]);
    assert_eq!(pods.exclusive_cpus().all(), [0, 1]);
}

#[tokio::test]
async fn a_change_of_the_pods_asks_again() {
    let (mut node, stub) = node_with_socket().await;
    node.config.poll_interval = support::TIMEOUT * 100;
    let pods = node.start_known().await;
    until_exclusive(&pods, ("lsr", "main"), &[6, 7]).await;
    stub.set(&[1], vec![pod("new", &[("c", &[1])])]);
    node.stub.set_pods(one_pod("u", "new", &"ab".repeat(32)));
    pods.ask("u", &"ab".repeat(32));
    until_exclusive(&pods, ("new", "c"), &[1]).await;
}

/// A node full of devices, beyond the 4 MiB that gRPC clients accept by default.
#[tokio::test]
async fn an_answer_of_six_mebibytes_is_read() {
    let (node, stub) = node_with_socket().await;
    let devices = ContainerDevices {
        resource_name: "example.com/device".into(),
        device_ids: (0..60_000).map(|number| format!("device-{number:093}")).collect(),
        ..ContainerDevices::default()
    };
    let container = ContainerResources {
        name: "c".into(),
        cpu_ids: vec![5],
        devices: vec![devices],
        ..Default::default()
    };
    stub.set(&[5], vec![PodResources { containers: vec![container], ..pod("large", &[]) }]);
    until_exclusive(&node.start(), ("large", "c"), &[5]).await;
}

#[tokio::test]
async fn a_node_without_the_socket_has_no_such_source() {
    let (node, stub) = node_with_socket().await;
    stub.stop().await.unwrap();
    let pods = node.start_known().await;
    within(pods.until(|pods| pods.status().iter().all(|status| status.source != SOURCE))).await;
    assert_eq!(*pods.exclusive_cpus(), Default::default());
}

#[tokio::test]
async fn a_recreated_socket_is_found() {
    let (node, stub) = node_with_socket().await;
    let pods = node.start();
    until_exclusive(&pods, ("lsr", "main"), &[6, 7]).await;
    stub.stop().await.unwrap();
    let error = down(&pods, SOURCE).await;
    assert!(error.contains("socket no longer exists"), "{error}");
    assert_eq!(pods.exclusive_cpus().of("default", "lsr", "main"), [6, 7]);
    stub.set(&[1], vec![pod("lsr", &[("main", &[1])])]);
    stub.start_again().unwrap();
    until_exclusive(&pods, ("lsr", "main"), &[1]).await;
    up(&pods, SOURCE).await;
}

#[tokio::test]
async fn a_call_that_fails_or_hangs_keeps_the_last_answer() {
    let (mut node, stub) = node_with_socket().await;
    node.config.request_timeout = std::time::Duration::from_millis(1500);
    let pods = node.start();
    until_exclusive(&pods, ("lsr", "main"), &[6, 7]).await;
    stub.set_failure(Some(Code::PermissionDenied));
    let error = down(&pods, SOURCE).await;
    assert!(error.contains("pod-resources List") && error.contains("ordered fault"), "{error}");
    stub.set_failure(None);
    up(&pods, SOURCE).await;
    stub.set_hangs(true);
    let error = down(&pods, SOURCE).await;
    assert!(error.contains("no answer within 1.5s"), "{error}");
    assert_eq!(pods.exclusive_cpus().of("default", "lsr", "main"), [6, 7]);
    stub.set_hangs(false);
    up(&pods, SOURCE).await;
}
