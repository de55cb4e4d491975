//! Who may read /metrics: the API server is asked for each bearer token (TokenReview) and its user (SubjectAccessReview),
//! and its answers are kept for a while. While it does not answer, nobody new gets in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

/// As kube-rbac-proxy and the API server itself keep them: who was let in for longer than who was not.
const ALLOWED_FOR: Duration = Duration::from_secs(120);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// Both reviews together, retries and the rate limit included; a scrape does not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers that are kept; tokens that nobody knows must not fill the memory.
const KEPT: usize = 256;

/// What the API server says of a token and a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// Nobody has this token.
    Unknown,
    /// Its user may not read the path.
    Denied,
}

/// Asks, and remembers the answers.
pub(crate) struct Auth {
    client: Client,
    kept: Mutex<HashMap<(String, String), (Verdict, Instant)>>,
}

impl Auth {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kept: Mutex::default() }
    }

    async fn verdict(&self, token: &str, path: &str) -> kube::Result<Verdict> {
        let key = (token.to_owned(), path.to_owned());
        if let Some(verdict) = self.recall(&key) {
            return Ok(verdict);
        }
        let verdict = self.review(token, path).await?;
        self.keep(key, verdict);
        Ok(verdict)
    }

    async fn review(&self, token: &str, path: &str) -> kube::Result<Verdict> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let review = SubjectAccessReview { spec: access(user, path), ..SubjectAccessReview::default() };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let is_allowed = review.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { Verdict::Allowed } else { Verdict::Denied })
    }

    fn recall(&self, key: &(String, String)) -> Option<Verdict> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(_, until)| *until > Instant::now()).map(|(verdict, _)| *verdict)
    }

    fn keep(&self, key: (String, String), verdict: Verdict) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if kept.len() >= KEPT {
            kept.retain(|_, (verdict, until)| *verdict == Verdict::Allowed && *until > now);
        }
        let time = if verdict == Verdict::Allowed { ALLOWED_FOR } else { DENIED_FOR };
        kept.insert(key, (verdict, now + time));
    }
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

/// Lets a request pass whose bearer may read its path.
pub(crate) async fn check(State(auth): State<Arc<Auth>>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else { return unauthorized() };
    match tokio::time::timeout(PATIENCE, auth.verdict(token, request.uri().path())).await {
        Ok(Ok(Verdict::Allowed)) => next.run(request).await,
        Ok(Ok(Verdict::Unknown)) => unauthorized(),
        Ok(Ok(Verdict::Denied)) => (StatusCode::FORBIDDEN, "forbidden\n").into_response(),
        Ok(Err(error)) => unavailable(&error),
        Err(elapsed) => unavailable(&elapsed),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "unauthorized\n").into_response()
}

fn unavailable(error: &dyn std::error::Error) -> Response {
    tracing::warn!(error = %crate::config::chain(error), "cannot ask the API server who may read /metrics");
    (StatusCode::SERVICE_UNAVAILABLE, "the API server does not say who you are\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_is_taken_out_of_the_header_whatever_the_case_of_the_scheme() {
        let bearer_of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(bearer_of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(bearer_of("bearer  abc").as_deref(), Some("abc"));
        assert_eq!((bearer_of("Basic abc"), bearer_of("Bearer "), bearer_of("abc")), (None, None, None));
    }
}
