//! The JSON API of a real agent against the OpenAPI document that it serves.

#[path = "../../../../crates/endpoint/tests/ui/schema.rs"]
mod schema;

use serde_json::Value;

use super::agent::{kubelet, list, options};
use super::scene::{Scene, all_classes};
use crate::support::{Agent, eventually, http};

/// Documented paths whose answers are not JSON, or have no schema.
const WITHOUT_SCHEMA: [&str; 3] = ["/api/v1/stream", "/api/v1/recording", "/api/v1/openapi.json"];

fn json(agent: &Agent, path: &str) -> Value {
    let (status, body) = agent.get(path);
    assert_eq!(status, 200, "{path}: {body}\n{}", agent.log());
    serde_json::from_str(&body).unwrap()
}

/// Validates the answers of all paths.
fn assert_documented(agent: &Agent) {
    let document = json(agent, "/api/v1/openapi.json");
    let pods = json(agent, "/api/v1/pods");
    let uid = pods["pods"][0]["uid"].as_str().unwrap_or_else(|| panic!("{pods}"));
    let paths = document["paths"].as_object().unwrap().keys();
    for path in paths.filter(|path| !WITHOUT_SCHEMA.contains(&path.as_str())) {
        let answer = json(agent, &path.replace("{uid}", uid));
        schema::assert_valid(&document, path, "200", &answer);
    }
}

#[test]
fn every_answer_matches_the_openapi_document_that_is_served() {
    let scene = Scene::new(&all_classes());
    // An agent that only observes writes its status, but does not create the directory.
    std::fs::create_dir_all(scene.config(false).node.state_dir).unwrap();
    let mut flags = options(&scene, kubelet(&list(&scene)));
    flags.push("--cpu-budget=1000".to_owned());
    let start = |mode: &str| {
        let agent = Agent::start(&[&flags[..], &[mode.to_owned()]].concat());
        eventually("named pods", || {
            http::get(agent.address(), "/api/v1/pods")
                .is_ok_and(|(_, body)| body.contains("\"pod-2\""))
        });
        agent
    };
    let agent = start("--pinning=observe");
    // Each kind of row of the pins and of the owners of CPUs has a schema of its own.
    let has_row = |agent: &Agent, key: &str| {
        let pins = json(agent, "/api/v1/pins");
        pins.as_array().unwrap().iter().any(|row| !row[key].is_null())
    };
    eventually("the reason why nothing is written", || has_row(&agent, "not_in_effect"));
    assert_documented(&agent);
    drop(agent);
    let agent = start("--pinning=enforce");
    eventually("a pin", || has_row(&agent, "verified"));
    eventually("a rejection", || has_row(&agent, "reason"));
    assert_documented(&agent);
}
