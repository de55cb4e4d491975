//! Converts the kubelet's view of a pod to the planner's.

use kubepods::model::{Container, ContainerKind, Pod, Resize, Resources};
use kubepods::path::QosClass;

/// The planner's view of a pod. `uid` is the UID in its cgroup's name, `arrival` its rank in the
/// order of arrival. For a pod that no list contains yet, the runtime's sums count if they are
/// complete; otherwise the pod claims nothing until it is listed.
#[must_use]
pub fn claim(uid: placement::Uid, pod: &Pod, arrival: u64) -> placement::Pod {
    if has_partial_sums(pod) {
        let request_millis = whole_pod(pod, |resources| resources.cpu_request_millis);
        return placement::Pod { uid, request_millis, arrival, ..placement::Pod::default() };
    }
    let labels = pod.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let annotation = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    placement::Pod {
        uid,
        namespace: pod.namespace.to_string(),
        labels: labels.collect(),
        resource_spec: annotation(&pod.pinning.resource_spec),
        resource_status: annotation(&pod.pinning.resource_status),
        priority: pod.priority,
        best_effort: is_best_effort(pod),
        admitted: false,
        request_millis: whole_pod(pod, |resources| resources.cpu_request_millis),
        limit_millis: whole_pod(pod, |resources| resources.cpu_limit_millis),
        arrival,
    }
}

/// The planner's view of a pod, one of whose containers is about to get these resources; the
/// kubelet may have listed the old ones. `None` if they do not determine the size of the pod: they
/// lack a request or limit of CPU, the pod has further containers, or its size is that of the pod
/// level.
#[must_use]
pub fn with_container(
    uid: placement::Uid,
    pod: &Pod,
    name: &str,
    new: &Resources,
) -> Option<placement::Pod> {
    if !pod.is_listed() || sets_cpu(&pod.resources) {
        return None;
    }
    let mut resized = pod.clone();
    let mut running = resized.containers.iter_mut().filter(|one| is_summed(one));
    let only = running.next().filter(|one| *one.name == *name)?;
    if running.next().is_some() {
        return None;
    }
    only.actual_resources = None;
    set_cpu(&mut only.resources, new)?;
    Some(claim(uid, &resized, u64::MAX))
}

/// As [`with_container`], for resources of the pod level.
#[must_use]
pub fn with_pod_level(uid: placement::Uid, pod: &Pod, new: &Resources) -> Option<placement::Pod> {
    if !pod.is_listed() || !sets_cpu(&pod.resources) {
        return None;
    }
    let mut resized = pod.clone();
    set_cpu(&mut resized.resources, new)?;
    Some(claim(uid, &resized, u64::MAX))
}

/// Whether the container runs beside the others for the life of the pod.
fn is_summed(container: &Container) -> bool {
    matches!(container.kind, ContainerKind::App | ContainerKind::Sidecar)
}

fn sets_cpu(resources: &Resources) -> bool {
    resources.cpu_request_millis.is_some() || resources.cpu_limit_millis.is_some()
}

fn set_cpu(resources: &mut Resources, new: &Resources) -> Option<()> {
    resources.cpu_request_millis = Some(new.cpu_request_millis?);
    resources.cpu_limit_millis = Some(new.cpu_limit_millis?);
    Some(())
}

/// Whether the runtime's sums may leave out containers that set no request or no limit. In a
/// Guaranteed pod all of them set both, in a BestEffort one none does.
fn has_partial_sums(pod: &Pod) -> bool {
    let is_uniform = matches!(pod.qos_class, Some(QosClass::Guaranteed | QosClass::BestEffort));
    !pod.is_listed() && !is_uniform
}

/// Whether the pod's QoS class is BestEffort. If the kubelet does not report the class yet: whether
/// the pod sets none of the resources that determine it (`GetPodQOS` in
/// pkg/apis/core/v1/helper/qos).
fn is_best_effort(pod: &Pod) -> bool {
    let all = || pod.containers.iter().map(|container| container.resources).chain([pod.resources]);
    pod.qos_class.map_or_else(
        || all().all(|resources| resources == Resources::default()),
        |qos| qos == QosClass::BestEffort,
    )
}

