//! Trust and identity for the connection to the kubelet: the files, reloaded when they change, and
//! the connector built from them.
//!
//! The kubelet's self-signed certificate is `CN=<node>@<epoch>`; its only subject alternative name
//! is the node's name, without an IP address. A certificate issued by the cluster contains the name
//! and the addresses. Therefore both the node's name and the URL's host are accepted.

use std::path::{Path, PathBuf};

use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tls_client::{FileStamp, SERVICE_ACCOUNT_CA, SettingError, Trust, read_named, read_roots};

use super::SourceError;
use super::host_certificate::read_own;
use crate::cause::Cause;
use crate::config::{ClientCertificate, ConfigError, HOST_CERTIFICATES, KubeletConfig};

const CA_SETTING: &str = "--kubelet-ca-file";
const CERTIFICATE_SETTING: &str = "--kubelet-client-cert-file";
const KEY_SETTING: &str = "--kubelet-client-key-file";

/// Files for trust and identity.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    ca_file: Option<PathBuf>,
    /// Files with the kubelet's serving certificates; missing ones are ignored.
    host_certificates: Vec<PathBuf>,
    client: Option<ClientCertificate>,
    /// Accepted server names; the first one is sent (SNI).
    server_names: Vec<ServerName<'static>>,
    skip_verify: bool,
}

impl TlsFiles {
    /// Checks everything that does not need the kubelet: files named by the operator must be
    /// readable and match.
    ///
    /// `server_names` are the names with the flags that they come from.
    pub(crate) fn new(
        config: &KubeletConfig,
        server_names: &[(&'static str, &str)],
    ) -> Result<Self, ConfigError> {
        let name = |&(setting, name): &(&'static str, &str)| {
            ServerName::try_from(name.to_owned())
                .map_err(|_| ConfigError::ServerName { setting, name: name.to_owned() })
        };
        let files = Self {
            ca_file: config.ca_file.clone(),
            host_certificates: host_certificates(config),
            client: config.client_certificate.clone(),
            server_names: server_names.iter().map(name).collect::<Result<_, _>>()?,
            skip_verify: config.insecure_skip_verify,
        };
        if !files.skip_verify {
            files.ca_file.as_deref().map(|path| read_roots(CA_SETTING, path)).transpose()?;
            config.host_certificate.as_deref().map(read_own).transpose()?;
        }
        if let Some(client) = &files.client {
            read_identity(client)?;
        }
        Ok(files)
    }

    /// Whether a client certificate is used.
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// The current stamp of the files in use.
    pub(crate) fn stamp(&self) -> FileStamp {
        let client =
            self.client.iter().flat_map(|client| [&*client.certificate_file, &*client.key_file]);
        let own = self.host_certificates.iter().map(PathBuf::as_path);
        FileStamp::of(self.ca_file().into_iter().chain(own).chain(client))
    }

    /// Reads the files and builds a connector.
    pub(crate) fn connector(
        &self,
        http: HttpConnector,
    ) -> Result<HttpsConnector<HttpConnector>, SourceError> {
        let config = self.client_config(self.trust()?)?;
        Ok(hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(self.server_names[0].clone()))
            .enable_http1()
            .wrap_connector(http))
    }

    fn client_config(&self, trust: Trust) -> Result<ClientConfig, ConfigError> {
        let builder = trust.into_builder(CA_SETTING)?;
        let Some(client) = &self.client else { return Ok(builder.with_no_client_auth()) };
        let (chain, key) = read_identity(client)?;
        let failed = |source| SettingError::Tls { setting: CERTIFICATE_SETTING, source };
        Ok(builder.with_client_auth_cert(chain, key).map_err(failed)?)
    }

    /// Reads the certificates to verify the kubelet's certificate with.
    fn trust(&self) -> Result<Trust, SourceError> {
        if self.skip_verify {
            return Ok(Trust::any());
        }
        let own = self.host_certificates.iter().filter_map(|path| read_own(path).transpose());
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let roots = self.ca_file().map(|path| read_roots(CA_SETTING, path)).transpose();
        let roots = roots.map_err(ConfigError::from)?;
        if own.is_empty() && roots.is_none() {
            let files = self.host_certificates.iter().map(|path| path.display().to_string());
            let looked_for =
                std::iter::once(SERVICE_ACCOUNT_CA.to_owned()).chain(files).collect::<Vec<_>>();
            return Err(SourceError::NoTrust { looked_for: looked_for.join(", ") });
        }
        let trust = Trust::verified(CA_SETTING, own, roots, self.server_names.clone());
        Ok(trust.map_err(ConfigError::from)?)
    }

    fn ca_file(&self) -> Option<&Path> {
        if self.skip_verify {
            return None;
        }
        let default = Path::new(SERVICE_ACCOUNT_CA);
        self.ca_file.as_deref().or_else(|| default.exists().then_some(default))
    }
}

/// The configured file; without it and without a configured CA, the default files.
fn host_certificates(config: &KubeletConfig) -> Vec<PathBuf> {
    match (&config.host_certificate, &config.ca_file) {
        (Some(named), _) => vec![named.clone()],
        (None, Some(_)) => Vec::new(),
        (None, None) => HOST_CERTIFICATES.iter().map(PathBuf::from).collect(),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(client: &ClientCertificate) -> Result<Identity, SettingError> {
    let certificate = read_named(CERTIFICATE_SETTING, &client.certificate_file)?;
    let key = read_named(KEY_SETTING, &client.key_file)?;
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&certificate).filter_map(Result::ok).collect();
    if chain.is_empty() {
        let path = client.certificate_file.clone();
        return Err(SettingError::Pem { setting: CERTIFICATE_SETTING, path, what: "certificate" });
    }
    let no_key = |_| SettingError::Pem {
        setting: KEY_SETTING,
        path: client.key_file.clone(),
        what: "private key",
    };
    Ok((chain, PrivateKeyDer::from_pem_slice(&key).map_err(no_key)?))
}

/// Remedy for a rejected certificate; `None` if the error has another cause.
pub(super) fn certificate_remedy(
    error: &(dyn std::error::Error + 'static),
) -> Option<&'static str> {
    Some(match rejected_certificate(error)? {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "set --kubelet-server-name to a name in the certificate, usually the node's"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the kubelet's certificate (rotateCertificates, and approve its CSR); check the node's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "check the clocks of this node and of the signer"
        }
        _ => Cause::Certificate.remedy(),
    })
}

fn rejected_certificate<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a CertificateError> {
    if let Some(rustls::Error::InvalidCertificate(wrong)) = error.downcast_ref() {
        return Some(wrong);
    }
    // The source of an `io::Error` is the source of its inner error; the inner error itself is
    // skipped.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => rejected_certificate(inner),
        None => rejected_certificate(error.source()?),
    }
}
