//! Access to /metrics: the API server reviews each bearer token (TokenReview) and its user
//! (SubjectAccessReview), and its answers are cached. While it does not answer, no new token gets
//! access.
//!
//! Unknown clients cannot exhaust the budget of known readers. A valid token is reviewed again
//! before its cached answer expires, through a separate client, and each peer may have only a few
//! new tokens reviewed.

mod budget;
mod kept;
mod lease;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tls_client::apiserver::ApiServerConnection;
use watchdog::errors::chain;

use crate::place::Place;
use budget::Budget;
use kept::{Access, Answer, Kept, Key};
pub(crate) use lease::Lease;

/// Maximum number of API server requests per half minute, two per token: for tokens that were
/// accepted before, and for all others.
const RENEWALS: u64 = 20;
const STRANGERS: u64 = 60;
/// Timeout of both reviews together, including retries and the rate limit; a scrape does not wait
/// longer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a token: a service account's has about one thousand.
const MAX_TOKEN: usize = 8 << 10;

/// Reviews tokens and caches the answers.
pub struct Auth {
    /// Client for renewals of tokens that were valid.
    renewals: Client,
    /// Client for all other tokens.
    strangers: Client,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    kept: Kept,
    budget: Budget,
}

/// Reason why there is no answer.
enum ReviewError {
    /// Too many tokens from this peer.
    TooMany,
    Unavailable(kube::Error),
}

impl Auth {
    /// Reviews by this API server. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the CA or the token cannot be read.
    pub fn new(connection: &ApiServerConnection) -> kube::Result<Self> {
        // Each client has its own rate limit.
        let (renewals, strangers) =
            (connection.client_with(RENEWALS)?, connection.client_with(STRANGERS)?);
        Ok(Self { renewals, strangers, memory: Mutex::default() })
    }

    async fn access(self: &Arc<Self>, key: Key, peer: IpAddr) -> Result<Access, ReviewError> {
        let now = Instant::now();
        let answer = self.memory().kept.recall(&key, now);
        match answer {
            Answer::Fresh(access) => Ok(access),
            Answer::Renew => {
                tokio::spawn(Arc::clone(self).renew(key));
                Ok(Access::Allowed)
            }
            Answer::Expired => self.ask(&self.renewals, key, peer).await,
            Answer::None if self.memory().budget.take(peer, now) => {
                self.ask(&self.strangers, key, peer).await
            }
            Answer::None => Err(ReviewError::TooMany),
        }
    }

    async fn ask(&self, client: &Client, key: Key, peer: IpAddr) -> Result<Access, ReviewError> {
        let access =
            review(client, &key.token, &key.path).await.map_err(ReviewError::Unavailable)?;
        let mut memory = self.memory();
        if access == Access::Allowed {
            memory.budget.trust(peer, Instant::now());
        }
        memory.kept.keep(key, access, Instant::now());
        Ok(access)
    }

    /// Reviews a valid token again; until the answer, the cached one applies until it expires.
    async fn renew(self: Arc<Self>, key: Key) {
        let reviewed =
            tokio::time::timeout(REVIEW_TIMEOUT, review(&self.renewals, &key.token, &key.path))
                .await;
        let mut memory = self.memory();
        match reviewed {
            Ok(Ok(access)) => memory.kept.keep(key, access, Instant::now()),
            Ok(Err(_)) | Err(_) => memory.kept.not_renewed(&key),
        }
    }

    /// Whether a token that was valid still is.
    async fn is_still_allowed(self: Arc<Self>, key: Key, peer: IpAddr) -> bool {
        let access = tokio::time::timeout(REVIEW_TIMEOUT, self.access(key, peer)).await;
        matches!(access, Ok(Ok(Access::Allowed)))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn review(client: &Client, token: &str, path: &str) -> kube::Result<Access> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let review = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = review.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Access::Unknown);
    };
    let review = SubjectAccessReview { spec: access(user, path), ..SubjectAccessReview::default() };
    let review = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    let is_allowed = review.status.is_some_and(|status| status.allowed);
    Ok(if is_allowed { Access::Allowed } else { Access::Denied })
}

