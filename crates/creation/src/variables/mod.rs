//! Environment variables for new containers (`--inject-env`).

mod container;
mod failures;
mod injector;
mod rules;
mod waiting;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use advisor::Advisor;
use kubepods::model::Pod;
use metrics::AgentMetrics;
use pod_sources::Pods;

use container::{InjectedContainers, Listed, would_inject};
pub use injector::Injector;
pub use rules::{InjectProfile, InjectionRules, checked_profiles};
pub(crate) use waiting::ListWaits;

/// Time between a change of the variables and their publication, so that a burst of creations costs
/// one.
const PUBLISH_DELAY: Duration = Duration::from_millis(100);

/// Longest round of [`follow`].
pub const ROUND: Duration = Duration::from_secs(10);

/// The injector on a node with this number of online CPUs, if it is known. [`follow`] publishes
/// what it injects.
#[must_use]
pub fn injector(
    rules: InjectionRules,
    online_cpus: Option<u64>,
    pods: &Pods,
    advisor: &Advisor,
    metrics: Arc<AgentMetrics>,
) -> Injector {
    if !rules.observes {
        Missed::ALL.iter().for_each(|reason| metrics.injection().add_missed(reason.as_str(), 0));
    }
    let missed = move |reason: Missed| metrics.injection().add_missed(reason.as_str(), 1);
    Injector::new(rules, online_cpus, listed(pods, advisor), missed)
}

/// Reason for which a container starts without the variables that its pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    /// The pod is not listed yet.
    NotListed,
    /// Creations with variables failed.
    CreationsFailed,
}

impl Missed {
    const ALL: [Self; 2] = [Self::NotListed, Self::CreationsFailed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::NotListed => "pod_not_listed",
            Self::CreationsFailed => "creations_failed",
        }
    }
}

/// Publishes the variables of the running containers, and determines those of containers whose pods
/// are listed only after the runtime has reported them, until the injector is dropped. Calls `beat`
/// in each round with the time in which the next one is due.
pub async fn follow(
    injector: Weak<Mutex<Injector>>,
    pods: Pods,
    advisor: Advisor,
    metrics: Arc<AgentMetrics>,
    beat: impl Fn(Duration) + Send,
) {
    // The state of an injector is valid between any two calls.
    let with = |call: &mut dyn FnMut(&mut Injector)| {
        let injector = injector.upgrade()?;
        call(&mut injector.lock().unwrap_or_else(PoisonError::into_inner));
        Some(())
    };
    let mut changes = None;
    with(&mut |injector| changes = Some(injector.changes()));
    let Some(changes) = changes else { return };
    let mut seen = 0;
    loop {
        beat(ROUND);
        tokio::select! {
            () = tokio::time::sleep(ROUND) => {}
            () = pods.until(|pods| pods.index().generation() != seen) => {
                seen = pods.index().generation();
                if with(&mut Injector::pods_listed).is_none() {
                    return;
                }
            }
            () = changes.notified() => {
                tokio::time::sleep(PUBLISH_DELAY).await;
                let mut containers = InjectedContainers::new();
                if with(&mut |injector| containers = injector.containers()).is_none() {
                    return;
                }
                publish(&containers, &advisor, &metrics);
            }
        }
    }
}

fn publish(containers: &InjectedContainers, advisor: &Advisor, metrics: &AgentMetrics) {
    let rows = containers.values().flat_map(|one| one.rows()).collect::<Vec<_>>();
    let labels = rows.iter().map(|row| row.each_ref().map(String::as_str));
    metrics.injection().set_variables(labels);
    let all = containers.iter().map(|(id, one)| (id.clone(), one.statuses()));
    advisor.injections().publish(all.collect());
}

/// A container by the UID of its pod and its name; `None` until the pod is listed.
fn listed(
    pods: &Pods,
    advisor: &Advisor,
) -> impl Fn(&str, &str) -> Option<Listed> + Send + 'static {
    let (pods, known) = (pods.clone(), advisor.known());
    move |pod_uid, container| {
        let index = pods.index();
        // The runtime does not report which list of the spec has a container.
        let pod = index.pod(pod_uid).filter(|pod| pod.is_listed())?;
        let container = pod.containers.iter().find(|one| &*one.name == container)?;
        let key = [&pod.namespace, &container.name, &container.image].map(ToString::to_string);
        let [namespace, name, image] = key;
        let known = known.latest().get(&(namespace, name, image)).copied();
        Some(Listed::of(pod, container, known.unwrap_or_default()))
    }
}

/// The variables that the containers of a listed pod would get on a node with this number of online
/// CPUs, unless they set them themselves: `shop/cart/app GOMAXPROCS=1`.
#[must_use]
pub fn of_pod(rules: &InjectionRules, online_cpus: Option<u64>, pod: &Pod) -> Vec<String> {
    let labels = pod.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let annotations = [&pod.injection.variables, &pod.injection.containers]
        .map(|annotation| annotation.as_deref());
    let request = rules.request(&pod.namespace, &labels.collect(), annotations);
    let Ok(Some(request)) = request else { return Vec::new() };
    let containers = pod.containers.iter();
    let of = |container| would_inject(pod, container, &request, online_cpus, rules);
    containers.filter_map(of).collect()
}
