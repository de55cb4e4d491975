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

/// One patch of a container from several; where two set the same field, the first holds.
#[must_use]
pub fn merged<'a>(container: &str, patches: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut whole = json!({ "name": container });
    for patch in patches {
        let part = &patch["spec"]["template"]["spec"]["containers"][0];
        for (path, quantity) in ["/resources/limits", "/resources/requests"].map(|path| (path, part.pointer(path))) {
            let section = path.trim_start_matches("/resources/");
            for (name, quantity) in quantity.and_then(Value::as_object).into_iter().flatten() {
                if whole["resources"][section].get(name).is_none() {
                    whole["resources"][section][name] = quantity.clone();
                }
            }
        }
        for variable in part["env"].as_array().into_iter().flatten() {
            let set = whole["env"].as_array().cloned().unwrap_or_default();
            if set.iter().all(|other| other["name"] != variable["name"]) {
                whole["env"] = set.into_iter().chain([variable.clone()]).collect();
            }
        }
    }
    // Looking into an absent field leaves a null.
    whole.as_object_mut()?.retain(|_, value| !value.is_null());
    (whole.as_object()?.len() > 1).then(|| of_container(&whole))
}

fn of_container(container: &Value) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
}
