//! Limits that change in place, with the container runtime's report of each change.

use nri::api::{
    Container, LinuxCpu, LinuxResources, OptionalInt64, OptionalUInt64, PodSandbox,
    UpdateContainerRequest, UpdateContainerResponse,
};
use rustix::process::Signal;

use super::burst::{ID, PERIOD_USEC, POD, Scene};
use super::created::Socket;
use crate::support::eventually;

fn request(quota_usec: u64) -> UpdateContainerRequest {
    let sandbox = "sandbox".to_owned();
    let cpu = LinuxCpu {
        quota: Some(OptionalInt64 { value: quota_usec.cast_signed() }),
        period: Some(OptionalUInt64 { value: PERIOD_USEC }),
        ..LinuxCpu::default()
    };
    UpdateContainerRequest {
        pod: Some(PodSandbox { id: sandbox.clone(), uid: POD.into(), ..PodSandbox::default() }),
        container: Some(Container {
            id: ID.into(),
            pod_sandbox_id: sandbox,
            ..Container::default()
        }),
        linux_resources: Some(LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }),
    }
}

#[test]
fn a_burst_is_lowered_before_the_runtime_gets_the_answer() {
    let (mut scene, socket) = (Scene::new(), Socket::new());
    scene.options.extend(socket.flags());
    let agent = scene.agent("enforce");
    let mut runtime = socket.accept(vec![], vec![]);
    eventually("a burst", || scene.bursts()[1] > 0);
    let smaller = scene.bursts()[1] / 2;
    assert!(!Scene::try_quota(&scene.container, smaller), "the kernel checks the burst");
    // The kubelet's list has the old limit.
    let answer: UpdateContainerResponse = runtime.call("UpdateContainer", &request(smaller));
    assert!(answer.update.is_empty(), "{answer:?}");
    assert!(Scene::try_quota(&scene.container, smaller), "{:?}", scene.bursts());
    assert!(Scene::try_quota(&scene.pod, smaller), "{:?}", scene.bursts());
    *scene.limit_millis.lock().unwrap() = smaller / 100;
    // The kernel before 6.10 has divided the burst by 1000.
    let again = |usec: u64| usec > smaller / 10 && usec < smaller;
    eventually("the burst again", || scene.bursts().into_iter().all(again));
    let repaired = [("setting", "all"), ("result", "repaired")];
    let repaired = agent.metrics().value("cpuwarden_burst_writes_total", &repaired);
    assert_eq!(repaired.unwrap_or_default(), 0.0, "no other writer");

    let smaller = scene.bursts()[1] / 2;
    let _: UpdateContainerResponse = runtime.call("UpdateContainer", &request(smaller));
    agent.signal(Signal::KILL);
    drop(scene.agent("off"));
    assert_eq!(scene.bursts(), [0, 0], "after a crash");
}
