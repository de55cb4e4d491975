//! Trust and identity towards the kubelet: the files they come from, re-read when they change, and the connector made
//! of them.
//!
//! The kubelet's own certificate is `CN=<node>@<epoch>` with the node's name as its only subject alternative name, no IP
//! address: the name to verify is therefore a setting of its own and not the host of the URL.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::SourceError;
use crate::config::{
    ClientCertificate, ConfigError, KUBELET_SELF_SIGNED, KubeletConfig, SERVICE_ACCOUNT_CA, read_named,
};

const CA_SETTING: &str = "--kubelet-ca-file";
const CERTIFICATE_SETTING: &str = "--kubelet-client-cert-file";
const KEY_SETTING: &str = "--kubelet-client-key-file";

/// Where trust and identity come from.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    ca_file: Option<PathBuf>,
    client: Option<ClientCertificate>,
    server_name: ServerName<'static>,
    skip_verify: bool,
}

/// What files looked like when they were read; another stamp means other content. A projected volume is updated by
/// swapping a link, which changes the inode behind the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<(PathBuf, u64, i64, i64)>);

impl TlsFiles {
    /// Checks what can be checked without the kubelet: the files that the operator named must be readable and fit.
    pub(crate) fn new(config: &KubeletConfig, server_name: &str) -> Result<Self, ConfigError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ConfigError::ServerName { name: server_name.to_owned() })?;
        let files = Self {
            ca_file: config.ca_file.clone(),
            client: config.client_certificate.clone(),
            server_name: name,
            skip_verify: config.insecure_skip_verify,
        };
        if let Some(path) = files.ca_file.as_deref().filter(|_| !files.skip_verify) {
            read_roots(path)?;
        }
        if let Some(client) = &files.client {
            read_identity(client)?;
        }
        Ok(files)
    }

    /// Whether a client certificate is shown.
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// The present state of the files in use.
    pub(crate) fn stamp(&self) -> Stamp {
        let client = self.client.iter().flat_map(|client| [&*client.certificate_file, &*client.key_file]);
        let files = self.ca_file().into_iter().chain(client);
        Stamp(files.filter_map(file_stamp).collect())
    }

    /// Reads the files and makes a connector of them.
    pub(crate) fn connector(&self, http: HttpConnector) -> Result<HttpsConnector<HttpConnector>, SourceError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|source| ConfigError::Tls { setting: CA_SETTING, source })?;
        let builder = if self.skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
        } else {
            let path = self.ca_file().ok_or_else(|| SourceError::NoTrust {
                looked_for: format!("{SERVICE_ACCOUNT_CA}, {KUBELET_SELF_SIGNED}"),
            })?;
            builder.with_root_certificates(read_roots(path)?)
        };
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let (chain, key) = read_identity(client)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|source| ConfigError::Tls { setting: CERTIFICATE_SETTING, source })?
            }
        };
        Ok(hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(self.server_name.clone()))
            .enable_http1()
            .wrap_connector(http))
    }

    fn ca_file(&self) -> Option<&Path> {
        if self.skip_verify {
            return None;
        }
        self.ca_file
            .as_deref()
            .or_else(|| [SERVICE_ACCOUNT_CA, KUBELET_SELF_SIGNED].into_iter().map(Path::new).find(|path| path.exists()))
    }
}

fn file_stamp(path: &Path) -> Option<(PathBuf, u64, i64, i64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((path.to_owned(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read_roots(path: &Path) -> Result<RootCertStore, ConfigError> {
    let pem = read_named(CA_SETTING, path)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(ConfigError::Pem { setting: CA_SETTING, path: path.to_owned(), what: "certificate" });
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(client: &ClientCertificate) -> Result<Identity, ConfigError> {
    let certificate = read_named(CERTIFICATE_SETTING, &client.certificate_file)?;
    let key = read_named(KEY_SETTING, &client.key_file)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate).filter_map(Result::ok).collect();
    if chain.is_empty() {
        let path = client.certificate_file.clone();
        return Err(ConfigError::Pem { setting: CERTIFICATE_SETTING, path, what: "certificate" });
    }
    let no_key = |_| ConfigError::Pem { setting: KEY_SETTING, path: client.key_file.clone(), what: "private key" };
    Ok((chain, PrivateKeyDer::from_pem_slice(&key).map_err(no_key)?))
}

/// What to do about a certificate that did not pass the check; `None` where that is not what went wrong.
pub(super) fn certificate_remedy(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    Some(match rejected_certificate(error)? {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "give --kubelet-server-name as a name that it bears, usually the node's"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the kubelet must renew it (rotateCertificates, and its CSR approved); check the node's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "check the clocks of this node and of what signed it"
        }
        _ => {
            "give --kubelet-ca-file as the authority that signed it: the cluster's CA where kubelets use \
             serverTLSBootstrap, else the kubelet's own, /var/lib/kubelet/pki/kubelet.crt"
        }
    })
}

fn rejected_certificate<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a CertificateError> {
    if let Some(rustls::Error::InvalidCertificate(wrong)) = error.downcast_ref() {
        return Some(wrong);
    }
    // The source of an `io::Error` is that of the error in it, which itself is skipped.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => rejected_certificate(inner),
        None => rejected_certificate(error.source()?),
    }
}

/// `--kubelet-insecure-skip-verify`: believes any certificate, but still that its holder has the key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
