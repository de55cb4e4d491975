//! Address of an agent's endpoint.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use rustls_pki_types::ServerName;

/// Address of an agent's endpoint: `HOST:PORT`, or the same as a URL, `https://HOST:PORT`. The host
/// is a name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    host: ServerName<'static>,
    port: u16,
    scheme: Option<Scheme>,
}

/// Scheme of an address that is a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl AgentAddress {
    /// The host, which is also the name that its certificate must have.
    pub(crate) fn host(&self) -> &ServerName<'static> {
        &self.host
    }

    /// The host as text and the port, for a connection.
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        (self.host.to_str().into_owned(), self.port)
    }

    /// The scheme; `None` without one.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }
}

impl From<SocketAddr> for AgentAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().into(), port: address.port(), scheme: None }
    }
}

impl FromStr for AgentAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some((other, _)) => return Err(format!("{other} is not a scheme: use http or https")),
        };
        let rest = if scheme.is_some() { rest.strip_suffix('/').unwrap_or(rest) } else { rest };
        let wrong = "expected HOST:PORT or https://HOST:PORT, e.g. 10.0.0.5:9753 or [::1]:9753";
        if let Ok(address) = rest.parse::<SocketAddr>() {
            return Ok(Self { scheme, ..address.into() });
        }
        let (host, port) = rest.rsplit_once(':').ok_or(wrong)?;
        let host = ServerName::try_from(host.to_owned()).map_err(|_| wrong)?;
        let port = port.parse().map_err(|_| wrong)?;
        match host {
            // Without brackets the port of an IPv6 address is ambiguous.
            ServerName::IpAddress(_) => Err(wrong.to_owned()),
            host => Ok(Self { host, port, scheme }),
        }
    }
}

/// `HOST:PORT`, without the scheme.
impl fmt::Display for AgentAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            ServerName::IpAddress(ip) => SocketAddr::new(IpAddr::from(*ip), self.port).fmt(out),
            name => write!(out, "{}:{}", name.to_str(), self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_or_a_url() {
        for (text, shown, scheme) in [
            ("127.0.0.1:9753", "127.0.0.1:9753", None),
            ("[::1]:9753", "[::1]:9753", None),
            ("worker-1.example:9753", "worker-1.example:9753", None),
            ("localhost:9753", "localhost:9753", None),
            ("http://localhost:9753", "localhost:9753", Some(Scheme::Http)),
            ("https://[::1]:9753/", "[::1]:9753", Some(Scheme::Https)),
        ] {
            let address: AgentAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.scheme()), (shown, scheme), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_is_reported_with_the_form() {
        let error = |text: &str| text.parse::<AgentAddress>().unwrap_err();
        for text in [
            "",
            "here",
            "here:",
            ":9753",
            "here:99999",
            "::1:9753",
            "a b:1",
            "https://here",
            "http://here:1/metrics",
            "here:1/",
        ] {
            assert!(error(text).contains("expected HOST:PORT"), "{text}: {}", error(text));
        }
        assert!(error("ftp://here:1").contains("use http or https"));
    }
}
