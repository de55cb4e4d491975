//! Object that a command is about: a pod, a workload, or a node.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::str::FromStr;

use serde_json::Value;

use crate::kubectl::{Error, Kubectl};

/// `NAME` (a pod), `TYPE/NAME`, or `node/NAME`, with all types and short names that kubectl knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(String);

/// A pod that has a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOnNode {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Name of its node.
    pub node: String,
}

/// The existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// One pod.
    Pod(PodOnNode),
    /// A workload with its pods.
    Workload(Workload),
    /// A namespace with its pods.
    Namespace {
        /// Its name.
        name: String,
        /// Its pods that have a node.
        pods: Vec<PodOnNode>,
    },
    /// Name of a node.
    Node(String),
    /// Names of all nodes with an agent.
    Cluster(Vec<String>),
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace of the workload and of its pods.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// Its pods that have a node; at least one.
    pub pods: Vec<PodOnNode>,
}

impl Resolved {
    /// The pods; empty for a node.
    #[must_use]
    pub fn pods(&self) -> &[PodOnNode] {
        match self {
            Self::Pod(pod) => std::slice::from_ref(pod),
            Self::Workload(workload) => &workload.pods,
            Self::Namespace { pods, .. } => pods,
            Self::Node(_) | Self::Cluster(_) => &[],
        }
    }

    /// Names of the nodes, each once.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<&str> {
        match self {
            Self::Node(name) => [name.as_str()].into(),
            Self::Cluster(nodes) => nodes.iter().map(String::as_str).collect(),
            _ => self.pods().iter().map(|pod| pod.node.as_str()).collect(),
        }
    }
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(if text.contains('/') { text.to_owned() } else { format!("pod/{text}") }))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Target {
    /// Reads the object, and the pods that its selector matches.
    ///
    /// # Errors
    /// The object does not exist, the user may not read it, or no pod of it has a node.
    pub fn resolve(&self, kubectl: &Kubectl) -> Result<Resolved, Error> {
        let object = kubectl.get(&[&self.0])?;
        match object["kind"].as_str() {
            Some("Node") => Ok(Resolved::Node(text(&object["metadata"]["name"]))),
            Some("Pod") => match pod(&object) {
                Some(pod) => Ok(Resolved::Pod(pod)),
                None => Err(Error::NoPods(format!("{self} is not scheduled to a node yet"))),
            },
            Some("Namespace") => namespace(kubectl, text(&object["metadata"]["name"])),
            Some("CronJob") => self.cron_job(&object, kubectl).map(Resolved::Workload),
            _ => self.workload(&object, kubectl).map(Resolved::Workload),
        }
    }

    /// The pods of a CronJob: those of Jobs with the name `<cronjob>-<minute>`, which its controller
    /// creates.
    fn cron_job(&self, object: &Value, kubectl: &Kubectl) -> Result<Workload, Error> {
        let [namespace, name] = ["namespace", "name"].map(|key| text(&object["metadata"][key]));
        let list = kubectl.get(&["pods", "--namespace", &namespace, "--selector", "job-name"])?;
        let is_its = |object: &&Value| {
            let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.any(|owner| {
                let job = owner["name"].as_str().unwrap_or_default();
                let minute = job.strip_prefix(&*name).and_then(|rest| rest.strip_prefix('-'));
                let is_minute = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                owner["kind"] == "Job" && minute.is_some_and(is_minute)
            })
        };
        let pods: Vec<_> = items(&list).iter().filter(is_its).filter_map(pod).collect();
        if pods.is_empty() {
            let reason =
                format!("no Job of {self} runs in namespace {namespace}; try again during a run");
            return Err(Error::NoPods(reason));
        }
        Ok(Workload { kind: "CronJob".to_owned(), namespace, name, pods })
    }

    fn workload(&self, object: &Value, kubectl: &Kubectl) -> Result<Workload, Error> {
        let selector = selector(&object["spec"]["selector"]).ok_or_else(|| {
            Error::NoPods(format!(
                "{self} has no selector of pods; use a pod, a Deployment, StatefulSet, DaemonSet, \
                 ReplicaSet, Job or CronJob, namespace/NAME or node/NAME"
            ))
        })?;
        let namespace = text(&object["metadata"]["namespace"]);
        let list = kubectl.get(&["pods", "--namespace", &namespace, "--selector", &selector])?;
        let pods: Vec<PodOnNode> = items(&list).iter().filter_map(pod).collect();
        if pods.is_empty() {
            let reason = format!("{self} has no running pods in namespace {namespace}");
            return Err(Error::NoPods(reason));
        }
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        Ok(Workload { kind, namespace, name, pods })
    }
}

/// The running pods of a namespace.
///
/// # Errors
/// The user may not list them, or there are none.
pub(crate) fn namespace(kubectl: &Kubectl, name: String) -> Result<Resolved, Error> {
    let list = kubectl.get(&["pods", "--namespace", &name])?;
    let pods: Vec<_> = items(&list).iter().filter_map(pod).collect();
    if pods.is_empty() {
        return Err(Error::NoPods(format!("no running pods in namespace {name}")));
    }
    Ok(Resolved::Namespace { name, pods })
}

/// The elements of a list that kubectl printed.
pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A pod that has a node and has not ended.
pub(crate) fn pod(object: &Value) -> Option<PodOnNode> {
    if matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let node = object["spec"]["nodeName"].as_str()?.to_owned();
    let metadata = &object["metadata"];
    let [namespace, name, uid] = ["namespace", "name", "uid"].map(|key| text(&metadata[key]));
    Some(PodOnNode { namespace, name, uid, node })
}

/// A label selector (`metav1.LabelSelector`) in the form of `kubectl --selector`; `None` if it
/// selects nothing in particular.
fn selector(selector: &Value) -> Option<String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        labels.map(|(name, value)| format!("{name}={}", text(value))).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str()?;
        let values = expression["values"].as_array().into_iter().flatten();
        let values = values.map(text).collect::<Vec<_>>().join(",");
        terms.push(match expression["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!terms.is_empty()).then(|| terms.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_without_a_type_is_a_pod() {
        assert_eq!("web-1".parse::<Target>().unwrap().to_string(), "pod/web-1");
        assert_eq!("deploy/web".parse::<Target>().unwrap().to_string(), "deploy/web");
    }

    #[test]
    fn a_selector_keeps_labels_and_expressions() {
        let both = json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["a", "b"] },
                { "key": "track", "operator": "NotIn", "values": ["canary"] },
                { "key": "team", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        });
        let text = selector(&both).unwrap();
        assert_eq!(text, "app=web,tier in (a,b),track notin (canary),team,!old");
        assert_eq!(selector(&json!({})), None, "an empty selector would match all pods");
        let unknown = json!({ "matchExpressions": [{ "key": "a", "operator": "Later" }] });
        assert_eq!(selector(&unknown), None);
    }

    #[test]
    fn ended_and_unscheduled_pods_are_left_out() {
        let object = |phase: &str, node: Value| {
            json!({
                "metadata": { "namespace": "shop", "name": "web-1", "uid": "1" },
                "spec": { "nodeName": node },
                "status": { "phase": phase },
            })
        };
        assert!(pod(&object("Succeeded", json!("a"))).is_none());
        assert!(pod(&object("Pending", Value::Null)).is_none());
        assert_eq!(pod(&object("Running", json!("a"))).unwrap().node, "a");
    }
}
