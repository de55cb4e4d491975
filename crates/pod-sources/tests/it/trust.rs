//! Certificates accepted as the kubelet's: real TLS with a kubelet that signs its own certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{self, Node, down, node, up, within};
use kubelet_stub::CertificateKind;
use pod_sources::{ConfigError, PodService, SourceName, copy_certificate};
use tls_client::SettingError;

/// A node whose kubelet serves a self-signed certificate, trusted only through its file on the
/// host.
async fn self_signed() -> Node {
    let mut node = node().await;
    // A CA that has not signed it: the cluster's.
    let cluster = support::node().await;
    fs::copy(cluster.stub.ca_file(), node.directory.path().join("cluster.crt"))
        .expect("a copy of the CA");
    node.config.kubelet.ca_file = Some(node.directory.path().join("cluster.crt"));
    node.config.kubelet.host_certificate = Some(node.stub.host_certificate());
    node
}

#[tokio::test]
async fn the_self_signed_certificate_in_the_nodes_file_is_accepted() {
    let node = self_signed().await;
    node.stub.write_host_certificate().unwrap();
    assert_eq!(node.start_known().await.index().pods().len(), 7);
}

#[tokio::test]
async fn a_self_signed_certificate_is_rejected_without_the_nodes_file() {
    let node = self_signed().await;
    let error = down(&node.start(), SourceName::Kubelet).await;
    assert!(
        error.contains("does not trust the kubelet's certificate")
            && error.contains("kubelet.hostCertificate"),
        "{error}"
    );
    assert!(node.stub.requests().is_empty(), "the token went to the process that holds the port");
}

#[tokio::test]
async fn another_certificate_of_the_same_authority_is_not_the_nodes() {
    let node = self_signed().await;
    node.stub.write_host_certificate().unwrap();
    // Like an impostor's certificate: the same names, another key.
    node.stub.rotate_certificate(CertificateKind::Valid).unwrap();
    let error = down(&node.start(), SourceName::Kubelet).await;
    assert!(error.contains("does not trust the kubelet's certificate"), "{error}");
}

#[tokio::test]
async fn the_nodes_file_is_read_again_when_it_is_replaced() {
    let node = self_signed().await;
    node.stub.write_host_certificate().unwrap();
    let pods = node.start_known().await;
    node.stub.rotate_certificate(CertificateKind::NewAuthority).unwrap();
    down(&pods, SourceName::Kubelet).await;
    node.stub.write_host_certificate().unwrap();
    up(&pods, SourceName::Kubelet).await;
}

/// A kubelet never renews a self-signed certificate.
#[tokio::test]
async fn the_nodes_own_certificate_is_accepted_after_its_year() {
    let node = self_signed().await;
    node.stub.rotate_certificate(CertificateKind::Expired).unwrap();
    node.stub.write_host_certificate().unwrap();
    within(node.start().known()).await;
}

#[tokio::test]
async fn a_ca_signed_certificate_may_have_the_nodes_name_or_address() {
    let node = node().await;
    for (kind, name) in
        [(CertificateKind::Valid, "rig-host"), (CertificateKind::AddressOnly, "127.0.0.1")]
    {
        node.stub.rotate_certificate(kind).unwrap();
        within(node.start().known()).await;
        assert!(node.stub.url().contains("127.0.0.1"), "{name}");
    }
    let mut named = node.config.clone();
    named.kubelet.server_name = Some("rig-host".into());
    let pods = PodService::start(&named, &tokio::runtime::Handle::current()).unwrap();
    let error = down(&pods, SourceName::Kubelet).await;
    assert!(error.contains("rig-host"), "a name that was given is the only one: {error}");
}

#[tokio::test]
async fn both_the_authority_and_the_nodes_file_are_trusted() {
    let node = self_signed().await;
    node.stub.write_host_certificate().unwrap();
    let pods = node.start_known().await;
    // The cluster starts to issue the kubelet's certificate.
    fs::copy(node.stub.ca_file(), node.config.kubelet.ca_file.as_ref().unwrap()).unwrap();
    node.stub.rotate_certificate(CertificateKind::Valid).unwrap();
    up(&pods, SourceName::Kubelet).await;
    let seen = node.stub.requests().len();
    within(node.stub.pod_requests(seen + 2)).await;
}

#[tokio::test]
async fn a_file_with_a_key_is_refused_at_the_start_and_never_copied() {
    let mut node = self_signed().await;
    let (certificate, key) = node.stub.client_certificate().unwrap();
    let both = node.directory.path().join("kubelet-server-current.pem");
    fs::write(&both, [fs::read(&certificate).unwrap(), fs::read(&key).unwrap()].concat()).unwrap();
    node.config.kubelet.host_certificate = Some(both.clone());
    let error = PodService::validate(&node.config).unwrap_err();
    assert!(matches!(error, ConfigError::HoldsKey { .. }), "{error}");
    let target = node.directory.path().join("copy");
    assert!(matches!(copy_certificate(&both, &target), Err(ConfigError::HoldsKey { .. })));
    assert!(!target.exists());
}

#[tokio::test]
async fn only_readable_certificates_are_copied() {
    let node = self_signed().await;
    let (from, to) = (node.stub.host_certificate(), node.directory.path().join("copy"));
    assert!(!copy_certificate(&from, &to).unwrap() && !to.exists(), "its absence is no error");
    node.stub.write_host_certificate().unwrap();
    assert!(copy_certificate(&from, &to).unwrap());
    assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
    fs::write(&from, "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(matches!(
        copy_certificate(&from, &to),
        Err(ConfigError::Setting(SettingError::Pem { .. }))
    ));
    assert!(fs::metadata(&to).unwrap().permissions().mode() & 0o200 != 0);
}
