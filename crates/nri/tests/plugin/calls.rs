//! Calls of old and new runtimes, and their answers.

use nri::EventMask;
use nri::api::{
    self, ConfigureResponse, CreateContainerResponse, Event, OptionalInt64, OptionalUInt64,
    StateChangeEvent,
};
use prost::Message;

use crate::node::Node;
use crate::runtime::{Runtime, container, pod};

/// Events without an answer, as runtimes send them.
const NOTIFICATIONS: [(&str, Event, bool); 9] = [
    ("RunPodSandbox", Event::RunPodSandbox, false),
    ("PostUpdatePodSandbox", Event::PostUpdatePodSandbox, false),
    ("StopPodSandbox", Event::StopPodSandbox, false),
    ("RemovePodSandbox", Event::RemovePodSandbox, false),
    ("PostCreateContainer", Event::PostCreateContainer, true),
    ("StartContainer", Event::StartContainer, true),
    ("PostStartContainer", Event::PostStartContainer, true),
    ("PostUpdateContainer", Event::PostUpdateContainer, true),
    ("RemoveContainer", Event::RemoveContainer, true),
];

fn events(answer: &[u8]) -> i32 {
    ConfigureResponse::decode(answer).unwrap().events
}

fn assert_adjusted(answer: CreateContainerResponse) {
    let adjust = answer.adjust.unwrap();
    assert_eq!((adjust.env[0].key.as_str(), adjust.env[0].value.as_str()), ("KEY", "x"));
    assert_eq!(adjust.linux.unwrap().resources.unwrap().cpu.unwrap().cpus, "0-3");
    assert!(answer.update.is_empty() && answer.evict.is_empty());
}

#[test]
fn an_old_runtime_sends_events_as_state_changes() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    let registration = runtime.register();
    assert_eq!(registration.plugin_name, "recorder");
    assert_eq!(registration.plugin_idx, "90");
    assert!(registration.nri_version.starts_with("v0.12."), "{}", registration.nri_version);
    assert_eq!(events(&runtime.configure("v1.7.27", "")), 0x7ff);
    assert_eq!(runtime.synchronize(&["a", "b"], false), api::SynchronizeResponse::default());
    assert_eq!(node.calls(), ["configured containerd v1.7.27", "synchronize 1 a,b"]);
    assert_eq!(node.report(), "synchronized with containerd v1.7.27");
    for (_, event, of_container) in NOTIFICATIONS {
        let container = of_container.then(|| container("c"));
        let change = StateChangeEvent { event: event.into(), pod: Some(pod()), container };
        runtime.call::<api::Empty>("StateChange", &change);
        let name = if of_container { "c" } else { "-" };
        assert_eq!(node.call(), format!("{event:?} pod/{name}"));
    }
    assert_adjusted(runtime.create("c"));
    assert_eq!(node.call(), "create pod/c");
}

#[test]
fn a_new_runtime_calls_a_method_for_each_event() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    assert_eq!(events(&runtime.configure("v2.4.2", "v0.12.3")), 0x3fff);
    runtime.synchronize(&[], false);
    assert_eq!(node.calls(), ["configured containerd v2.4.2", "synchronize 1 "]);
    for (method, event, of_container) in NOTIFICATIONS {
        let name = if of_container {
            let (pod, container) = (Some(pod()), Some(container("c")));
            runtime.call::<api::Empty>(method, &api::StartContainerRequest { pod, container });
            "c"
        } else {
            runtime.call::<api::Empty>(method, &api::RunPodSandboxRequest { pod: Some(pod()) });
            "-"
        };
        assert_eq!(node.call(), format!("{event:?} pod/{name}"));
    }
    assert_adjusted(runtime.create("c"));
    assert_eq!(node.call(), "create pod/c");
}

