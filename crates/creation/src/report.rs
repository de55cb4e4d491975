//! Conversion of the runtime's pods and containers to those of the pod sources.

use std::collections::BTreeMap;

use kernel_text::CpuSet;
use kubepods::model::Resources;
use kubepods::path::QosClass;
use kubepods::wire::{Annotations, Metadata, WirePod, WireStatus};
use nri::api::{Container, LinuxResources, PodSandbox};
use pod_sources::{CreatedContainer, Sandbox};

/// Shares that the kubelet sets without a request (`MinShares`).
const MIN_SHARES: u64 = 2;

/// Prefix of the variable by which the DRA driver for CPUs marks the containers that it places
/// (`DRA_CPUSET_<claim>=0,1`).
pub(crate) const DRA_VARIABLE: &str = "DRA_CPUSET_";

pub(crate) fn container_of(pod: &PodSandbox, container: &Container) -> CreatedContainer {
    CreatedContainer {
        pod_uid: pod.uid.clone(),
        name: container.name.clone(),
        id: container.id.clone(),
        claimed_cpus: claimed_cpus(&container.env),
    }
}

/// Most text of a container's claims. Every author of a pod can set the variable, so it is parsed
/// once and bounded.
const CLAIMS_BYTES: usize = 4 << 10;

/// CPUs of the container's claims, as the DRA driver for CPUs passes them; `None` without a claim
/// or if one is invalid.
fn claimed_cpus(env: &[String]) -> Option<Box<str>> {
    let claims = env.iter().filter_map(|pair| pair.strip_prefix(DRA_VARIABLE)?.split_once('='));
    let (mut all, mut bytes) = (None, 0);
    for (_, cpus) in claims {
        bytes += cpus.len();
        if bytes > CLAIMS_BYTES {
            return None;
        }
        let cpus: CpuSet = cpus.parse().ok()?;
        all = Some(all.map_or_else(|| cpus.clone(), |all: CpuSet| all.union(&cpus)));
    }
    all.map(|cpus| cpus.to_string().into())
}

pub(crate) fn sandbox_of(pod: &PodSandbox) -> Sandbox {
    let linux = pod.linux.as_ref();
    let text = |text: &String| text.as_str().into();
    let labels = pod.labels.iter().map(|(key, value)| (text(key), text(value)));
    let metadata = Metadata {
        name: text(&pod.name),
        namespace: text(&pod.namespace),
        uid: text(&pod.uid),
        labels: labels.collect(),
        annotations: annotations(&pod.annotations),
        ..Metadata::default()
    };
    let class = linux.and_then(|linux| qos_class(&linux.cgroup_parent));
    let qos_class = class.map(|class| class.as_str().into());
    let status = WireStatus { qos_class, ..WireStatus::default() };
    Sandbox {
        id: pod.id.clone(),
        pod: WirePod { metadata, status, ..WirePod::default() },
        resources: resources(linux.and_then(|linux| linux.pod_resources.as_ref())),
    }
}

/// The annotations that are kept of a listed pod.
fn annotations(all: &BTreeMap<String, String>) -> Annotations {
    Annotations::from_keys(|key| all.get(key).map(|text| text.as_str().into()))
}

/// The QoS class by the pod's cgroup: `/kubepods/burstable/pod<uid>`, or
/// `kubepods-burstable-pod<uid>.slice`.
fn qos_class(cgroup: &str) -> Option<QosClass> {
    // A pod's UID has no letters beyond f.
    let mut words = cgroup.split(['/', '-', '_', '.']);
    match words.clone().find(|word| matches!(*word, "burstable" | "besteffort")) {
        Some("burstable") => Some(QosClass::Burstable),
        Some(_) => Some(QosClass::BestEffort),
        None => words.any(|word| word == "kubepods").then_some(QosClass::Guaranteed),
    }
}

/// Requests and limits, from what the kubelet made of them.
pub(crate) fn resources(linux: Option<&LinuxResources>) -> Resources {
    let cpu = linux.and_then(|linux| linux.cpu.as_ref());
    let memory = linux.and_then(|linux| linux.memory.as_ref()?.limit.as_ref());
    let shares = cpu.and_then(|cpu| cpu.shares.as_ref()).map(|shares| shares.value);
    let quota = cpu.and_then(|cpu| cpu.quota.as_ref()).and_then(|quota| positive(quota.value));
    let period = cpu.and_then(|cpu| cpu.period.as_ref()).map(|period| period.value);
    let limit = quota.zip(period.filter(|&period| period > 0));
    Resources {
        cpu_request_millis: shares.and_then(request_of_shares),
        cpu_limit_millis: limit.map(|(quota, period)| quota.saturating_mul(1000) / period),
        memory_request_bytes: None,
        memory_limit_bytes: memory.and_then(|limit| positive(limit.value)),
    }
}