/// Whether all containers have ended or were never admitted; such a pod needs no CPUs any more.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    pod.phase.is_final()
}

/// Pod-level resources if there are any. Otherwise Kubernetes' effective request: the maximum of
/// the sum over app containers and sidecars, and of each init container plus the sidecars before
/// it. `None` if an app container or a sidecar sets none, or if the total is 0.
fn whole_pod(pod: &Pod, of: impl Fn(&Resources) -> Option<u64>) -> Option<u64> {
    if let Some(sum) = &pod.unlisted {
        return of(sum);
    }
    if let Some(millis) = of(&pod.resources) {
        return Some(millis);
    }
    let (mut sidecars, mut together, mut before) = (0_u64, 0_u64, 0);
    for container in &pod.containers {
        let millis = of(&in_force(pod, container));
        match container.kind {
            ContainerKind::App => together = together.saturating_add(millis?),
            ContainerKind::Sidecar => sidecars = sidecars.saturating_add(millis?),
            ContainerKind::Init => {
                before = before.max(sidecars.saturating_add(millis.unwrap_or(0)));
            }
            // Ephemeral containers cannot have resources.
            ContainerKind::Ephemeral => {}
        }
    }
    Some(before.max(sidecars.saturating_add(together))).filter(|&millis| millis > 0)
}

