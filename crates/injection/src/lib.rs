//! Environment variables for new containers, through the runtime's Node Resource Interface.

mod container;
mod injector;
mod rules;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use advisor::Advisor;
use analysis::Place;
use analysis::injection::Known;
use kubelet::Pods;
use kubepods::model::{Container, ContainerKind, Pod};
use metrics::AgentMetrics;

use container::{InjectedContainer, InjectedContainers, would_inject};
pub use injector::Injector;
pub use rules::{InjectProfile, InjectionRules, checked_profiles};

/// The injector, which publishes the variables of the running containers.
#[must_use]
pub fn injector(
    rules: InjectionRules,
    pods: &Pods,
    advisor: &Advisor,
    metrics: &Arc<AgentMetrics>,
) -> Injector {
    let (injections, metrics) = (advisor.injections(), Arc::clone(metrics));
    let publish = move |containers: &InjectedContainers| {
        let rows = containers.values().flat_map(InjectedContainer::rows).collect::<Vec<_>>();
        let labels = rows.iter().map(|row| row.each_ref().map(String::as_str));
        metrics.injection().set_variables(labels);
        let all = containers.iter().map(|(id, one)| (id.clone(), one.statuses()));
        injections.publish(all.collect());
    };
    Injector::new(rules, spec_of(pods, advisor), publish)
}

/// Determines the variables of running containers whose pods are listed only after the runtime has
/// reported them, until the injector is dropped.
pub async fn follow(injector: Weak<Mutex<Injector>>, pods: Pods) {
    let mut seen = 0;
    loop {
        pods.until(|pods| pods.index().generation() != seen).await;
        seen = pods.index().generation();
        let Some(injector) = injector.upgrade() else { return };
        // Its state is valid between any two calls.
        injector.lock().unwrap_or_else(PoisonError::into_inner).pods_listed();
    }
}

/// Place of a container in its pod's spec, and the knowledge of its workload; `None` until the pod
/// is listed.
fn spec_of(
    pods: &Pods,
    advisor: &Advisor,
) -> impl Fn(&str, &str) -> Option<(Place, Known)> + Send + 'static {
    let (pods, known) = (pods.clone(), advisor.known());
    move |pod_uid, container| {
        let index = pods.index();
        // The runtime does not report which list of the spec has a container.
        let pod = index.pod(pod_uid).filter(|pod| pod.is_listed())?;
        let container = pod.containers.iter().find(|one| &*one.name == container)?;
        let key = [&pod.namespace, &container.name, &container.image].map(ToString::to_string);
        let [namespace, name, image] = key;
        let known = known.latest().get(&(namespace, name, image)).copied();
        Some((place(container), known.unwrap_or_default()))
    }
}

fn place(container: &Container) -> Place {
    match container.kind {
        ContainerKind::App => Place::Containers,
        ContainerKind::Init | ContainerKind::Sidecar => Place::InitContainers,
        ContainerKind::Ephemeral => Place::Ephemeral,
    }
}

/// The variables that the containers of a listed pod would get, unless they set them themselves:
/// `shop/cart/app GOMAXPROCS=1`.
#[must_use]
pub fn variables_of_pod(rules: &InjectionRules, pod: &Pod) -> Vec<String> {
    let labels = pod.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let annotations = [&pod.injection.variables, &pod.injection.containers]
        .map(|annotation| annotation.as_deref());
    let request = rules.request(&pod.namespace, &labels.collect(), annotations);
    let Ok(Some(request)) = request else { return Vec::new() };
    let containers = pod.containers.iter();
    let named = containers.filter(|one| request.selects(&one.name, Some(place(one))));
    named.filter_map(|container| would_inject(pod, container, &request)).collect()
}