/// The CPU request, thousandths of a core, that the kubelet made these shares of; `None` without
/// one. It rounds down to shares, 1024 for a CPU: rounding up restores the request.
pub(crate) fn request_of_shares(shares: u64) -> Option<u64> {
    (shares > MIN_SHARES).then(|| shares.saturating_mul(1000).div_ceil(1024))
}

/// A value that is a limit: 0 and -1 mean none.
fn positive(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|&value| value > 0)
}

#[cfg(test)]
mod tests {
    use nri::api::{LinuxCpu, LinuxPodSandbox, OptionalInt64, OptionalUInt64};

    use super::*;

    fn cpu(shares: u64, quota: i64) -> LinuxResources {
        let cpu = LinuxCpu {
            shares: Some(OptionalUInt64 { value: shares }),
            quota: Some(OptionalInt64 { value: quota }),
            period: Some(OptionalUInt64 { value: 100_000 }),
            ..LinuxCpu::default()
        };
        LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
    }

    #[test]
    fn requests_and_limits_are_restored_from_shares_and_quota() {
        for millis in [3, 10, 100, 250, 999, 1000, 1500, 1999, 2000, 7000, 64_000] {
            // `MilliCPUToShares` and `MilliCPUToQuota` of the kubelet.
            let made = cpu(millis * 1024 / 1000, i64::try_from(millis * 100).unwrap());
            let resources = resources(Some(&made));
            assert_eq!(resources.cpu_request_millis, Some(millis));
            assert_eq!(resources.cpu_limit_millis, Some(millis));
        }
        assert_eq!(resources(Some(&cpu(2, -1))), Resources::default());
        assert_eq!(resources(Some(&cpu(2, 0))), Resources::default());
        assert_eq!(resources(None), Resources::default());
    }

    #[test]
    fn claimed_cpus_are_those_of_all_claims() {
        let claimed = |env: &[&str]| {
            let env: Vec<String> = env.iter().map(|pair| (*pair).to_owned()).collect();
            claimed_cpus(&env).map(String::from)
        };
        assert_eq!(claimed(&["PATH=/bin", "MY_DRA_CPUSET_1=0", "DRA_CPUSET_1"]), None);
        let env = ["DRA_CPUSET_4f2a=0,1", "PATH=/bin", "DRA_CPUSET_5b1c=4-5"];
        assert_eq!(claimed(&env).as_deref(), Some("0-1,4-5"));
        assert_eq!(claimed(&["DRA_CPUSET_4f2a=all"]), None);
        let long = format!("DRA_CPUSET_4f2a={}0", "0,".repeat(500_000));
        assert_eq!(claimed(&[&long]), None, "a megabyte");
    }

    #[test]
    fn the_class_is_that_of_the_cgroup() {
        let cases = [
            ("/kubepods/burstable/podu", Some(QosClass::Burstable)),
            ("/kubepods/besteffort/podu", Some(QosClass::BestEffort)),
            ("/kubepods/podu", Some(QosClass::Guaranteed)),
            ("/kubelet/kubepods/podu", Some(QosClass::Guaranteed)),
            ("kubepods-burstable-podu.slice", Some(QosClass::Burstable)),
            ("kubepods-besteffort-podu.slice", Some(QosClass::BestEffort)),
            ("kubepods-podu.slice", Some(QosClass::Guaranteed)),
            ("/system.slice", None),
            ("", None),
        ];
        for (cgroup, expected) in cases {
            assert_eq!(qos_class(cgroup), expected, "{cgroup}");
        }
    }

    #[test]
    fn a_sandbox_has_the_names_labels_and_requests_of_its_pod() {
        let map = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let linux = LinuxPodSandbox {
            cgroup_parent: "/kubepods/podu".into(),
            pod_resources: Some(cpu(2048, 200_000)),
            ..LinuxPodSandbox::default()
        };
        let sandbox = sandbox_of(&PodSandbox {
            id: "s".into(),
            uid: "u".into(),
            namespace: "shop".into(),
            name: "cart".into(),
            labels: map("koordinator.sh/qosClass", "LSR"),
            annotations: map("scheduling.koordinator.sh/resource-spec", "{}"),
            linux: Some(linux),
            ..PodSandbox::default()
        });
        let keep = kubepods::LabelKeys::Only([].into());
        let pod = kubepods::from_wire(sandbox.pod, &keep);
        assert_eq!((&*pod.uid, &*pod.namespace, &*pod.name), ("u", "shop", "cart"));
        assert_eq!(pod.qos_class, Some(QosClass::Guaranteed));
        assert_eq!(pod.pinning.qos_class.as_deref(), Some("LSR"));
        assert_eq!(pod.pinning.resource_spec.as_deref(), Some("{}"));
        assert_eq!(sandbox.resources.cpu_limit_millis, Some(2000));
    }
}
