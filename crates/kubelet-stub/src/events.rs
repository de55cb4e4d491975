//! Events of `events.k8s.io/v1`: accepted, validated as the API server does, and stored.

use std::collections::BTreeMap;

use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::answer::json_with;
use crate::serve::Body;

const GROUP: &str = "/apis/events.k8s.io/v1/namespaces/";

/// The events of the cluster, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct EventStore {
    taken: BTreeMap<(String, String), Value>,
    /// Keys in order of creation.
    order: Vec<(String, String)>,
    /// Whether creating events is forbidden.
    pub(crate) forbidden: bool,
}

impl EventStore {
    /// All events, oldest first.
    pub(crate) fn list(&self) -> Vec<Value> {
        self.order.iter().filter_map(|key| self.taken.get(key)).cloned().collect()
    }

    pub(crate) fn forget(&mut self) {
        *self = Self { forbidden: self.forbidden, ..Self::default() };
    }

    /// Answers a request below the group; `None` for other paths.
    pub(crate) fn answer(
        &mut self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Option<Response<Body>> {
        let (namespace, rest) = path.strip_prefix(GROUP)?.split_once('/')?;
        let name = rest.strip_prefix("events")?.trim_start_matches('/');
        if self.forbidden {
            return Some(failure(
                StatusCode::FORBIDDEN,
                "Forbidden",
                "events.events.k8s.io is forbidden",
            ));
        }
        let object = serde_json::from_slice::<Value>(body).unwrap_or_default();
        match (method, name) {
            (&Method::POST, "") => Some(self.create(namespace, &object)),
            (&Method::PATCH, name) => Some(self.patch(namespace, name, &object)),
            _ => None,
        }
    }

    fn create(&mut self, namespace: &str, event: &Value) -> Response<Body> {
        if let Err(wrong) = check(namespace, event) {
            return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", wrong);
        }
        let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (namespace.to_owned(), name);
        if self.taken.contains_key(&key) {
            return failure(StatusCode::CONFLICT, "AlreadyExists", "it exists");
        }
        self.order.push(key.clone());
        self.taken.insert(key, event.clone());
        json_with(StatusCode::CREATED, event.to_string().into())
    }

    /// Applies a merge patch, which may change only the series.
    fn patch(&mut self, namespace: &str, name: &str, patch: &Value) -> Response<Body> {
        let Some(event) = self.taken.get_mut(&(namespace.to_owned(), name.to_owned())) else {
            return failure(StatusCode::NOT_FOUND, "NotFound", "no such event");
        };
        let only_series = patch.as_object().is_some_and(|fields| fields.keys().eq(["series"]));
        if !only_series || check_series(&patch["series"]).is_err() {
            return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "only a series changes");
        }
        event["series"] = patch["series"].clone();
        json_with(StatusCode::OK, event.to_string().into())
    }
}

/// Validates as `pkg/apis/core/validation/events.go` of Kubernetes 1.34 does for the new group.
fn check(namespace: &str, event: &Value) -> Result<(), &'static str> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let within = |field: &str, most: usize| (1..=most).contains(&text(&event[field]).len());
    let of = text(&event["regarding"]["namespace"]);
    let place = if of.is_empty() { "default".to_owned() } else { of };
    let checks = [
        (
            text(&event["metadata"]["namespace"]) == namespace,
            "metadata.namespace is not the path's",
        ),
        (place == namespace, "the event is not in its object's namespace"),
        ((1..=253).contains(&text(&event["metadata"]["name"]).len()), "metadata.name"),
        (text(&event["eventTime"]).contains('T'), "eventTime"),
        (within("reportingController", 128), "reportingController"),
        (within("reportingInstance", 128), "reportingInstance"),
        (within("action", 128), "action"),
        (within("reason", 128), "reason"),
        (text(&event["note"]).len() <= 1024, "note"),
        (["Normal", "Warning"].contains(&&*text(&event["type"])), "type"),
    ];
    if let Some((_, wrong)) = checks.iter().find(|(holds, _)| !holds) {
        return Err(wrong);
    }
    if event["series"].is_null() { Ok(()) } else { check_series(&event["series"]) }
}

fn check_series(series: &Value) -> Result<(), &'static str> {
    let repeats = series["count"].as_i64().is_some_and(|count| count >= 2);
    let when = series["lastObservedTime"].as_str().is_some_and(|time| time.contains('T'));
    if repeats && when { Ok(()) } else { Err("series") }
}

pub(crate) fn failure(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": message, "code": status.as_u16()});
    json_with(status, body.to_string().into())
}
