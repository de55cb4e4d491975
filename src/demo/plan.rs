//! The pods of the real stage: who they are, what they may use, and what they do.

use std::time::Duration;

use pods::path::{CgroupPath, ContainerCgroup, Partition, PodCgroup, QosClass, Runtime, kubepods_root};
use serde_json::{Value, json};

use super::workload::Workload;
use crate::config::Span;

/// Name of the stage's node.
pub(super) const NODE: &str = "cpuwarden-demo";
/// CFS period of every quota, as Kubernetes sets it.
pub(super) const PERIOD_USEC: u64 = 100_000;

/// About a second, but no multiple of the period: else each burst meets the quota's refill at the same point, which in
/// some runs lies so that no burst is ever throttled.
const BURST_EVERY: Duration = Duration::from_millis(1030);

/// A pod of one container.
pub(super) struct Pod {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) container: &'static str,
    /// Number that its UID and its container's id are made of.
    number: u8,
    pub(super) qos: QosClass,
    /// CPU request, thousandths of a core.
    pub(super) request_milli: u64,
    pub(super) limit: Limit,
    pub(super) workload: Workload,
}

/// Where a CPU limit stands, thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    Container(u64),
    /// Pod-level resources (`spec.resources`): the quota is on the pod's cgroup alone.
    Pod(u64),
}

/// All pods. `shared_cpu` is where the two neighbours meet.
pub(super) fn pods(shared_cpu: usize) -> Vec<Pod> {
    let spin = || Workload::Spin { cpu: None };
    let neighbour = || Workload::Spin { cpu: Some(shared_cpu) };
    let burst = Workload::Burst { busy: Span(Duration::from_millis(30)), every: Span(BURST_EVERY) };
    let pod = |number, namespace, name, container, workload| Pod {
        namespace,
        name,
        container,
        number,
        qos: QosClass::Burstable,
        request_milli: 100,
        limit: Limit::None,
        workload,
    };
    vec![
        Pod { request_milli: 200, limit: Limit::Container(200), ..pod(1, "shop", "checkout", "spinner", spin()) },
        Pod { limit: Limit::Container(200), ..pod(2, "shop", "thumbnails", "burst", burst) },
        Pod { request_milli: 300, ..pod(3, "search", "index", "neighbor-a", neighbour()) },
        Pod { request_milli: 100, ..pod(4, "batch", "encode", "neighbor-b", neighbour()) },
        Pod {
            qos: QosClass::Guaranteed,
            request_milli: 500,
            limit: Limit::Container(500),
            ..pod(5, "shop", "mailer", "idle", Workload::Idle)
        },
        Pod { request_milli: 300, limit: Limit::Pod(300), ..pod(6, "data", "ingest", "pod-quota", spin()) },
    ]
}

impl Pod {
    fn uid(&self) -> String {
        format!("de300000-0000-4000-8000-{:012}", self.number)
    }

    fn container_id(&self) -> String {
        format!("{:064x}", self.number)
    }

    fn pod_cgroup(&self) -> PodCgroup {
        let root = kubepods_root("kubepods").expect("the name of the cgroupfs driver's top");
        PodCgroup { uid: self.uid().into(), qos: self.qos, partition: Partition::Default, root }
    }

    /// Path of the pod's cgroup below kubepods.
    pub(super) fn pod_path(&self) -> String {
        CgroupPath::Pod(self.pod_cgroup()).to_string()
    }

    /// Path of the container's cgroup below kubepods.
    pub(super) fn container_path(&self) -> String {
        let id = self.container_id().into();
        CgroupPath::Container(ContainerCgroup { pod: self.pod_cgroup(), id, runtime: Runtime::Unnamed }).to_string()
    }

    fn object(&self) -> Value {
        let cpu = |milli: u64| json!({ "cpu": format!("{milli}m") });
        let mut container = json!({ "requests": cpu(self.request_milli) });
        let mut spec = json!({ "nodeName": NODE });
        match self.limit {
            Limit::None => {}
            Limit::Container(milli) => container["limits"] = cpu(milli),
            Limit::Pod(milli) => spec["resources"] = json!({ "limits": cpu(milli) }),
        }
        let image = format!("example.com/{}/{}:1", self.namespace, self.name);
        spec["containers"] = json!([{ "name": self.container, "image": image, "resources": container }]);
        json!({
            "metadata": { "namespace": self.namespace, "name": self.name, "uid": self.uid() },
            "spec": spec,
            "status": {
                "phase": "Running",
                "qosClass": self.qos.as_str(),
                "containerStatuses": [{
                    "name": self.container,
                    "image": image,
                    "containerID": format!("containerd://{}", self.container_id()),
                    "restartCount": 0,
                    "state": { "running": {} },
                }],
            },
        })
    }
}

/// The kubelet's answer to `/pods`.
pub(super) fn pod_list() -> Vec<u8> {
    let items: Vec<Value> = pods(0).iter().map(Pod::object).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }).to_string().into_bytes()
}
