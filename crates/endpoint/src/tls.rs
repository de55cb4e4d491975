//! HTTPS: the certificate, reloaded when its file changes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tls_client::FileStamp;
use watchdog::errors::chain;

/// Certificate and key of the endpoint, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the certificate and its chain.
    pub certificate: PathBuf,
    /// File with the certificate's private key.
    pub key: PathBuf,
}

/// A certificate or key that cannot be used: the option, its file, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnusableFile(String);

/// The certificate in force.
pub struct Identity {
    files: TlsFiles,
    read: Mutex<Read>,
}

/// A loaded certificate, with the state of its files at that time.
struct Read {
    stamp: FileStamp,
    config: Arc<ServerConfig>,
}

impl Identity {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// The certificate and key cannot be used.
    pub fn load(files: TlsFiles) -> Result<Self, UnusableFile> {
        let stamp = stamp(&files);
        let config = server_config(&files)?;
        Ok(Self { files, read: Mutex::new(Read { stamp, config }) })
    }

    /// The current certificate. If the files cannot be used, the last valid one stays in force.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let stamp = stamp(&self.files);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp != read.stamp {
            read.stamp = stamp;
            self.read_again(&mut read);
        }
        Arc::clone(&read.config)
    }

    /// Reloads the files even if they look unchanged.
    pub fn reload(&self) {
        self.read_again(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read_again(&self, read: &mut Read) {
        match server_config(&self.files) {
            Ok(config) => {
                tracing::info!("reloaded the endpoint's certificate");
                read.config = config;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot use the endpoint's new certificate; keeping the last one");
            }
        }
    }
}

fn stamp(files: &TlsFiles) -> FileStamp {
    FileStamp::of([&*files.certificate, &*files.key])
}

fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, UnusableFile> {
    let TlsFiles { certificate: certificate_file, key: key_file } = files;
    let bad_certificate =
        |why| UnusableFile(format!("--tls-cert: {}: {why}", certificate_file.display()));
    let bad_key = |why| UnusableFile(format!("--tls-key: {}: {why}", key_file.display()));
    let certificates = CertificateDer::pem_file_iter(certificate_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| bad_certificate(unreadable(&error)))?;
    if certificates.is_empty() {
        return Err(bad_certificate(
            "no certificate in this file; use a PEM file with a CERTIFICATE block".to_owned(),
        ));
    }
    let key =
        PrivateKeyDer::from_pem_file(key_file).map_err(|error| bad_key(unreadable(&error)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key));
    config.map(Arc::new).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => bad_key(format!(
            "not the key of the certificate in {}; use the key of that certificate",
            certificate_file.display()
        )),
        // The error does not always say which of the two files it means.
        rustls::Error::General(why) => bad_key(format!("{why}; use an RSA, ECDSA or Ed25519 key")),
        error => bad_certificate(format!("{}; use a certificate with its chain", chain(&error))),
    })
}

/// Reason why a PEM file cannot be used, with the fix.
fn unreadable(error: &rustls_pki_types::pem::Error) -> String {
    use rustls_pki_types::pem::Error;
    match error {
        Error::Io(error) => format!("cannot read it: {error}; mount the file or correct the path"),
        Error::NoItemsFound => {
            "no private key in this file; use a PEM file with a PRIVATE KEY block".to_owned()
        }
        error => format!("not PEM: {error}; replace the file"),
    }
}
