//! The pods of the real stage: names, resources and workloads.

use std::time::Duration;

use kubepods::path::{
    CgroupPath, ContainerCgroup, Partition, PodCgroup, QosClass, Runtime, kubepods_root,
};
use serde_json::{Value, json};
use testkit::Workload;

/// Name of the stage's node.
pub(super) const NODE: &str = "cpuwarden-demo";
/// CFS period of every quota, as Kubernetes sets it.
pub(super) const PERIOD_USEC: u64 = 100_000;

/// About a second, but not a multiple of the period. Otherwise each burst would meet the quota's
/// refill at the same point, which in some runs means that no burst is ever throttled.
const BURST_EVERY: Duration = Duration::from_millis(1030);

/// A pod of one container.
pub(super) struct Pod {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) container: &'static str,
    /// Number from which its UID and its container's id are derived.
    number: u8,
    pub(super) qos: QosClass,
    /// CPU request, millicores.
    pub(super) request_milli: u64,
    pub(super) limit: Limit,
    pub(super) workload: Workload,
    /// The only CPU that it may use.
    pub(super) cpu: Option<usize>,
}

/// Position of a CPU limit, millicores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    Container(u64),
    /// Pod-level resources (`spec.resources`): only the pod's cgroup has a quota.
    Pod(u64),
}

/// All pods. `shared_cpu` is the CPU that the two neighbors share.
pub(super) fn pods(shared_cpu: usize) -> Vec<Pod> {
    let burst = Workload::Burst { threads: 1, cpu: Duration::from_millis(30), every: BURST_EVERY };
    let pod = |number, namespace, name, container, workload| Pod {
        namespace,
        name,
        container,
        number,
        qos: QosClass::Burstable,
        request_milli: 100,
        limit: Limit::None,
        workload,
        cpu: None,
    };
    let neighbor = |pod| Pod { cpu: Some(shared_cpu), ..pod };
    vec![
        Pod {
            request_milli: 200,
            limit: Limit::Container(200),
            ..pod(1, "shop", "checkout", "spinner", Workload::Roam)
        },
        Pod { limit: Limit::Container(200), ..pod(2, "shop", "thumbnails", "burst", burst) },
        Pod {
            request_milli: 300,
            ..neighbor(pod(3, "search", "index", "neighbor-a", Workload::Roam))
        },
        neighbor(pod(4, "batch", "encode", "neighbor-b", Workload::Roam)),
        Pod {
            qos: QosClass::Guaranteed,
            request_milli: 500,
            limit: Limit::Container(500),
            ..pod(5, "shop", "mailer", "idle", Workload::Idle)
        },
        Pod {
            request_milli: 300,
            limit: Limit::Pod(300),
            ..pod(6, "data", "ingest", "pod-quota", Workload::Roam)
        },
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

    /// Path of the pod's cgroup, relative to kubepods.
    pub(super) fn pod_path(&self) -> String {
        CgroupPath::Pod(self.pod_cgroup()).to_string()
    }

    /// Path of the container's cgroup, relative to kubepods.
    pub(super) fn container_path(&self) -> String {
        let id = self.container_id().into();
        CgroupPath::Container(ContainerCgroup {
            pod: self.pod_cgroup(),
            id,
            runtime: Runtime::Unnamed,
        })
        .to_string()
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
        spec["containers"] =
            json!([{ "name": self.container, "image": image, "resources": container }]);
        // So that the advice names the workload to change.
        let owner = json!({ "kind": "StatefulSet", "name": self.name, "controller": true });
        json!({
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid(),
                "ownerReferences": [owner],
            },
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

/// The kubelet's response to `/pods`.
pub(super) fn pod_list() -> Vec<u8> {
    let items: Vec<Value> = pods(0).iter().map(Pod::object).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
        .to_string()
        .into_bytes()
}
