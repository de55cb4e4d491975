//! Events for the owners through the API server, and undisturbed pinning where events are not
//! allowed.

use std::net::TcpListener;

use kubelet_stub::apiserver::ApiServerStub;
use serde_json::Value;

use super::agent::{kubelet, list, options};
use super::scene::{Scene, all_classes, effective, online};
use crate::support::{Agent, eventually};

/// An API server over TLS.
pub(in crate::kernel) struct Cluster {
    pub(in crate::kernel) server: ApiServerStub,
    runtime: tokio::runtime::Runtime,
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub(in crate::kernel) fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let server = runtime.block_on(ApiServerStub::start(directory.path())).unwrap();
        Self { server, runtime, _directory: directory }
    }

    pub(in crate::kernel) fn flags(&self) -> Vec<String> {
        vec![
            "--node-name=node-1".to_owned(),
            format!("--apiserver-url={}", self.server.url()),
            format!("--apiserver-ca-file={}", self.server.ca_file().display()),
            format!("--apiserver-token-file={}", self.server.token_file().display()),
        ]
    }

    /// Events with this reason about the pod.
    fn about(&self, scene: &Scene, pod: usize, reason: &str) -> Vec<Value> {
        let uid = &*scene.pods[pod].0;
        let is = |event: &Value| event["regarding"]["uid"] == uid && event["reason"] == reason;
        self.server.events().into_iter().filter(is).collect()
    }
}

fn enforce(scene: &Scene, more: &[String]) -> Agent {
    let mut run = options(scene, kubelet(&list(scene)));
    run.extend(["--pinning=enforce".to_owned(), "--cpu-budget=1000".to_owned()]);
    run.extend_from_slice(more);
    Agent::start(&run)
}

fn count(agent: &Agent, result: &str) -> Option<f64> {
    agent.metrics().value("cpuwarden_pin_events_total", &[("result", result)])
}

/// Overwrites the sharer's cpusets and waits until they are repaired.
fn rewrite_cpusets(scene: &Scene) {
    let confined = scene.effective(0);
    let sharer = [scene.pods[0].1.clone(), scene.container(0)];
    for cgroup in &sharer {
        let written =
            std::fs::write(cgroup.dir("cpuset").join("cpuset.cpus"), online().to_string());
        // v1 refuses the container's once the running agent has repaired the pod's.
        assert!(!written.is_err_and(|error| error.kind() != std::io::ErrorKind::PermissionDenied));
    }
    eventually("a repair", || sharer.iter().all(|cgroup| effective(cgroup) == confined));
}

#[test]
fn events_are_sent_and_api_failures_do_not_affect_pinning() {
    let (scene, cluster) = (Scene::new(&all_classes()), Cluster::start());
    let agent = enforce(&scene, &[cluster.flags(), vec!["--events".to_owned()]].concat());
    eventually("the owner of a pinned pod to get an Event", || {
        cluster.about(&scene, 2, "CpusPinned").len() == 1
    });
    let pinned = &cluster.about(&scene, 2, "CpusPinned")[0];
    assert_eq!(
        (&pinned["regarding"]["namespace"], &pinned["regarding"]["name"]),
        (&"test".into(), &"pod-2".into())
    );
    let note = pinned["note"].as_str().unwrap();
    assert!(
        note.contains(&format!("CPUs {} ", scene.effective(2))) && note.contains("LSE"),
        "{note}"
    );
    eventually("the owner of a rejected pod to get an Event", || {
        cluster.about(&scene, 0, "CpusRejected").len() == 1
    });
    let rejected = &cluster.about(&scene, 0, "CpusRejected")[0];
    assert!(
        rejected["note"].as_str().unwrap().contains(": resource_spec_malformed; "),
        "{rejected}"
    );

    // A rewrite is one event or two: the pod and its container may be repaired in the same pass or
    // in two.
    rewrite_cpusets(&scene);
    eventually("the owner of a rewritten pod to get an Event", || {
        !cluster.about(&scene, 0, "CpusetRepaired").is_empty()
    });
    cluster.server.forbid_events(true);
    rewrite_cpusets(&scene);
    eventually("a rejected event to be counted", || count(&agent, "failed").is_some());
    cluster.runtime.block_on(cluster.server.stop_listening());
    rewrite_cpusets(&scene);
    eventually("an event for nobody to be counted", || {
        // Each event is one request: the server has answered all others.
        let counted =
            ["sent", "failed"].iter().filter_map(|result| count(&agent, result)).sum::<f64>();
        counted > cluster.server.requests().len() as f64
    });
    assert_eq!(agent.metrics().value("cpuwarden_pinning_enforcing", &[("reason", "")]), Some(1.0));
    assert_eq!(count(&agent, "dropped"), None);
    let lines = agent
        .log()
        .lines()
        .filter(|line| line.contains("failed to send Kubernetes Events"))
        .count();
    assert_eq!(lines, 1, "logged once: {}", agent.log());
}

#[test]
fn without_the_flag_the_api_server_is_not_spoken_to() {
    let scene = Scene::new(&all_classes());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("--apiserver-url=https://{}", listener.local_addr().unwrap());
    let agent = enforce(&scene, &[url]);
    eventually("a grant", || {
        agent.metrics().value("cpuwarden_pinning_enforcing", &[("reason", "")]) == Some(1.0)
    });
    rewrite_cpusets(&scene);
    let refused = listener.accept().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock, "a connection came");
    assert_eq!(count(&agent, "sent"), None);
}
