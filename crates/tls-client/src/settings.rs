//! Settings that name a URL or a file, and their validation.

use std::path::{Path, PathBuf};

use http::Uri;

/// An invalid setting, with the flag and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// An invalid URL.
    #[error("{setting}: {value:?} is not a URL of the form {scheme}://host:port")]
    Url {
        /// Flag.
        setting: &'static str,
        /// Given value.
        value: String,
        /// Required scheme.
        scheme: &'static str,
    },
    /// A file that must be readable at the start cannot be read.
    #[error("{setting}: cannot read {}; mount the file or correct the path", path.display())]
    File {
        /// Flag.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
    /// A file without the expected PEM object.
    #[error("{setting}: {} contains no PEM {what}", path.display())]
    Pem {
        /// Flag.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Expected object.
        what: &'static str,
    },
    /// Certificate and key do not match, or a similar error.
    #[error("{setting}: not usable for TLS")]
    Tls {
        /// Flag.
        setting: &'static str,
        /// Underlying error.
        source: rustls::Error,
    },
}

/// Parses and checks a URL of the form `scheme://host[:port]`.
///
/// # Errors
/// Fails if the URL has another form; the error names `setting`.
pub fn base_uri(
    setting: &'static str,
    value: &str,
    scheme: &'static str,
) -> Result<Uri, SettingError> {
    let wrong = || SettingError::Url { setting, value: value.to_owned(), scheme };
    let uri: Uri = value.parse().map_err(|_| wrong())?;
    let plain = uri.scheme_str() == Some(scheme)
        && uri.host().is_some_and(|host| !host.is_empty())
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    if plain { Ok(uri) } else { Err(wrong()) }
}

/// Reads a file named by the operator.
///
/// # Errors
/// Fails if the file cannot be read; the error names `setting`.
pub fn read_named(setting: &'static str, path: &Path) -> Result<Vec<u8>, SettingError> {
    std::fs::read(path).map_err(|source| SettingError::File {
        setting,
        path: path.to_owned(),
        source,
    })
}
