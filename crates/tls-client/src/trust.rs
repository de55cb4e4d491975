//! Trust in a server's certificate: it is a known one, byte for byte, or a CA signed it for the
//! server's name.
//!
//! The holder of a known certificate's key is the server, whatever name or date the certificate
//! has.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::settings::{SettingError, read_named};

/// Path at which kubelets mount the API server's CA into a pod.
pub const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Certificates accepted as a server's.
#[derive(Debug)]
pub struct Trust(Accepted);

#[derive(Debug)]
enum Accepted {
    Any,
    Verified {
        /// Known certificates of the server.
        own: Vec<CertificateDer<'static>>,
        /// CAs that sign certificates for the server.
        authorities: Option<Arc<WebPkiServerVerifier>>,
        /// Names of which a CA-signed certificate must contain one.
        names: Vec<ServerName<'static>>,
    },
}

impl Trust {
    /// Accepts any certificate (insecure): an impostor on the port is trusted.
    #[must_use]
    pub const fn any() -> Self {
        Self(Accepted::Any)
    }

    /// Accepts the certificates in `own`, and those that `roots` signed for one of `names`.
    ///
    /// # Errors
    /// The TLS library rejects the roots; the error names `setting`.
    pub fn verified(
        setting: &'static str,
        own: Vec<CertificateDer<'static>>,
        roots: Option<RootCertStore>,
        names: Vec<ServerName<'static>>,
    ) -> Result<Self, SettingError> {
        let authorities = roots.map(|roots| {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
            let failed = |error: rustls::client::VerifierBuilderError| SettingError::Tls {
                setting,
                source: rustls::Error::General(error.to_string()),
            };
            builder.build().map_err(failed)
        });
        Ok(Self(Accepted::Verified { own, authorities: authorities.transpose()?, names }))
    }

    /// Builds a TLS configuration that lacks only the client's certificate.
    ///
    /// # Errors
    /// The TLS library rejects its own defaults; the error names `setting`.
    pub fn into_builder(
        self,
        setting: &'static str,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, SettingError> {
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let verifier = Arc::new(CertificateVerifier { accepted: self.0, provider: provider() });
        Ok(builder
            .map_err(|source| SettingError::Tls { setting, source })?
            .dangerous()
            .with_custom_certificate_verifier(verifier))
    }
}

/// The cryptography that every connection uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the CA certificates in a PEM file.
///
/// # Errors
/// Fails if the file cannot be read or contains no certificate; the error names `setting`.
pub fn read_roots(setting: &'static str, file: &Path) -> Result<RootCertStore, SettingError> {
    read_certificates(setting, file).map(|(_, roots)| roots)
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
) -> Result<ClientConfig, SettingError> {
    let (mut own, roots) = read_certificates(setting, file)?;
    own.truncate(1);
    let trust = Trust::verified(setting, own, Some(roots), vec![name])?;
    Ok(trust.into_builder(setting)?.with_no_client_auth())
}

/// TLS configuration that accepts any certificate (insecure).
///
/// # Errors
/// The TLS library rejects its own defaults; the error names `setting`.
pub fn unverified_client_config(setting: &'static str) -> Result<ClientConfig, SettingError> {
    Ok(Trust::any().into_builder(setting)?.with_no_client_auth())
}

/// The certificates in a PEM file, as they are and as roots.
fn read_certificates(
    setting: &'static str,
    file: &Path,
) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), SettingError> {
    let pem = read_named(setting, file)?;
    let own: Vec<_> = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(own.iter().cloned());
    if roots.is_empty() {
        return Err(SettingError::Pem { setting, path: file.to_owned(), what: "certificate" });
    }
    Ok((own, roots))
}

/// Verifies the server's certificate, and that its holder has the key.
#[derive(Debug)]
struct CertificateVerifier {
    accepted: Accepted,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Accepted::Verified { own, authorities, names } = &self.accepted else {
            return Ok(ServerCertVerified::assertion());
        };
        if own.iter().any(|own| own == leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        // Without a CA or a name only the server's own certificate is accepted.
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
