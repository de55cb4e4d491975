//! TokenReview and SubjectAccessReview: the user of a token, and the paths that this user may read.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::answer::{json as json_body, plain};

/// The holder of a token.
#[derive(Debug, Clone)]
struct Reader {
    user: String,
    /// Paths that this user may get.
    paths: Vec<String>,
}

/// All users known to the API server.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_token: BTreeMap<String, Reader>,
}

impl Readers {
    pub(crate) fn insert(&mut self, token: &str, user: &str, paths: &[&str]) {
        let paths = paths.iter().map(ToString::to_string).collect();
        self.by_token.insert(token.to_owned(), Reader { user: user.to_owned(), paths });
    }

    /// Answers a review of a token.
    pub(crate) fn review_token(&self, body: &[u8]) -> Response {
        review(body, |spec| self.token_status(spec))
    }

    /// Answers a review of access.
    pub(crate) fn review_access(&self, body: &[u8]) -> Response {
        review(body, |spec| self.access_status(spec))
    }

    fn token_status(&self, spec: &Value) -> Value {
        match spec["token"].as_str().and_then(|token| self.by_token.get(token)) {
            Some(reader) => json!({
                "authenticated": true,
                "user": {"username": reader.user, "groups": ["system:authenticated"]},
            }),
            None => json!({"error": "token is not known"}),
        }
    }

    fn access_status(&self, spec: &Value) -> Value {
        let asked = &spec["nonResourceAttributes"];
        let is_allowed = |reader: &Reader| {
            Some(reader.user.as_str()) == spec["user"].as_str()
                && asked["verb"] == "get"
                && reader.paths.iter().any(|path| asked["path"] == path.as_str())
        };
        json!({"allowed": self.by_token.values().any(is_allowed)})
    }
}

fn review(body: &[u8], status: impl Fn(&Value) -> Value) -> Response {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
        return plain(StatusCode::BAD_REQUEST, "no JSON");
    };
    review["status"] = status(&review["spec"]);
    json_body(review.to_string())
}
