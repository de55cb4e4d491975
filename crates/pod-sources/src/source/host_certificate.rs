//! The kubelet's serving certificate, from its file on the host.
//!
//! A kubelet signs its own serving certificate unless the cluster issues one
//! (`serverTLSBootstrap`); the service account's CA does not cover it. The kubelet's certificate
//! file does: the holder of its key is this node's kubelet, whatever name or date the certificate
//! has. The kubelet never renews a self-signed certificate. Clients without verification keep using
//! it after it expires in a year, and so does a client that pins it.

use std::io::ErrorKind;
use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tls_client::SettingError;

use crate::config::ConfigError;

/// Flag that names the node's own certificate.
const HOST_SETTING: &str = "--kubelet-host-certificate";
/// Part of the first line of every private key, including encrypted ones.
const KEY: &[u8] = b"PRIVATE KEY-----";

/// Reads the kubelet's serving certificate: the first in its file, followed by the certificate of
/// the CA that the kubelet created for it. Returns `None` if the file does not exist or may not be
/// read.
///
/// # Errors
/// Fails if the file contains no certificate, or contains a private key.
pub(super) fn read_own(path: &Path) -> Result<Option<CertificateDer<'static>>, ConfigError> {
    let no_certificate =
        |_| SettingError::Pem { setting: HOST_SETTING, path: path.to_owned(), what: "certificate" };
    let Some(pem) = read_certificates(path)? else { return Ok(None) };
    Ok(Some(CertificateDer::from_pem_slice(&pem).map_err(no_certificate)?))
}

/// The text of a PEM file without a key; `None` if the file does not exist or may not be read.
fn read_certificates(path: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    let pem = match std::fs::read(path) {
        Ok(pem) => pem,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(source) => {
            let path = path.to_owned();
            return Err(SettingError::File { setting: HOST_SETTING, path, source }.into());
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
