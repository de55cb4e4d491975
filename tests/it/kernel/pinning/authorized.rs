//! Authorization of pods' claims, with the real binary: the reason is in the metric and in `pins`.

use std::fs;

use placement::Class;
use serde_json::Value;

use super::agent::{command, kubelet, list, options, stdout_of};
use super::scene::{PodRequest, Scene, online};
use crate::support::{Agent, eventually};

/// Starts an agent with this authorization, and waits for a rejection with this reason.
fn rejected(scene: &Scene, authorization: &str, reason: &str) -> (Agent, Vec<String>) {
    let config = scene.state.path().join("cpuwarden.yaml");
    fs::write(&config, format!("authorization: {authorization}\n")).unwrap();
    let mut options = options(scene, kubelet(&list(scene)));
    options.push(format!("--config={}", config.display()));
    let agent = Agent::start(
        &[&options[..], &["--pinning=enforce".into(), "--cpu-budget=1000".into()]].concat(),
    );
    let counted = || {
        agent.metrics().value("cpuwarden_pin_rejections_total", &[("reason", reason)]) == Some(1.0)
    };
    eventually("a rejection", counted);
    (agent, options)
}

fn request(class: Class, cpus: u64) -> PodRequest {
    PodRequest { class, cpus }
}

#[test]
fn a_class_that_is_reserved_for_another_namespace_is_rejected() {
    let scene = Scene::new(&[request(Class::Share, 0), request(Class::Lse, 1)]);
    let (agent, options) =
        rejected(&scene, "{classes: {LSE: [{namespaces: [trading]}]}}", "class_not_allowed");
    eventually("pins", || stdout_of(&command("pins", &options, &[])).contains("class_not_allowed"));
    let json: Value =
        serde_json::from_str(&stdout_of(&command("pins", &options, &["--json"]))).unwrap();
    let rejection =
        json.as_array().unwrap().iter().find(|row| row["reason"] == "class_not_allowed").unwrap();
    assert_eq!(
        (rejection["namespace"].as_str(), rejection["pod"].as_str()),
        (Some("test"), Some("pod-1"))
    );
    assert_eq!(scene.effective(1), online(), "it shares");
    drop(agent);
}

#[test]
fn a_self_declared_best_effort_pod_gets_no_lsr_cpus() {
    let scene = Scene::new(&[
        request(Class::Share, 0),
        request(Class::BestEffort, 1),
        request(Class::Lsr, 1),
    ]);
    let (agent, _) = rejected(&scene, "{}", "best_effort_not_allowed");
    eventually("a grant", || {
        scene.effective(2).len() == 1 && scene.effective(0).is_disjoint(&scene.effective(2))
    });
    assert!(scene.effective(1).is_disjoint(&scene.effective(2)), "{:?}", scene.all_effective());
    drop(agent);
}

#[test]
fn a_namespace_has_no_more_exclusive_cpus_than_its_cap() {
    let scene = Scene::new(&[request(Class::Share, 0), request(Class::Lse, 1)]);
    let (agent, options) =
        rejected(&scene, "{maxExclusiveCpusByNamespace: {test: 0}}", "namespace_cap");
    eventually("pins", || stdout_of(&command("pins", &options, &[])).contains("namespace_cap"));
    assert_eq!(scene.effective(1), online());
    drop(agent);
}
