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

/// Of the pod itself, for all its containers (Kubernetes 1.34).
pub(crate) fn pod_cpu_limit(limit: f64) -> Value {
    of_pod(&json!({ "resources": { "limits": { "cpu": cores(limit) } } }))
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

/// One patch of a container, and of its pod, from several; where two set the same field, the first holds.
#[must_use]
pub fn merged<'a>(patches: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let (mut of_containers, mut pod) = (json!({}), json!({}));
    for patch in patches {
        let part = &patch["spec"]["template"]["spec"];
        add(&mut pod, &json!({ "resources": part["resources"] }));
        add(&mut of_containers, &part["containers"][0]);
    }
    // The name alone is no change.
    if of_containers.as_object().is_some_and(|fields| fields.len() > 1) {
        pod["containers"] = json!([of_containers]);
    }
    (pod != json!({})).then(|| of_pod(&pod))
}

/// Takes over what is not there yet: fields by their names, variables of the environment by theirs.
fn add(whole: &mut Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part.iter().filter(|(_, value)| !value.is_null()) {
                match whole.get_mut(name) {
                    Some(there) => add(there, value),
                    None => drop(whole.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            let new = part.iter().filter(|value| whole.iter().all(|there| there["name"] != value["name"]));
            let new: Vec<_> = new.cloned().collect();
            whole.extend(new);
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
