//! Changes as strategic-merge patches: a container is found by its name, and what is not named stays.

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

/// Limit and request as one, so that a Guaranteed pod stays one.
pub(crate) fn cpu_limit_and_request(container: &str, limit: f64) -> Value {
    let cpu = json!({ "cpu": cores(limit) });
    of_container(&json!({ "name": container, "resources": { "limits": cpu, "requests": cpu } }))
}

/// Of the pod itself, for all its containers (Kubernetes 1.34); with the request where the pod is Guaranteed.
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

/// A `valueFrom` that is there goes: Kubernetes refuses a variable that has both.
pub(crate) fn environment(container: &str, name: &str, value: &str) -> Value {
    of_container(&json!({ "name": container, "env": [{ "name": name, "value": value, "valueFrom": null }] }))
}

/// The patch of a container that stands in another list.
pub(crate) fn of_place(mut patch: Value, place: Place) -> Value {
    if place == Place::InitContainers
        && let Some(spec) = patch["spec"]["template"]["spec"].as_object_mut()
        && let Some(containers) = spec.remove("containers")
    {
        spec.insert("initContainers".to_owned(), containers);
    }
    patch
}

/// One patch of a pod from several; where two set the same field, the first holds.
#[must_use]
pub fn merged<'a>(patches: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut pod = json!({});
    for patch in patches {
        add(&mut pod, &patch["spec"]["template"]["spec"]);
    }
    (pod != json!({})).then(|| of_pod(&pod))
}

/// Takes over what is not there yet: fields, containers and variables of the environment, each by its name.
fn add(whole: &mut Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part {
                match whole.get_mut(name) {
                    Some(there) => add(there, value),
                    None => drop(whole.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            for value in part {
                match whole.iter_mut().find(|there| there["name"] == value["name"]) {
                    Some(there) => add(there, value),
                    None => whole.push(value.clone()),
                }
            }
        }
        _ => {}
    }
}

fn of_container(container: &Value) -> Value {
    of_pod(&json!({ "containers": [container] }))
}

fn of_pod(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}