#[test]
fn updates_stops_and_validations_reach_the_handler() {
    let node = Node::new();
    let mut runtime = Runtime::start(&node.listener, &[]);
    node.calls::<2>();
    let cpu = api::LinuxCpu {
        quota: Some(OptionalInt64 { value: 50_000 }),
        shares: Some(OptionalUInt64 { value: 512 }),
        ..api::LinuxCpu::default()
    };
    let resources = Some(api::LinuxResources { cpu: Some(cpu), ..api::LinuxResources::default() });
    let update = api::UpdateContainerRequest {
        pod: Some(pod()),
        container: Some(container("c")),
        linux_resources: resources.clone(),
    };
    let answer: api::UpdateContainerResponse = runtime.call("UpdateContainer", &update);
    assert_eq!(answer.update[0].container_id, "id-c");
    assert_eq!(node.call(), "update c Some(50000)");
    let stop = api::StopContainerRequest { pod: Some(pod()), container: Some(container("c")) };
    let answer: api::StopContainerResponse = runtime.call("StopContainer", &stop);
    assert!(answer.update.is_empty());
    assert_eq!(node.call(), "stop c");
    let update = api::UpdatePodSandboxRequest {
        pod: Some(pod()),
        overhead_linux_resources: None,
        linux_resources: resources,
    };
    runtime.call::<api::Empty>("UpdatePodSandbox", &update);
    assert_eq!(node.call(), "update_pod pod Some(512)");
    let plugins = vec![api::PluginInstance { name: "balloons".into(), index: "10".into() }];
    let validation = api::ValidateContainerAdjustmentRequest {
        plugins,
        ..api::ValidateContainerAdjustmentRequest::default()
    };
    let answer: api::ValidateContainerAdjustmentResponse =
        runtime.call("ValidateContainerAdjustment", &validation);
    assert!(!answer.reject);
    assert_eq!(node.call(), "validate balloons");
}

#[test]
fn chunks_of_a_synchronization_reach_the_handler_as_one() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    runtime.configure("v2.4.2", "v0.12.3");
    for chunk in [["a", "b"], ["c", "d"]] {
        let answer = runtime.synchronize(&chunk, true);
        assert!(answer.more && answer.update.is_empty());
    }
    let answer = runtime.synchronize(&["e"], false);
    assert!(!answer.more);
    assert_eq!(node.calls(), ["configured containerd v2.4.2", "synchronize 3 a,b,c,d,e"]);
}

#[test]
fn the_runtime_may_configure_before_it_answers_the_registration() {
    let node = Node::new();
    let mut runtime = Runtime::accept(&node.listener);
    runtime.configure("v2.4.2", "v0.12.3");
    runtime.register();
    runtime.synchronize(&["a"], false);
    assert_eq!(node.calls(), ["configured containerd v2.4.2", "synchronize 1 a"]);
}

#[test]
fn events_that_were_not_asked_for_do_not_reach_the_handler() {
    let node = Node::with(EventMask::of(&[Event::CreateContainer]), |plugin| plugin);
    let mut runtime = Runtime::accept(&node.listener);
    runtime.register();
    assert_eq!(events(&runtime.configure("v2.4.2", "v0.12.3")), 0x08);
    runtime.synchronize(&[], false);
    node.calls::<2>();
    let change = |event| StateChangeEvent { event, pod: Some(pod()), container: None };
    runtime.call::<api::Empty>("StateChange", &change(Event::RemovePodSandbox.into()));
    runtime.call::<api::Empty>("StateChange", &change(99));
    runtime.call::<api::Empty>("RunPodSandbox", &api::RunPodSandboxRequest { pod: Some(pod()) });
    runtime.call::<api::Empty>("Shutdown", &api::Empty {});
    node.assert_no_call();
    assert_adjusted(runtime.create("c"));
    assert_eq!(node.call(), "create pod/c");
}

#[test]
fn the_runtime_is_asked_to_keep_the_plugin_only_when_that_is_set() {
    let policy = |node: &Node| {
        let mut runtime = Runtime::accept(&node.listener);
        runtime.register();
        let answer = runtime.configure("v2.4.3", "v0.12.5");
        ConfigureResponse::decode(&answer[..]).unwrap().failure_policy
    };
    assert_eq!(policy(&Node::new()), None);
    let kept = Node::with(EventMask::LIFECYCLE, nri::Plugin::keep_connected);
    let expected = api::FailurePolicy { fail_request: false, keep_connected: true };
    assert_eq!(policy(&kept), Some(expected));
}
