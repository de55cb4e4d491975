//! Makes the certificates of a cluster.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use xtask::cluster::certificates::{DIRECTORY, Purpose, Wanted, wanted};

/// The process that makes the certificates of a cluster.
#[test]
#[ignore = "not a test: cargo xtask cluster runs it"]
fn make() {
    make_in(Path::new(&std::env::var_os(DIRECTORY).unwrap()));
}

fn make_in(directory: &Path) {
    let mut authority = None;
    for one in wanted() {
        let (params, key) = (params(&one), KeyPair::generate().unwrap());
        let certificate = match (&one.purpose, &authority) {
            (Purpose::Server(_) | Purpose::Client, Some(issuer)) => {
                params.signed_by(&key, issuer).unwrap()
            }
            _ => params.self_signed(&key).unwrap(),
        };
        fs::write(directory.join(format!("{}.crt", one.name)), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{}.key", one.name)), key.serialize_pem()).unwrap();
        if one.purpose == Purpose::Authority {
            authority = Some(Issuer::new(params, key));
        }
    }
}

fn params(one: &Wanted) -> CertificateParams {
    let names = if let Purpose::Server(names) = &one.purpose { names.clone() } else { Vec::new() };
    let mut params = CertificateParams::new(names).unwrap();
    // It has a default common name.
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = one.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, one.common_name.as_str());
    params.is_ca = IsCa::ExplicitNoCa;
    match one.purpose {
        Purpose::Authority => {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages =
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        }
        Purpose::Server(_) => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        Purpose::Client => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        Purpose::Key => {}
    }
    params
}

mod tests {
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::ring::default_provider;
    use rustls::server::WebPkiClientVerifier;
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

    use super::*;

    /// The certificate in a file.
    fn read(directory: &Path, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(directory.join(format!("{name}.crt"))).unwrap()
    }

    fn contains(certificate: &CertificateDer<'_>, text: &str) -> bool {
        certificate.windows(text.len()).any(|window| window == text.as_bytes())
    }

    #[test]
    fn the_authority_signs_the_api_server_and_every_client() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        make_in(directory);
        let mut roots = RootCertStore::empty();
        roots.add(read(directory, "ca")).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let servers = servers.build().unwrap();
        let api_server = read(directory, "kube-apiserver");
        for name in ["kubernetes.default.svc", "127.0.0.1", "10.96.0.1"] {
            let name = ServerName::try_from(name).unwrap();
            servers.verify_server_cert(&api_server, &[], &name, &[], UnixTime::now()).unwrap();
        }
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
        let wanted = wanted();
        for client in wanted.iter().filter(|one| one.purpose == Purpose::Client) {
            let certificate = read(directory, client.name);
            clients.verify_client_cert(&certificate, &[], UnixTime::now()).unwrap();
            assert!(contains(&certificate, &client.common_name), "{client:?}");
        }
        assert!(contains(&read(directory, "kubelet"), "system:nodes"), "RBAC's group of nodes");
        assert!(clients.verify_client_cert(&api_server, &[], UnixTime::now()).is_err());
        for one in &wanted {
            PrivateKeyDer::from_pem_file(directory.join(format!("{}.key", one.name))).unwrap();
        }
    }
}
