//! The audit log of the API server.

use std::collections::BTreeMap;

use serde_json::Value;

use xtask::cluster::ensure;
use xtask::cluster::{Cluster, ClusterError};

pub(super) const AGENT: &str = "system:serviceaccount:cpuwarden:cpuwarden";

/// Counts requests of the agent's account: there is none. What the kubelet asks about it is the
/// kubelet's request.
pub(super) fn agent_asks_nothing_of_the_api_server(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let log = cluster.audit_log()?;
    let requests = requests_of(&log, AGENT);
    ensure(requests.is_empty(), || format!("requests of {AGENT}: {requests:?}"))?;
    let reviews =
        |resource: &str| log.iter().filter(|event| is_kubelet_review(event, resource)).count();
    let (tokens, access) = (reviews("tokenreviews"), reviews("subjectaccessreviews"));
    ensure(tokens > 0 && access > 0, || {
        format!("the kubelet asked for {tokens} and {access} reviews")
    })?;
    Ok(format!(
        "0 of {} requests are the agent's; reviews of the kubelet: {tokens} TokenReview, {access} SubjectAccessReview",
        log.len()
    ))
}

/// Requests of a user by verb and path, with their number.
pub(super) fn requests_of(log: &[Value], user: &str) -> BTreeMap<String, usize> {
    let mut requests = BTreeMap::new();
    for event in log.iter().filter(|event| event["user"]["username"] == user) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        *requests.entry(format!("{} {}", text("verb"), text("requestURI"))).or_default() += 1;
    }
    requests
}

fn is_kubelet_review(event: &Value, resource: &str) -> bool {
    let is_kubelet =
        event["user"]["username"].as_str().is_some_and(|user| user.starts_with("system:node:"));
    is_kubelet && event["objectRef"]["resource"] == resource && event["verb"] == "create"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_counted_by_user() {
        let log = [
            json!({"user": {"username": AGENT}, "verb": "list", "requestURI": "/api/v1/pods"}),
            json!({"user": {"username": AGENT}, "verb": "list", "requestURI": "/api/v1/pods"}),
            json!({"user": {"username": "system:node:node"}, "verb": "create",
                   "objectRef": {"resource": "tokenreviews"}}),
        ];
        assert_eq!(requests_of(&log, AGENT), [("list /api/v1/pods".to_owned(), 2)].into());
        assert!(
            is_kubelet_review(&log[2], "tokenreviews")
                && !is_kubelet_review(&log[0], "tokenreviews")
        );
    }
}
