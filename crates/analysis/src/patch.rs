//! Changes as strategic-merge patches: containers are matched by name, and fields that are not
//! mentioned are kept.

use serde_json::{Value, json};

use crate::facts::Place;

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

/// Sets limit and request together, so that a Guaranteed pod remains Guaranteed.
pub(crate) fn cpu_limit_and_request(container: &str, limit: f64) -> Value {
    let cpu = json!({ "cpu": cores(limit) });
    of_container(&json!({ "name": container, "resources": { "limits": cpu, "requests": cpu } }))
}

/// Limit of the pod itself, for all its containers (Kubernetes 1.34); with the request if the pod
/// is Guaranteed.
pub(crate) fn pod_cpu_limit(limit: f64, is_guaranteed: bool) -> Value {
    let cpu = json!({ "cpu": cores(limit) });
    of_pod(
        &json!({ "resources": if is_guaranteed { json!({ "limits": cpu, "requests": cpu }) } else { json!({ "limits": cpu }) } }),
    )
}

pub(crate) fn cpu_request(container: &str, request: f64) -> Value {
    resource(container, "requests", "cpu", &cores(request))
}

pub(crate) fn memory_request(container: &str, bytes: u64) -> Value {
    resource(container, "requests", "memory", &bytes.to_string())
}

/// Removes an existing `valueFrom`: Kubernetes rejects a variable that has both.
pub(crate) fn environment(container: &str, name: &str, value: &str) -> Value {
    of_container(
        &json!({ "name": container, "env": [{ "name": name, "value": value, "valueFrom": null }] }),
    )
}

/// Several variables, each as [`environment`] sets it.
pub(crate) fn environments(container: &str, variables: &[(&str, &str)]) -> Value {
    let env = variables
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value, "valueFrom": null }));
    of_container(&json!({ "name": container, "env": env.collect::<Vec<_>>() }))
}

/// Moves the patch to the list of the spec that contains the container.
pub(crate) fn of_place(mut patch: Value, place: Place) -> Value {
    if place == Place::InitContainers
        && let Some(spec) = patch["spec"]["template"]["spec"].as_object_mut()
        && let Some(containers) = spec.remove("containers")
    {
        spec.insert("initContainers".to_owned(), containers);
    }
    patch
}

fn of_container(container: &Value) -> Value {
    of_pod(&json!({ "containers": [container] }))
}

fn of_pod(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}
