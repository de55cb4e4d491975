//! The changes of the advice as one patch of a workload, and the command that applies it.

use serde_json::{Value, json};

use crate::advice::ContainerReport;

/// Kinds of workloads whose template `kubectl patch` can change. A Rollout is a custom resource,
/// whose lists of containers it would replace.
const PATCHED: [&str; 4] = ["Deployment", "StatefulSet", "DaemonSet", "CronJob"];

/// Merges several patches of a pod; if two set the same field, the first wins.
#[must_use]
pub fn merged<'a>(patches: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut pod = json!({});
    for patch in patches {
        add(&mut pod, &patch["spec"]["template"]["spec"]);
    }
    (pod != json!({})).then(|| json!({ "spec": { "template": { "spec": pod } } }))
}

/// Adds missing fields, containers and environment variables; the latter two are matched by name.
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

/// The quantity of a container that a patch sets, such as `limits`, `cpu`.
#[must_use]
pub fn patched_quantity<'a>(
    patch: &'a Value,
    container: &str,
    section: &str,
    name: &str,
) -> Option<&'a str> {
    let pod = &patch["spec"]["template"]["spec"];
    let lists = [&pod["containers"], &pod["initContainers"]].map(Value::as_array);
    let found = lists.into_iter().flatten().flatten().find(|one| one["name"] == container)?;
    found["resources"][section][name].as_str()
}

/// All changes of a pod's containers as one patch of its workload; `None` without a change.
#[must_use]
pub fn pod_patch(pod: &[ContainerReport]) -> Option<Value> {
    let findings = pod.iter().flat_map(|row| &row.findings);
    merged(findings.filter_map(|finding| finding.patch.as_ref()))
}

/// The command that applies [`pod_patch`]; `None` without a change, or if the pod's workload is
/// unknown or has a template that cannot be changed.
#[must_use]
pub fn pod_patch_command(pod: &[ContainerReport]) -> Option<String> {
    let row = pod.first()?;
    let workload = row.workload.as_ref()?;
    patch_command(&row.namespace, &workload.kind, &workload.name, &pod_patch(pod)?)
}

/// The patch of a workload of this kind: the template of a CronJob is in the one of its Jobs.
#[must_use]
pub fn of_kind(kind: &str, patch: &Value) -> Value {
    match kind {
        "CronJob" => json!({ "spec": { "jobTemplate": patch } }),
        _ => patch.clone(),
    }
}

/// The command that applies a patch to a workload; `None` if its template cannot be changed.
#[must_use]
pub fn patch_command(namespace: &str, kind: &str, name: &str, patch: &Value) -> Option<String> {
    // A name that no API server accepts must not become part of a command.
    if !PATCHED.contains(&kind) || !is_plain(namespace) || !is_plain(name) {
        return None;
    }
    let patch = of_kind(kind, patch);
    let kind = kind.to_lowercase();
    // In single quotes, as a shell reads it.
    let patch = patch.to_string().replace('\'', r"'\''");
    Some(format!("kubectl --namespace {namespace} patch {kind} {name} --patch '{patch}'"))
}

/// Whether a shell reads this name of an object as it is.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_quotes_the_patch_for_a_shell() {
        let command = patch_command("shop", "Deployment", "web", &json!({"name": "it's"}));
        assert_eq!(
            command.unwrap(),
            r#"kubectl --namespace shop patch deployment web --patch '{"name":"it'\''s"}'"#
        );
    }

    #[test]
    fn the_patch_of_a_cron_job_is_that_of_its_jobs() {
        let command = patch_command("shop", "CronJob", "report", &json!({ "spec": {} })).unwrap();
        let patch = r#"{"spec":{"jobTemplate":{"spec":{}}}}"#;
        let expected = format!("kubectl --namespace shop patch cronjob report --patch '{patch}'");
        assert_eq!(command, expected);
    }

    #[test]
    fn only_plain_names_and_templates_that_can_change_make_a_command() {
        let patch = json!({});
        for kind in ["Job", "Rollout", "Pod"] {
            assert_eq!(patch_command("shop", kind, "web", &patch), None);
        }
        for name in ["", "a; rm -rf b", "$(id)", "--all", "a b", "a'b", "a\nb"] {
            assert_eq!(patch_command("shop", "Deployment", name, &patch), None, "{name:?}");
            assert_eq!(patch_command(name, "Deployment", "web", &patch), None, "{name:?}");
        }
        assert!(patch_command("kube-system", "DaemonSet", "a.b-1", &patch).is_some());
    }
}
