//! Containers with their pods.

use crate::rules::{Ineligible, PodBurst};
use kubepods::model::{Container, Pod};
use snapshot::ContainerRow;

use crate::inputs::Inputs;
use crate::want::MIN_QUOTA_USEC;

/// A container with its pod.
pub(super) struct Member<'a> {
    pub(super) row: &'a ContainerRow,
    pub(super) pod: &'a Pod,
    /// The container in the pod's spec.
    spec: &'a Container,
    pub(super) request: Option<PodBurst>,
    pub(super) is_exclusive: bool,
}

impl<'a> Member<'a> {
    /// Finds the pod of a row.
    ///
    /// # Errors
    /// The reason why the container cannot burst.
    pub(super) fn of(row: &'a ContainerRow, inputs: &'a Inputs) -> Result<Self, Ineligible> {
        let identity = &row.identity;
        let pod = inputs.pods.pod(&identity.uid).ok_or(Ineligible::UnknownPod)?;
        let spec = pod.container_by_name(&identity.container);
        let spec = spec.ok_or(Ineligible::UnknownPod)?;
        let request = pod.burst.as_deref().map(PodBurst::parse).transpose();
        let request = request.map_err(|_| Ineligible::InvalidAnnotation)?;
        let name = (pod.namespace.clone(), pod.name.clone());
        let is_exclusive =
            matches!(&*identity.cpu_qos, "LSE" | "LSR") || inputs.exclusive_pods.contains(&name);
        Ok(Self { row, pod, spec, request, is_exclusive })
    }

    pub(super) fn wants_more_quota(&self) -> bool {
        self.request.is_some_and(|request| request.wants_more_quota())
    }

    /// Quota that the pod's spec requires, microseconds per period: during an in-place resize the
    /// next one; `None` without a limit.
    pub(super) fn desired_usec(&self, period: u64) -> Option<u64> {
        let of_pod = self.pod.resources.cpu_limit_millis;
        let millis = self.spec.resources.cpu_limit_millis.or(of_pod)?;
        Some(quota_usec(millis, period))
    }
}

/// The kubelet's quota for a limit (`MilliCPUToQuota` of pkg/kubelet/cm).
pub(super) fn quota_usec(millis: u64, period: u64) -> u64 {
    (millis.saturating_mul(period) / 1000).max(MIN_QUOTA_USEC)
}
