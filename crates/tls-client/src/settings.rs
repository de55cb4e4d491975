//! Settings that name a URL or a file, and their validation.

use std::net::Ipv6Addr;
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
    let uri: Uri = with_brackets(value).parse().map_err(|_| wrong())?;
    let port = uri.authority().and_then(|authority| authority.as_str().rsplit_once(':'));
    // A port that is no number of a port is otherwise ignored.
    if port.is_some_and(|(_, port)| !port.ends_with(']')) && uri.port_u16().is_none() {
        return Err(wrong());
    }
    let plain = uri.scheme_str() == Some(scheme)
        && uri.host().is_some_and(|host| !host.is_empty())
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    if plain { Ok(uri) } else { Err(wrong()) }
}

/// The URL with brackets around an IPv6 address that has none, as when a variable with the node's
/// address was inserted: `https://fd00::1:10250`. The last part is the port, if the rest is an
/// address.
fn with_brackets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host = rest.trim_end_matches('/');
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    match host.rsplit_once(':') {
        Some((address, port)) if is_address(address) => format!("{scheme}://[{address}]:{port}"),
        Some(_) if is_address(host) => format!("{scheme}://[{host}]"),
        _ => url.to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn host_and_port(url: &str) -> Option<(String, Option<u16>)> {
        let uri = base_uri("--kubelet-url", url, "https").ok()?;
        Some((uri.host()?.to_owned(), uri.port_u16()))
    }

    #[test]
    fn an_ipv6_address_needs_no_brackets() {
        for (url, host, port) in [
            ("https://10.0.0.5:10250", "10.0.0.5", Some(10_250)),
            ("https://node-1:10250/", "node-1", Some(10_250)),
            ("https://[fd00::1]:10250", "[fd00::1]", Some(10_250)),
            ("https://fd00::1:10250", "[fd00::1]", Some(10_250)),
            ("https://2001:db8:0:1:2:3:4:5:10250", "[2001:db8:0:1:2:3:4:5]", Some(10_250)),
            ("https://fd00::1:443/", "[fd00::1]", Some(443)),
            ("https://2001:db8:0:1:2:3:4:5", "[2001:db8:0:1:2:3:4:5]", None),
            ("https://[fd00::1]", "[fd00::1]", None),
        ] {
            assert_eq!(host_and_port(url), Some((host.to_owned(), port)), "{url}");
        }
    }

    #[test]
    fn another_form_is_rejected() {
        for url in [
            "",
            "node-1:10250",
            "http://node-1:10250",
            "https://node-1:99999",
            "https://node-1:",
            "https://fd00::1:99999",
            "https://node-1/pods",
            "https://",
        ] {
            assert_eq!(host_and_port(url), None, "{url}");
        }
    }
}
