//! Certificates like a kubelet's: `CN=<node>@<epoch>`, signed by the stub's own CA.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::StubError;

/// Kind of certificate that the stub presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// Has the node's name and is valid now.
    Valid,
    /// From a new CA, as after the kubelet has generated a new self-signed pair.
    NewAuthority,
    /// Becomes valid in the future, as on a node with a slow clock.
    NotYetValid,
    /// Has expired.
    Expired,
    /// Has another node's name.
    OtherName,
    /// No name, only the address 127.0.0.1.
    AddressOnly,
}

/// A server certificate as it is presented.
pub(crate) struct Issued {
    pub(crate) tls: Arc<ServerConfig>,
    /// The certificate and then its CA's, as in the kubelet's `kubelet.crt`.
    pub(crate) pem: String,
}

/// CA of one node.
#[derive(Debug)]
pub(crate) struct Authority {
    node_name: String,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    pub(crate) fn new(node_name: &str) -> Result<Self, StubError> {
        let failed = |source| StubError::Certificate { name: node_name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, format!("{node_name}-ca@{}", epoch()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let own = params.self_signed(&key).map_err(failed)?;
        let (certificate, pem) = (own.der().clone(), own.pem());
        Ok(Self {
            node_name: node_name.to_owned(),
            issuer: Issuer::new(params, key),
            certificate,
            pem,
        })
    }

    /// The CA's own certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Makes a server certificate and the TLS configuration that presents it.
    pub(crate) fn issue(&self, kind: CertificateKind) -> Result<Issued, StubError> {
        let name = match kind {
            CertificateKind::OtherName => format!("not-{}", self.node_name),
            CertificateKind::AddressOnly => "127.0.0.1".to_owned(),
            _ => self.node_name.clone(),
        };
        let mut params = params(vec![name.clone()], ExtendedKeyUsagePurpose::ServerAuth, &name)?;
        match kind {
            CertificateKind::NotYetValid => params.not_before = rcgen::date_time_ymd(3000, 1, 1),
            CertificateKind::Expired => params.not_after = rcgen::date_time_ymd(2001, 1, 1),
            CertificateKind::Valid
            | CertificateKind::NewAuthority
            | CertificateKind::OtherName
            | CertificateKind::AddressOnly => {}
        }
        let (certificate, key) = self.sign(&params, &name)?;
        let pem = format!("{}{}", certificate.pem(), self.pem);
        Ok(Issued { tls: self.server_config(&certificate, &key)?, pem })
    }

    /// Creates a client certificate. Returns the PEM of the certificate and of its key.
    pub(crate) fn issue_client(&self) -> Result<(String, String), StubError> {
        let name = "cpuwarden";
        let (certificate, key) =
            self.sign(&params(Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, name)?, name)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn sign(
        &self,
        params: &CertificateParams,
        name: &str,
    ) -> Result<(Certificate, KeyPair), StubError> {
        let failed = |source| StubError::Certificate { name: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        Ok((params.signed_by(&key, &self.issuer).map_err(failed)?, key))
    }

    /// Client certificates are optional, as on a kubelet's port.
    fn server_config(
        &self,
        certificate: &Certificate,
        key: &KeyPair,
    ) -> Result<Arc<ServerConfig>, StubError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )?;
        Ok(Arc::new(config))
    }
}

/// Common name `<name>@<epoch>`, as in the kubelet's `GenerateSelfSignedCertKey`.
fn params(
    subject_alt_names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
    name: &str,
) -> Result<CertificateParams, StubError> {
    let failed = |source| StubError::Certificate { name: name.to_owned(), source };
    let mut params = CertificateParams::new(subject_alt_names).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, format!("{name}@{}", epoch()));
    params.extended_key_usages = vec![purpose];
    Ok(params)
}

fn epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
