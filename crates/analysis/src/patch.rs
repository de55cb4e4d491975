//! Changes as strategic-merge patches: a container is found by its name, and what is not named stays.

use serde_json::{Value, json};

/// Cores as a Kubernetes quantity, rounded up to a millicore.
fn cores(cores: f64) -> String {
    format!("{}m", (cores * 1000.0 - 1e-6).ceil() as u64)
}

/// Sets a resource of a container: `section` is `limits` or `requests`.
fn resource(container: &str, section: &str, name: &str, quantity: &str) -> Value {
    of_container(&json!({ "name": container, "resources": { section: { name: quantity } } }))
}

pub(crate) fn cpu_limit(container: &str, limit: f64) -> Value {
    resource(container, "limits", "cpu", &cores(limit))
}

pub(crate) fn cpu_request(container: &str, request: f64) -> Value {
    resource(container, "requests", "cpu", &cores(request))
}

pub(crate) fn memory_request(container: &str, bytes: u64) -> Value {
    resource(container, "requests", "memory", &bytes.to_string())
}

pub(crate) fn environment(container: &str, name: &str, value: &str) -> Value {
    of_container(&json!({ "name": container, "env": [{ "name": name, "value": value }] }))
}

fn of_container(container: &Value) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
}
