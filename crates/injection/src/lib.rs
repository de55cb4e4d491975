//! Environment variables for new containers, through the runtime's Node Resource Interface.

mod container;
mod injector;
mod rules;

use std::path::Path;
use std::sync::Arc;

use advisor::Advisor;
use analysis::Place;
use analysis::injection::Known;
use anyhow::Context;
use kubelet::Pods;
use kubepods::model::{Container, ContainerKind, Pod};
use metrics::AgentMetrics;
use nri::{Plugin, PluginReport, Stop};
use watchdog::JoinedThread;

use container::{InjectedContainer, InjectedContainers, would_inject};
use injector::Injector;
pub use rules::{InjectProfile, InjectionRules, checked_profiles};

/// Name of the plugin at the runtime.
const NAME: &str = "cpuwarden";
/// Place of the plugin: runtimes call plugins in ascending order. A late one sees the variables
/// that others have added.
const INDEX: u8 = 90;

/// Starts the plugin, whose connection ends when the handle is dropped; containers keep their
/// variables. The runtime's socket may appear later.
///
/// # Errors
/// The thread does not start.
pub fn start(
    rules: InjectionRules,
    nri_socket: &Path,
    pods: &Pods,
    advisor: &Advisor,
    metrics: &Arc<AgentMetrics>,
) -> anyhow::Result<JoinedThread> {
    let injections = advisor.injections();
    let publish = {
        let metrics = Arc::clone(metrics);
        move |containers: &InjectedContainers| {
            let rows = containers.values().flat_map(InjectedContainer::rows).collect::<Vec<_>>();
            let labels = rows.iter().map(|row| row.each_ref().map(String::as_str));
            metrics.injection().set_variables(labels);
            let all = containers.iter().map(|(id, one)| (id.clone(), one.statuses()));
            injections.publish(all.collect());
        }
    };
    let injector = Injector::new(rules, spec_of(pods, advisor), publish);
    let plugin =
        Plugin::new(NAME, INDEX, nri_socket, injector).context("cannot set up the NRI plugin")?;
    let stop = Stop::new();
    let (stopped, metrics) = (stop.clone(), Arc::clone(metrics));
    let body = move || {
        let mut log = Log { metrics, runtime: Default::default(), last: String::new() };
        log.disconnected();
        if let Err(error) = plugin.run(&stopped, |report| log.take(&report)) {
            tracing::error!(%error, "the NRI plugin ended; new containers get no variables");
        }
    };
    let thread = JoinedThread::spawn("nri", move || stop.stop(), body);
    thread.context("cannot start the thread of the NRI plugin")
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
        let pod = index.pod(pod_uid)?;
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

/// Reports of the plugin for the log and the metrics.
struct Log {
    metrics: Arc<AgentMetrics>,
    /// Name and version of the last runtime.
    runtime: [String; 2],
    /// Last logged error: attempts to connect repeat every few seconds.
    last: String,
}

impl Log {
    fn take(&mut self, report: &PluginReport<'_>) {
        match report {
            PluginReport::Synchronized { runtime } => {
                self.runtime = [runtime.name.clone(), runtime.version.clone()];
                self.last.clear();
                self.metrics.injection().set_connected(self.labels(), true);
                tracing::info!(runtime = runtime.name, version = runtime.version, "NRI: connected");
            }
            PluginReport::AnsweredEmpty { method, .. } => {
                self.metrics.injection().add_empty_answer(method);
                tracing::warn!("NRI: {report}");
            }
            PluginReport::Disconnected { error, .. } => {
                self.disconnected();
                let error = error.to_string();
                if error != self.last {
                    tracing::warn!(error, "NRI: not connected; new containers get no variables");
                    self.last = error;
                }
            }
            report => tracing::info!("NRI: {report}"),
        }
    }

    fn disconnected(&self) {
        self.metrics.injection().set_connected(self.labels(), false);
    }

    fn labels(&self) -> [&str; 2] {
        self.runtime.each_ref().map(String::as_str)
    }
}