fn access(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

/// Passes a request on if its token may read its path.
pub(crate) async fn check(
    State(auth): State<Arc<Auth>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(token) = bearer(request.headers()).filter(|token| may_be_a_token(token)) else {
        return unauthorized();
    };
    let Some(peer) = request.extensions().get::<Place>().map(|place| place.peer) else {
        return unauthorized();
    };
    let key = Key { token: token.into(), path: reviewed_path(request.uri().path()).into() };
    match tokio::time::timeout(REVIEW_TIMEOUT, auth.access(key.clone(), peer)).await {
        Ok(Ok(Access::Allowed)) => {
            let still_valid = move || Arc::clone(&auth).is_still_allowed(key.clone(), peer);
            request.extensions_mut().insert(Lease::new(still_valid));
            next.run(request).await
        }
        Ok(Ok(Access::Unknown)) => unauthorized(),
        Ok(Ok(Access::Denied)) => (StatusCode::FORBIDDEN, "forbidden\n").into_response(),
        Ok(Err(ReviewError::TooMany)) => {
            let headers = [(header::RETRY_AFTER, "30"), (header::CONNECTION, "close")];
            (StatusCode::TOO_MANY_REQUESTS, headers, "too many unknown tokens\n").into_response()
        }
        Ok(Err(ReviewError::Unavailable(error))) => unavailable(&error),
        Err(elapsed) => unavailable(&elapsed),
    }
}

/// Path that the API server is asked about: a reader of the list of pods may read each of them, and
/// a reader of the page its files, without another review.
fn reviewed_path(path: &str) -> &str {
    const LISTS: [(&str, &str); 2] = [("/api/v1/pods/", "/api/v1/pods"), ("/ui/", "/")];
    let list = LISTS.iter().find(|(prefix, _)| path.starts_with(prefix));
    list.map_or(path, |(_, list)| list)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Whether this looks like a JWT, three parts in base64url: anything else is rejected without a
/// review.
fn may_be_a_token(token: &str) -> bool {
    let is_base64url = |char: u8| char.is_ascii_alphanumeric() || matches!(char, b'-' | b'_');
    let mut parts = token.split('.');
    let all_good = parts
        .by_ref()
        .take(3)
        .filter(|part| !part.is_empty() && part.bytes().all(is_base64url))
        .count()
        == 3;
    token.len() <= MAX_TOKEN && all_good && parts.next().is_none()
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "unauthorized\n")
        .into_response()
}

fn unavailable(error: &dyn std::error::Error) -> Response {
    tracing::warn!(error = %chain(error), "cannot authorize readers of /metrics with the API server");
    (StatusCode::SERVICE_UNAVAILABLE, "cannot check the token with the API server\n")
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::body::Body;
    use axum::routing::get;
    use axum::{Extension, Router, middleware};
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use metrics::{AgentMetrics, Build};

    use super::*;
    use crate::place::Places;

    #[test]
    fn a_request_gets_a_lease_that_ends_with_its_token() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let no_server = Client::new(Router::new(), "default");
            let auth = Arc::new(Auth {
                renewals: no_server.clone(),
                strangers: no_server,
                memory: Mutex::default(),
            });
            let key = Key { token: "a.b.c".into(), path: "/api/v1/stream".into() };
            let reviewed = |access| auth.memory().kept.keep(key.clone(), access, Instant::now());
            reviewed(Access::Allowed);
            let metrics = AgentMetrics::new(Build { version: "", revision: "" });
            let (place, _cut) = Places::new(Arc::new(metrics)).open(Ipv4Addr::LOCALHOST.into());
            let routes = Router::new()
                .route("/api/v1/stream", get(async |lease: Extension<Lease>| lease))
                .route_layer(middleware::from_fn_with_state(Arc::clone(&auth), check));
            let request = Request::get("/api/v1/stream")
                .header(header::AUTHORIZATION, "Bearer a.b.c")
                .extension(place)
                .body(Body::empty())
                .unwrap();
            let response = TowerToHyperService::new(routes).call(request).await.unwrap();
            let lease = response.extensions().get::<Lease>().expect("a lease").clone();
            assert!(lease.is_still_valid().await);
            reviewed(Access::Denied);
            assert!(!lease.is_still_valid().await);
        });
    }

    #[test]
    fn the_bearer_scheme_is_case_insensitive() {
        let bearer_of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(bearer_of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(bearer_of("bearer  abc").as_deref(), Some("abc"));
        assert_eq!(
            (bearer_of("Basic abc"), bearer_of("Bearer "), bearer_of("abc")),
            (None, None, None)
        );
    }

    #[test]
    fn the_parts_of_a_list_and_of_the_page_need_no_review_of_their_own() {
        assert_eq!(reviewed_path("/api/v1/pods/123"), "/api/v1/pods");
        assert_eq!(reviewed_path("/ui/page.js"), "/");
        for path in ["/metrics", "/metrics/cadvisor", "/api/v1/pods", "/api/v1/podsx", "/"] {
            assert_eq!(reviewed_path(path), path);
        }
    }

    #[test]
    fn invalid_or_long_tokens_are_rejected_without_a_review() {
        assert!(may_be_a_token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_"));
        let long = format!("a.{}.c", "b".repeat(MAX_TOKEN));
        for token in ["", "a", "a.b", "a..c", ".b.c", "a.b.", "a.b.c.d", "a.b c.d", "a.b+.c", &long]
        {
            assert!(!may_be_a_token(token), "{token:.40}");
        }
    }
}
