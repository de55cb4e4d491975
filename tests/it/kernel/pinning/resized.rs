//! A resize in place, which the runtime reports before it writes.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::agent::{changing_kubelet, kubelet, list, options};
use super::placed::{Runtimes, container, flags, sandbox, scene};
use super::scene::{container_id, online, uid};
use crate::kernel::created::Socket;
use crate::support::{Agent, eventually};

#[test]
fn a_resized_pod_has_its_cpus_before_the_list_has_its_size() {
    let (scene, socket) = (scene(), Socket::new());
    let mut pods = list(&scene);
    let cpus = json!({"cpu": "500m"});
    pods["items"][1]["spec"]["containers"][0]["resources"] =
        json!({"requests": cpus, "limits": cpus});
    let options = options(&scene, kubelet(&pods));
    let mut flags = flags(&options, &socket);
    flags.push("--pod-poll-interval=1h".to_owned());
    let _agent = Agent::start(&flags);
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    assert_eq!(scene.effective(1), online());
    let exclusive = sandbox(&uid(1), "LSE", 1);
    runtime.resize(&exclusive, &container(&exclusive, &container_id(1)));
    eventually("the grant", || scene.effective(1).len() == 1);
}

#[test]
fn a_resized_pod_is_planned_again_without_a_poll() {
    let (scene, socket) = (scene(), Socket::new());
    let mut pods = list(&scene);
    let set_cpus = |pods: &mut serde_json::Value, cpus: &str| {
        let cpus = json!({"cpu": cpus});
        pods["items"][1]["spec"]["containers"][0]["resources"] =
            json!({"requests": cpus, "limits": cpus});
    };
    set_cpus(&mut pods, "500m");
    let listed = Arc::new(Mutex::new(pods));
    let of_kubelet = Arc::clone(&listed);
    let kubelet = changing_kubelet(move || of_kubelet.lock().unwrap().to_string());
    let options = options(&scene, kubelet);
    let mut flags = flags(&options, &socket);
    flags.push("--pod-poll-interval=1h".to_owned());
    let agent = Agent::start(&flags);
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    let rejected = || {
        let reason = [("reason", "request_not_integer")];
        agent.metrics().value("cpuwarden_pin_rejections_total", &reason)
    };
    eventually("the rejection", || rejected() == Some(1.0));
    assert_eq!(scene.effective(1), online());

    // The kubelet has the new request before it calls the runtime.
    set_cpus(&mut listed.lock().unwrap(), "1");
    let exclusive = sandbox(&uid(1), "LSE", 1);
    runtime.resize(&exclusive, &container(&exclusive, &container_id(1)));
    eventually("the grant", || scene.effective(1).len() == 1);
}
