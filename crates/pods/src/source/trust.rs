//! Trust in the kubelet's certificate: it is the node's own, byte for byte, or an authority signed it for this node.
//!
//! A kubelet signs its own serving certificate unless the cluster issues one (`serverTLSBootstrap`), so that the service
//! account's CA does not vouch for it. The file that the kubelet serves from does: who holds its key is the kubelet of
//! this node, whatever name or date the certificate bears. The kubelet never renews a certificate that it has signed
//! itself; clients that do not verify go on using it after its year is over, and so does a pinned one.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::tls::provider;
use crate::config::{ConfigError, read_named};

/// The flag of the node's own certificate.
const HOST_SETTING: &str = "--kubelet-host-certificate";
/// In the first line of every private key, encrypted ones included.
const KEY: &[u8] = b"PRIVATE KEY-----";

/// Which certificates are the kubelet's.
#[derive(Debug)]
pub(super) enum Trust {
    /// Any: an impostor on the port is believed.
    Any,
    /// Those of this node.
    Verified {
        /// The certificates that this node's kubelet serves with, from its own files.
        own: Vec<CertificateDer<'static>>,
        /// Authorities that sign for the kubelets of this cluster.
        authorities: Option<Arc<WebPkiServerVerifier>>,
        /// A certificate from an authority must bear one of these names.
        names: Vec<ServerName<'static>>,
    },
}

impl Trust {
    /// The check of certificates that these roots have signed.
    pub(super) fn authorities(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        built.map_err(|error| rustls::Error::General(error.to_string()))
    }
}

/// Reads the certificate that the kubelet serves with: the first of its file, before that of the authority that the
/// kubelet made for it. `None` where the file does not exist or may not be read.
///
/// # Errors
/// The file holds no certificate, or a private key.
pub(super) fn read_own(path: &Path) -> Result<Option<CertificateDer<'static>>, ConfigError> {
    let no_certificate = |_| ConfigError::Pem { setting: HOST_SETTING, path: path.to_owned(), what: "certificate" };
    let pem = read_certificates(path)?;
    pem.map(|pem| CertificateDer::from_pem_slice(&pem).map_err(no_certificate)).transpose()
}

/// The text of a PEM file that holds no key; `None` where it does not exist or may not be read.
fn read_certificates(path: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    let pem = match std::fs::read(path) {
        Ok(pem) => pem,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(None),
        Err(source) => return Err(ConfigError::File { setting: HOST_SETTING, path: path.to_owned(), source }),
    };
    if pem.windows(KEY.len()).any(|part| part == KEY) {
        return Err(ConfigError::HoldsKey { setting: HOST_SETTING, path: path.to_owned() });
    }
    Ok(Some(pem))
}

/// Copies the certificate that the kubelet serves with out of a directory that the agent itself must not see, because
/// keys are beside it. False where there is none, or where it may not be read; the target is then left alone.
///
/// # Errors
/// The source holds no certificate, or a private key; or the target cannot be written.
pub fn copy_certificate(from: &Path, to: &Path) -> Result<bool, ConfigError> {
    if read_own(from)?.is_none() {
        return Ok(false);
    }
    let Some(pem) = read_certificates(from)? else { return Ok(false) };
    let failed = |source| ConfigError::Write { path: to.to_owned(), source };
    std::fs::write(to, pem).map_err(failed)?;
    Ok(true)
}

/// TLS to a server whose certificate is the one in this PEM file, or bears the name and is signed by one in it.
///
/// # Errors
/// The file cannot be read or holds no certificate, and names the `setting` by which it was given.
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
    let trust = Trust::Verified { own: own.into_iter().take(1).collect(), authorities, names: vec![name] };
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let verifier = Arc::new(KubeletCertificate { trust, provider: provider() });
    Ok(builder.map_err(failed)?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Checks the kubelet's certificate, and that its holder has the key.
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
        // Without an authority or a name nothing but the node's own certificate is accepted.
        let mut rejection = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let Some(authorities) = authorities else { return Err(rejection) };
        // The first name is the one that is reported.
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
