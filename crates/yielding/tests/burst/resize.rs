//! Limits that change while their containers burst.

use std::time::Duration;

use kernel_text::CgroupVersion;
use state_dir::Setting;
use yielding::{Resizes, restore};

use crate::node::{Node, UID, id, path};

#[test]
fn a_burst_is_lowered_before_the_limit_shrinks() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut actor = node.actor();
        node.pass(&mut actor);
        node.pod.containers[0].resources.cpu_limit_millis = Some(200);
        node.pass(&mut actor);
        assert_eq!(node.bursts(), ["10000", "10000", "0"]);
        assert_eq!(node.quotas()[1], 40_000, "the kubelet has not written yet");
    }
}

#[test]
fn a_burst_is_lowered_as_soon_as_the_runtime_announces_a_smaller_limit() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut actor = node.actor();
        node.pass(&mut actor);
        node.normalize();
        node.resizes.container(UID, &id("app"), 10_000);
        assert_eq!(node.bursts(), ["9999", "9999", "0"], "at once");
        // The pod list still has the larger limit, and the runtime has not written yet.
        let report = node.pass(&mut actor);
        assert_eq!(node.bursts(), ["5000", "5000", "0"]);
        assert_eq!(report.writes.written, [(Setting::Burst, 4)].into());
        assert_eq!((report.writes.repaired, report.containers[0].usec), (0, 5_000));
        node.quota(&path("app"), 10_000);
        node.pod.containers[0].resources.cpu_limit_millis = Some(100);
        node.pass(&mut actor);
        assert_eq!(node.bursts(), ["5000", "5000", "0"], "in force");
        node.resizes.container(UID, &id("app"), 80_000);
        node.quota(&path("app"), 80_000);
        node.pod.containers[0].resources.cpu_limit_millis = Some(800);
        node.pass(&mut actor);
        assert_eq!(node.bursts(), ["40000", "40000", "0"], "a larger limit");
        let (_, errors) = actor.give_back();
        assert!(errors.is_empty() && node.bursts() == ["0", "0", "0"], "{errors:?}");
    }
}

#[test]
fn a_burst_that_a_resize_lowered_is_restored_after_a_crash() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    node.normalize();
    node.resizes.container(UID, &id("app"), 10_000);
    drop(actor);
    assert_eq!(restore(&node.config(), Duration::ZERO).unwrap(), 2);
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    node.normalize();
    // Nothing of it is in force any more.
    node.resizes.container(UID, &id("app"), 1_000);
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

/// A process that does not know the burst cannot lower it: the kubelet repeats its resize until the
/// next start of the agent, or a drain, has restored the burst.
#[test]
fn a_burst_that_a_killed_agent_left_is_restored_by_the_next_start_and_then_follows_resizes() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut killed = node.actor();
        node.pass(&mut killed);
        drop(killed);
        node.resizes = Resizes::default();
        node.resizes.container(UID, &id("app"), 10_000);
        assert_eq!(node.bursts(), ["20000", "20000", "0"], "left");
        assert_eq!(restore(&node.config(), Duration::ZERO).unwrap(), 2);
        assert_eq!(node.bursts(), ["0", "0", "0"], "the resize succeeds now");
        node.normalize();
        node.quota(&path("app"), 10_000);
        node.pod.containers[0].resources.cpu_limit_millis = Some(100);
        let mut actor = node.actor();
        node.pass(&mut actor);
        assert_eq!(node.bursts(), ["5000", "5000", "0"], "of the new limit");
        node.resizes.container(UID, &id("app"), 4_000);
        assert_eq!(node.bursts(), ["3999", "3999", "0"], "at once");
    }
}
