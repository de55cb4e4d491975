//! The QoS class of a pod once its patches are applied (`ComputePodQOS` in
//! pkg/apis/core/v1/helper/qos).

use api::{ContainerReport, patched_quantity, pod_patch};
use kubepods::model::Resources;
use kubepods::quantity::{millicores, whole};
use snapshot::ContainerRow;

/// Adds to the reports of these rows what their patches do to the class of their pods.
pub(crate) fn add_changes(rows: &[&ContainerRow], reports: &mut [ContainerReport]) {
    let name = |row: &ContainerRow| (row.identity.namespace.clone(), row.identity.pod.clone());
    let mut rest = reports;
    for pod in rows.chunk_by(|a, b| name(a) == name(b)) {
        let (of_pod, others) = rest.split_at_mut(pod.len().min(rest.len()));
        let change = change(pod, of_pod);
        let is_patched = |report: &&mut ContainerReport| {
            report.findings.iter().any(|finding| finding.patch.is_some())
        };
        for report in of_pod.iter_mut().filter(is_patched) {
            report.qos_change.clone_from(&change);
        }
        rest = others;
    }
}

/// The change of a pod's class, as text.
fn change(rows: &[&ContainerRow], reports: &[ContainerReport]) -> Option<String> {
    let first = rows.first()?;
    let (class, spec) = (&*first.identity.qos_class, first.spec?);
    // Resources of the pod itself decide alone, and patches keep them equal if they are.
    if class.is_empty() || spec.pod != Resources::default() {
        return None;
    }
    let patch = pod_patch(reports)?;
    let (mut guaranteed, mut is_set) = (i64::from(spec.guaranteed), class != "BestEffort");
    for row in rows {
        let Some(spec) = row.spec else { continue };
        let set = |section, name| patched_quantity(&patch, &row.identity.container, section, name);
        let cpu = |section| set(section, "cpu").and_then(|text| millicores(text).ok());
        let memory = |section| set(section, "memory").and_then(|text| whole(text).ok());
        let before = spec.resources;
        let after = Resources {
            cpu_request_millis: cpu("requests").or(before.cpu_request_millis),
            cpu_limit_millis: cpu("limits").or(before.cpu_limit_millis),
            memory_request_bytes: memory("requests").or(before.memory_request_bytes),
            memory_limit_bytes: memory("limits").or(before.memory_limit_bytes),
        };
        guaranteed += i64::from(after.is_guaranteed()) - i64::from(before.is_guaranteed());
        is_set |= after != Resources::default();
    }
    let after = match is_set {
        true if guaranteed == i64::from(spec.containers) => "Guaranteed",
        true => "Burstable",
        false => "BestEffort",
    };
    (after != class).then(|| format!("{class} to {after}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use analysis::{Facts, Spec, findings};
    use api::CpuAdvice;
    use snapshot::{ContainerIdentity, Limit, SpecRow};

    use super::*;

    /// The change by the findings of a container with these resources, in a pod with `others`
    /// further containers, of which none or all are equal in limits and requests.
    fn change_of(class: &str, resources: Resources, others: u32, equal: bool) -> Option<String> {
        let identity = ContainerIdentity {
            namespace: "shop".into(),
            pod: "cart".into(),
            container: "app".into(),
            qos_class: class.into(),
            ..ContainerIdentity::default()
        };
        let guaranteed = u32::from(resources.is_guaranteed()) + if equal { others } else { 0 };
        let spec = SpecRow { resources, containers: others + 1, guaranteed, ..SpecRow::default() };
        let row = ContainerRow {
            identity: Arc::new(identity),
            spec: Some(spec),
            ..ContainerRow::default()
        };
        let facts = Facts {
            container: "app".into(),
            spec: Some(Spec::default()),
            request_cores: resources.cpu_request_millis.map(|millis| millis as f64 / 1000.0),
            memory_limit: resources.memory_limit_bytes.map_or(Limit::Unlimited, Limit::Limited),
            memory_request: resources.memory_request_bytes,
            cpu: CpuAdvice { request_cores: Some(0.5), ..CpuAdvice::default() },
            ..Facts::default()
        };
        let report = ContainerReport {
            namespace: "shop".into(),
            pod: "cart".into(),
            container: "app".into(),
            findings: findings(&facts),
            ..ContainerReport::default()
        };
        let mut reports = [report];
        add_changes(&[&row], &mut reports);
        reports[0].qos_change.clone()
    }

    #[test]
    fn a_patch_that_moves_the_pod_to_another_class_is_noted() {
        let none = Resources::default();
        let to = |change: &str| Some(change.to_owned());
        assert_eq!(change_of("BestEffort", none, 0, false), to("BestEffort to Burstable"));
        assert_eq!(change_of("Burstable", none, 1, false), None, "another container requests");
        let equal_cpu = Resources {
            cpu_request_millis: Some(500),
            cpu_limit_millis: Some(500),
            memory_request_bytes: Some(1 << 20),
            memory_limit_bytes: Some(1 << 30),
        };
        let guaranteed = to("Burstable to Guaranteed");
        assert_eq!(change_of("Burstable", equal_cpu, 0, false), guaranteed);
        assert_eq!(change_of("Burstable", equal_cpu, 2, true), guaranteed);
        assert_eq!(change_of("Burstable", equal_cpu, 2, false), None);
        let without_limit = Resources { cpu_limit_millis: None, ..equal_cpu };
        assert_eq!(change_of("Burstable", without_limit, 0, false), None);
    }
}
