//! TokenReview and SubjectAccessReview: the user of a token, and the paths that this user may read.

use std::collections::BTreeMap;

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::answer::{json as json_body, plain};
use crate::serve::Body;

/// The holder of a token.
#[derive(Debug, Clone)]
struct TokenHolder {
    user: String,
    /// Paths that this user may get.
    paths: Vec<String>,
}

/// All users known to the API server.
#[derive(Debug, Default)]
pub(crate) struct TokenHolders {
    by_token: BTreeMap<String, TokenHolder>,
}

impl TokenHolders {
    pub(crate) fn insert(&mut self, token: &str, user: &str, paths: &[&str]) {
        let paths = paths.iter().map(ToString::to_string).collect();
        self.by_token.insert(token.to_owned(), TokenHolder { user: user.to_owned(), paths });
    }

    /// Answers a review, given the path it was posted to.
    pub(crate) fn review(&self, path: &str, body: &[u8]) -> Response<Body> {
        let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
            return plain(StatusCode::BAD_REQUEST, "no JSON");
        };
        review["status"] = match path {
            "/apis/authentication.k8s.io/v1/tokenreviews" => self.token_status(&review["spec"]),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                self.access_status(&review["spec"])
            }
            _ => return plain(StatusCode::NOT_FOUND, "404 page not found"),
        };
        json_body(review.to_string().into())
    }

    fn token_status(&self, spec: &Value) -> Value {
        match spec["token"].as_str().and_then(|token| self.by_token.get(token)) {
            Some(holder) => json!({
                "authenticated": true,
                "user": {"username": holder.user, "groups": ["system:authenticated"]},
            }),
            None => json!({"error": "token is not known"}),
        }
    }

    fn access_status(&self, spec: &Value) -> Value {
        let asked = &spec["nonResourceAttributes"];
        let is_allowed = |holder: &TokenHolder| {
            Some(holder.user.as_str()) == spec["user"].as_str()
                && asked["verb"] == "get"
                && holder.paths.iter().any(|path| asked["path"] == path.as_str())
        };
        json!({"allowed": self.by_token.values().any(is_allowed)})
    }
}
