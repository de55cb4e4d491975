//! Trust in the kubelet's certificate: it is this node's own, byte for byte, or a CA signed it for
//! this node.
//!
//! A kubelet signs its own serving certificate unless the cluster issues one
//! (`serverTLSBootstrap`); the service account's CA does not cover it. The kubelet's certificate
//! file does: the holder of its key is this node's kubelet, whatever name or date the certificate
//! has. The kubelet never renews a self-signed certificate. Clients without verification keep using
//! it after it expires in a year, and so does a client that pins it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::tls::provider;
use crate::config::{ConfigError, read_named};

/// Flag that names the node's own certificate.
const HOST_SETTING: &str = "--kubelet-host-certificate";
/// Part of the first line of every private key, including encrypted ones.
const KEY: &[u8] = b"PRIVATE KEY-----";

/// Certificates accepted as the kubelet's.
#[derive(Debug)]
pub(super) enum Trust {
    /// Any certificate (insecure): an impostor on the port is trusted.
    Any,
    /// Certificates of this node.
    Verified {
        /// Serving certificates of this node's kubelet, from its own files.
        own: Vec<CertificateDer<'static>>,
        /// CAs that sign certificates for this cluster's kubelets.
        authorities: Option<Arc<WebPkiServerVerifier>>,
        /// Names of which a CA-signed certificate must contain one.
        names: Vec<ServerName<'static>>,
    },
}

impl Trust {
    /// Builds the verifier for certificates signed by these roots.
    pub(super) fn authorities(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        built.map_err(|error| rustls::Error::General(error.to_string()))
    }
}

/// Reads the kubelet's serving certificate: the first in its file, followed by the certificate of
/// the CA that the kubelet created for it. Returns `None` if the file does not exist or may not be
/// read.
///
/// # Errors
/// Fails if the file contains no certificate, or contains a private key.
pub(super) fn read_own(path: &Path) -> Result<Option<CertificateDer<'static>>, ConfigError> {
    let no_certificate =
        |_| ConfigError::Pem { setting: HOST_SETTING, path: path.to_owned(), what: "certificate" };
    let pem = read_certificates(path)?;
    pem.map(|pem| CertificateDer::from_pem_slice(&pem).map_err(no_certificate)).transpose()
}

/// The text of a PEM file without a key; `None` if the file does not exist or may not be read.
fn read_certificates(path: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    let pem = match std::fs::read(path) {
        Ok(pem) => pem,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(source) => {
            return Err(ConfigError::File { setting: HOST_SETTING, path: path.to_owned(), source });
        }
    };
    if pem.windows(KEY.len()).any(|part| part == KEY) {
        return Err(ConfigError::HoldsKey { setting: HOST_SETTING, path: path.to_owned() });
    }
    Ok(Some(pem))
}

/// Copies the kubelet's serving certificate from a directory that the agent itself must not see,
/// because it also contains keys. Returns false, leaving the target unchanged, if there is no such
/// file or it may not be read.
///
/// # Errors
/// Fails if the source contains no certificate or contains a private key, or if the target cannot
/// be written.
pub fn copy_certificate(from: &Path, to: &Path) -> Result<bool, ConfigError> {
    if read_own(from)?.is_none() {
        return Ok(false);
    }
    let Some(pem) = read_certificates(from)? else { return Ok(false) };
    let failed = |source| ConfigError::Write { path: to.to_owned(), source };
    std::fs::write(to, pem).map_err(failed)?;
    Ok(true)
}

/// TLS configuration for a server whose certificate is in this PEM file, or has this name and is
/// signed by one in the file.
///
/// # Errors
/// Fails if the file cannot be read or contains no certificate; the error names `setting`.
pub fn client_config(
    setting: &'static str,
    file: &Path,
    name: ServerName<'static>,
) -> Result<ClientConfig, ConfigError> {
    let pem = read_named(setting, file)?;
    let own: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(own.iter().cloned());
    if roots.is_empty() {
        return Err(ConfigError::Pem { setting, path: file.to_owned(), what: "certificate" });
    }
    let failed = |source| ConfigError::Tls { setting, source };
    let authorities = Some(Trust::authorities(roots, provider()).map_err(failed)?);
    let trust =
        Trust::Verified { own: own.into_iter().take(1).collect(), authorities, names: vec![name] };
    config_with(setting, trust)
}

/// TLS configuration that accepts any certificate (insecure).
///
/// # Errors
/// The TLS library rejects its own defaults; the error names `setting`.
pub fn unverified_client_config(setting: &'static str) -> Result<ClientConfig, ConfigError> {
    config_with(setting, Trust::Any)
}

fn config_with(setting: &'static str, trust: Trust) -> Result<ClientConfig, ConfigError> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let verifier = Arc::new(KubeletCertificate { trust, provider: provider() });
    Ok(builder
        .map_err(|source| ConfigError::Tls { setting, source })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Verifies the kubelet's certificate, and that its holder has the key.
#[derive(Debug)]
pub(super) struct KubeletCertificate {
    pub(super) trust: Trust,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KubeletCertificate {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trust::Verified { own, authorities, names } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        if own.iter().any(|own| own == leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        // Without a CA or a name only the node's own certificate is accepted.
        let mut rejection = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let Some(authorities) = authorities else { return Err(rejection) };
        // The error for the first name is reported.
        for name in names.iter().rev() {
            match authorities.verify_server_cert(leaf, intermediates, name, ocsp, now) {
                Ok(verified) => return Ok(verified),
                Err(error) => rejection = error,
            }
        }
        Err(rejection)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