/// Resources in force: a deferred or infeasible resize has no effect yet.
fn in_force(pod: &Pod, container: &Container) -> Resources {
    let waits = matches!(pod.resize, Some(Resize::Deferred | Resize::Infeasible));
    container.actual_resources.filter(|_| waits).unwrap_or(container.resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(kind: ContainerKind, millis: Option<u64>) -> Container {
        let resources = Resources {
            cpu_request_millis: millis,
            cpu_limit_millis: millis,
            ..Resources::default()
        };
        Container { kind, resources, ..Container::default() }
    }

    fn request(containers: Vec<Container>) -> Option<u64> {
        claim("u".into(), &Pod { containers, ..Pod::default() }, 0).request_millis
    }

    #[test]
    fn requests_of_init_containers_are_not_added_to_the_sum() {
        use ContainerKind::{App, Init, Sidecar};
        let apps = || vec![container(App, Some(1500)), container(App, Some(500))];
        assert_eq!(request(apps()), Some(2000));
        assert_eq!(request([apps(), vec![container(Sidecar, Some(1000))]].concat()), Some(3000));
        assert_eq!(request([vec![container(Init, Some(1000))], apps()].concat()), Some(2000));
        assert_eq!(request([vec![container(Init, Some(4000))], apps()].concat()), Some(4000));
        assert_eq!(request([vec![container(Init, None)], apps()].concat()), Some(2000));
    }

    #[test]
    fn absurd_requests_saturate() {
        use ContainerKind::{App, Init, Sidecar};
        let most = |kind| container(kind, Some(u64::MAX));
        assert_eq!(request(vec![most(App), most(App)]), Some(u64::MAX));
        assert_eq!(request(vec![most(Sidecar), most(Init), most(App)]), Some(u64::MAX));
    }

    #[test]
    fn a_container_without_a_request_makes_the_pods_unknown() {
        assert_eq!(
            request(vec![
                container(ContainerKind::App, Some(1000)),
                container(ContainerKind::App, None)
            ]),
            None
        );
        assert_eq!(request(Vec::new()), None);
    }

    #[test]
    fn best_effort_is_the_kubelets_class_or_a_pod_without_resources() {
        let pod = |qos_class, millis| Pod {
            qos_class,
            containers: vec![container(ContainerKind::App, millis)],
            ..Pod::default()
        };
        let best_effort = |pod: &Pod| claim("u".into(), pod, 0).best_effort;
        assert!(
            best_effort(&pod(Some(QosClass::BestEffort), None)) && best_effort(&pod(None, None))
        );
        assert!(
            !best_effort(&pod(Some(QosClass::Guaranteed), Some(1000)))
                && !best_effort(&pod(None, Some(1000)))
        );
        assert!(!best_effort(&pod(Some(QosClass::Burstable), None)), "memory requests count too");
    }

    #[test]
    fn pod_level_resources_beat_the_containers() {
        let resources = Resources { cpu_request_millis: Some(4000), ..Resources::default() };
        let containers = vec![container(ContainerKind::App, Some(1000))];
        let pod = Pod { resources, containers, ..Pod::default() };
        let claim = claim("u".into(), &pod, 0);
        assert_eq!((claim.request_millis, claim.limit_millis), (Some(4000), Some(1000)));
    }

    #[test]
    fn the_runtimes_sums_count_for_a_pod_that_is_not_listed_yet() {
        let sum = container(ContainerKind::App, Some(2000)).resources;
        let created = vec![Container::default()];
        let pod = |qos_class| Pod {
            unlisted: Some(sum),
            qos_class: Some(qos_class),
            labels: vec![("koordinator.sh/qosClass".into(), "LSE".into())],
            containers: created.clone(),
            ..Pod::default()
        };
        let whole = claim("u".into(), &pod(QosClass::Guaranteed), 0);
        assert_eq!((whole.request_millis, whole.limit_millis), (Some(2000), Some(2000)));
        assert_eq!(whole.labels.len(), 1);
        // A container without resources may follow.
        let partial = claim("u".into(), &pod(QosClass::Burstable), 7);
        let (request_millis, uid) = (Some(2000), "u".into());
        let expected = placement::Pod { uid, request_millis, arrival: 7, ..<_>::default() };
        assert_eq!(partial, expected, "no claim until it is listed");
    }

    #[test]
    fn a_resize_determines_the_size_of_a_pod_with_one_container_or_a_pod_level() {
        use ContainerKind::{App, Ephemeral, Init, Sidecar};
        let new = container(App, Some(4000)).resources;
        let named =
            |name: &str, kind, millis| Container { name: name.into(), ..container(kind, millis) };
        let app = || named("app", App, Some(2000));
        let resized = |pod: &Pod| {
            let claim = with_container("u".into(), pod, "app", &new)?;
            Some((claim.request_millis?, claim.limit_millis?))
        };
        let of = |containers| resized(&Pod { containers, ..Pod::default() });
        assert_eq!(of(vec![app()]), Some((4000, 4000)));
        let others = vec![named("init", Init, Some(6000)), app(), named("debug", Ephemeral, None)];
        assert_eq!(of(others), Some((6000, 6000)), "as large as its init container");
        assert_eq!(of(vec![app(), named("log", App, Some(1000))]), None);
        assert_eq!(of(vec![named("proxy", Sidecar, Some(1000)), app()]), None);
        assert_eq!(of(vec![named("init", Init, Some(1000)), named("web", App, Some(2000))]), None);
        let actual = Some(app().resources);
        let waiting = Container { actual_resources: actual, ..app() };
        let resize = Some(Resize::Deferred);
        let deferred = Pod { resize, containers: vec![waiting], ..Pod::default() };
        assert_eq!(resized(&deferred), Some((4000, 4000)), "the runtime is about to write it");

        let level = |pod: &Pod| with_pod_level("u".into(), pod, &new)?.limit_millis;
        let containers = vec![app(), named("log", App, None)];
        let of_pod = Pod { resources: app().resources, containers, ..Pod::default() };
        assert_eq!((resized(&of_pod), level(&of_pod)), (None, Some(4000)));
        let of_containers = Pod { containers: vec![app()], ..Pod::default() };
        assert_eq!(level(&of_containers), None);
        let unlisted = Pod { unlisted: Some(new), ..of_containers.clone() };
        assert_eq!((resized(&unlisted), level(&unlisted)), (None, None));
        let unlimited = Resources { cpu_limit_millis: None, ..new };
        assert_eq!(with_container("u".into(), &of_containers, "app", &unlimited), None);
    }

    #[test]
    fn a_resize_that_is_deferred_is_not_in_force() {
        let mut resized = container(ContainerKind::App, Some(4000));
        resized.actual_resources = Some(container(ContainerKind::App, Some(2000)).resources);
        let pod = |resize| Pod { resize, containers: vec![resized.clone()], ..Pod::default() };
        assert_eq!(claim("u".into(), &pod(Some(Resize::Deferred)), 0).request_millis, Some(2000));
        assert_eq!(claim("u".into(), &pod(Some(Resize::InProgress)), 0).request_millis, Some(4000));
    }
}
