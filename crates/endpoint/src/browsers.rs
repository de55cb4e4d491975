//! Requests of browsers that another web site may have caused. Pure rules, and a layer that applies
//! them to the page and the JSON API.
//!
//! A site that a user visits can make its own name resolve to 127.0.0.1 (DNS rebinding). Its scripts
//! then read whatever answers there, such as a forwarded port. The name in the request tells: the
//! user's own requests name localhost or an address.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::place::Place;

/// Rules for requests of browsers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Browsers {
    /// Further names of this endpoint, in lower case.
    pub(crate) hosts: Arc<[String]>,
    /// Whether every request has a valid token, which no other site can send.
    pub(crate) has_tokens: bool,
}

/// Reason for not answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The name in the request is not one of this endpoint.
    Host,
    /// A script or an element of another site.
    CrossSite,
}

impl Browsers {
    /// Decides about a request. `names`: hosts that the request names, with their ports.
    fn refusal<'a>(
        &self,
        is_loopback: bool,
        names: impl IntoIterator<Item = &'a str>,
        headers: &HeaderMap,
    ) -> Option<Refusal> {
        if is_loopback && !self.has_tokens && !names.into_iter().all(|name| self.is_ours(name)) {
            return Some(Refusal::Host);
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let is_foreign = matches!(text("sec-fetch-site"), Some("cross-site" | "same-site"));
        // A link from another site shows the page to the user, and nothing to that site.
        let is_navigation = text("sec-fetch-mode") == Some("navigate");
        (is_foreign && !is_navigation).then_some(Refusal::CrossSite)
    }

    fn is_ours(&self, authority: &str) -> bool {
        let name = host_of(authority).trim_end_matches('.').to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.unwrap_or(&name).parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.contains(&name)
    }
}

/// The host of `HOST[:PORT]`.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Passes a request on unless another site may have caused it.
pub(crate) async fn check(
    State(browsers): State<Browsers>,
    request: Request,
    next: Next,
) -> Response {
    let is_loopback =
        request.extensions().get::<Place>().is_none_or(|place| place.peer.is_loopback());
    // A name that is no text is not ours. Programs without a Host header are no browsers.
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| host.to_str().unwrap_or("?"));
    let names = hosts.chain(request.uri().authority().map(Authority::as_str));
    match browsers.refusal(is_loopback, names, request.headers()) {
        None => next.run(request).await,
        Some(Refusal::Host) => (StatusCode::MISDIRECTED_REQUEST, HOST_REMEDY).into_response(),
        Some(Refusal::CrossSite) => (StatusCode::FORBIDDEN, CROSS_SITE_REMEDY).into_response(),
    }
}

const HOST_REMEDY: &str = "this name is not one of the agent's: use http://localhost or an address, or add the name \
    to --allowed-hosts (config.allowedHosts of the chart)\n";
const CROSS_SITE_REMEDY: &str =
    "not for scripts of other web sites: open this address in a tab of its own\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn browsers() -> Browsers {
        Browsers { hosts: ["cpu.example.com".to_owned()].into(), has_tokens: false }
    }

    #[test]
    fn only_own_names_are_answered_on_loopback() {
        let refused = |browsers: &Browsers, is_loopback, name| {
            browsers.refusal(is_loopback, [name], &HeaderMap::new()).is_some()
        };
        for name in [
            "localhost",
            "LocalHost:8080",
            "localhost.:9753",
            "app.localhost:1",
            "127.0.0.1:9753",
            "[::1]:9753",
            "[::1]",
            "10.0.0.7",
            "cpu.example.com",
            "CPU.example.com:443",
        ] {
            assert!(!refused(&browsers(), true, name), "{name}");
        }
        for name in [
            "evil.example",
            "evil.example:9753",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9753",
            "xlocalhost",
            "cpu.example.com.evil",
            "",
            "?",
        ] {
            assert!(refused(&browsers(), true, name), "{name}");
            assert!(!refused(&browsers(), false, name), "{name}: from another machine");
            let with_tokens = Browsers { has_tokens: true, ..browsers() };
            assert!(!refused(&with_tokens, true, name), "{name}: with a token");
        }
        let both = browsers().refusal(true, ["localhost", "evil.example"], &HeaderMap::new());
        assert_eq!(both, Some(Refusal::Host), "any of several names");
    }

    #[test]
    fn fetches_of_other_sites_are_refused_and_navigations_are_not() {
        let of = |site: &str, mode: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", site.parse().unwrap());
            headers.insert("sec-fetch-mode", mode.parse().unwrap());
            browsers().refusal(true, ["localhost:9753"], &headers)
        };
        for (site, mode) in
            [("none", "navigate"), ("same-origin", "cors"), ("cross-site", "navigate")]
        {
            assert_eq!(of(site, mode), None, "{site} {mode}");
        }
        for (site, mode) in
            [("cross-site", "no-cors"), ("cross-site", "cors"), ("same-site", "cors")]
        {
            assert_eq!(of(site, mode), Some(Refusal::CrossSite), "{site} {mode}");
        }
    }
}
