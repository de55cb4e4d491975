//! An address and port to listen at: `127.0.0.1:9753`, `[::]:9753`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address with its port that a server listens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ListenAddress(pub SocketAddr);

/// Parses an address with its port.
///
/// # Errors
/// The text, with the expected forms.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse::<ListenAddress>().map(|address| address.0)
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            // The port, where there is one, is kept in the examples.
            let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            let port = port.unwrap_or(9753);
            format!(
                "{text:?} is not an IP address with a port: expected e.g. [::]:{port}, 0.0.0.0:{port} or \
                 127.0.0.1:{port}; names are not accepted"
            )
        })
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_given() {
        for text in ["0.0.0.0:9753", "127.0.0.1:0", "[::]:9753", "[fd00::1]:80"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_port_or_a_name_alone_is_answered_with_the_forms() {
        for (text, form) in [
            (":9000", "[::]:9000, 0.0.0.0:9000"),
            ("9000", "[::]:9000"),
            ("localhost:9000", "127.0.0.1:9000; names are not accepted"),
            ("127.0.0.1", "[::]:9753"),
            ("127.0.0.1:99999", "[::]:9753"),
            ("", "[::]:9753"),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(
                error.contains(form) && error.contains(&format!("{text:?}")),
                "{text}: {error}"
            );
        }
    }
}
