//! Burst on a directory that looks like a node: choice, resizes, restoration.
//! `tests/it/kernel/burst.rs` repeats the essentials on real cgroups.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;
mod resize;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use kernel_text::CgroupVersion;
use kubepods::path::QosClass;
use state_dir::ActingMode;
use state_dir::{CheckedFile, Setting};
use yielding::rules::Ineligible;
use yielding::{
    Actor, ActorConfig, BurstChange, BurstReport, BurstSettings, Feature, Mode, Why, restore,
};

use node::{Node, path, pod_path};

#[test]
fn a_container_that_gains_bursts_and_its_pod_with_it() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let mut actor = node.actor();
        let report = node.pass(&mut actor);
        assert_eq!(node.bursts(), ["20000", "20000", "0"]);
        assert_eq!(report.writes.written, [(Setting::Burst, 2)].into());
        assert_eq!(report.writes.errors, Vec::<String>::new());
        let [(burst, BurstChange::Raised { without, with })] = &report.changes[..] else {
            panic!("{report:?}")
        };
        assert_eq!((&*burst.container, burst.percent, burst.usec), ("app", 50, 0));
        assert_eq!((*without, *with), (0.3, 0.001));
        assert_eq!(report.others, [(Ineligible::NotMeasured, 1)].into());
        let report = node.pass(&mut actor);
        assert!(report.writes.written.is_empty() && report.changes.is_empty(), "{report:?}");
        assert_eq!(report.containers[0].usec, 20_000);
    }
}

#[test]
fn who_may_not_burst_is_counted_by_reason() {
    type Change = fn(&mut Node);
    let cases: [(Change, Ineligible); 8] = [
        (|node| node.cpu_qos = "LSR", Ineligible::Exclusive),
        (|node| node.pod.qos_class = Some(QosClass::BestEffort), Ineligible::BestEffort),
        (|node| node.annotate("{}"), Ineligible::NotRequested),
        (|node| node.annotate(r#"{"policy":"cfsQuotaBurstOnly"}"#), Ineligible::NotOffered),
        (|node| node.annotate(r#"{"policy":"always"}"#), Ineligible::InvalidAnnotation),
        (|node| node.forecasts.get_mut("app").unwrap().mean_use = Some(0.9), Ineligible::Busy),
        (
            |node| node.forecasts.get_mut("app").unwrap().throttled_share = Some(0.0),
            Ineligible::NotThrottled,
        ),
        (
            |node| node.forecasts.get_mut("app").unwrap().replayed[2..].fill((0.75, 0.29)),
            Ineligible::NoGain,
        ),
    ];
    for (change, reason) in cases {
        let mut node = Node::new(CgroupVersion::V2);
        change(&mut node);
        let report = node.pass(&mut node.actor());
        assert!(report.others.contains_key(&reason), "{reason:?}: {report:?}");
        assert_eq!(node.bursts(), ["0", "0", "0"], "{reason:?}");
    }
}

#[test]
fn the_annotation_lowers_the_burst_and_cannot_raise_it() {
    for (percent, burst) in [(25, "10000"), (1000, "20000")] {
        let mut node = Node::new(CgroupVersion::V2);
        node.annotate(&format!(r#"{{"policy":"cpuBurstOnly","cpuBurstPercent":{percent}}}"#));
        // A quarter is enough to pass the condition of the gain.
        node.forecasts.get_mut("app").unwrap().replayed[1].1 = 0.1;
        node.pass(&mut node.actor());
        assert_eq!(node.bursts()[1], burst, "{percent} %");
    }
}

#[test]
fn a_burst_that_the_kernel_divided_is_written_again() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    for _ in 0..10 {
        node.pass(&mut actor);
        node.file(&node.burst_file(&path("app")), "20\n");
    }
    let report = node.pass(&mut actor);
    assert_eq!(node.bursts(), ["20000", "20000", "0"]);
    assert_eq!((report.mode, report.writes.repaired), (Mode::Enforcing, 0), "no conflict");
    node.file(&node.burst_file(&path("app")), "20\n");
    actor.give_back();
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

/// As of a resize by a kernel before 6.10, which two writers of `cpu.max` carry out.
#[test]
fn a_burst_that_the_kernel_divided_to_nothing_is_no_conflict() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    for _ in 0..10 {
        node.normalize();
        let report = node.pass(&mut actor);
        assert_eq!((report.mode, report.writes.repaired), (Mode::Enforcing, 0));
        assert_eq!(node.bursts(), ["20000", "20000", "0"]);
        node.second += 15;
    }
    node.normalize();
    actor.give_back();
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

#[test]
fn a_burst_that_another_program_insists_to_clear_stays_zero_for_ten_minutes() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    for _ in 0..7 {
        node.pass(&mut actor);
        node.normalize();
    }
    let report = node.pass(&mut actor);
    assert_eq!((report.mode, report.writes.written), (Mode::Enforcing, [].into()));
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    node.second += 601;
    node.pass(&mut actor);
    assert_eq!(node.bursts(), ["20000", "20000", "0"], "tried again");
}

#[test]
fn a_pod_that_sets_its_own_burst_is_left_at_zero() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    let insist = |node: &Node| node.file(&node.burst_file(&path("app")), "39999\n");
    let mut conflicts = 0;
    for _ in 0..6 {
        let report = node.pass(&mut actor);
        assert_eq!(report.mode, Mode::Enforcing);
        conflicts += report.writes.conflicts;
        assert_eq!(node.bursts()[1], "20000");
        insist(&node);
        node.second += 1;
    }
    let mut repairs = 0;
    for _ in 0..30 {
        insist(&node);
        let report = node.pass(&mut actor);
        assert_eq!(report.mode, Mode::Enforcing, "for the other pods");
        conflicts += report.writes.conflicts;
        if report.writes.repaired > 0 {
            assert_eq!(node.bursts()[1], "0");
            repairs += 1;
        }
    }
    assert_eq!((repairs, conflicts), (3, 1), "once in ten seconds, and reported once");
}

/// As kubelets with KEP-6333 would do: they write the burst when they create the cgroup.
#[test]
fn bursts_of_a_pod_in_which_another_program_set_one_first_are_left_to_it() {
    for (theirs, expected) in [
        (path("app"), ["0", "30000", "0"]),
        (pod_path(), ["30000", "0", "0"]),
        // Of a container for which this agent requires none.
        (path("side"), ["20000", "20000", "30000"]),
    ] {
        let mut node = Node::new(CgroupVersion::V2);
        node.file(&node.burst_file(&theirs), "30000\n");
        let mut actor = node.actor();
        let yielded: u64 = (0..20).map(|_| node.pass(&mut actor).writes.yielded).sum();
        assert_eq!(
            (node.bursts(), yielded),
            (expected.map(str::to_owned), u64::from(expected[1] != "20000"))
        );
        actor.give_back();
        assert_eq!(node.read(&node.burst_file(&theirs)), "30000", "{theirs}");
    }
}

#[test]
fn a_burst_that_the_other_program_removes_is_written_again() {
    let mut node = Node::new(CgroupVersion::V2);
    node.file(&node.burst_file(&path("app")), "30000\n");
    let mut actor = node.actor();
    node.pass(&mut actor);
    assert_eq!(node.bursts(), ["0", "30000", "0"]);
    node.file(&node.burst_file(&path("app")), "0\n");
    node.pass(&mut actor);
    assert_eq!(node.bursts(), ["20000", "20000", "0"]);
}

#[test]
fn a_burst_stays_while_a_changed_limit_has_no_replay() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    let forecast = node.forecasts.get_mut("app").unwrap();
    (forecast.throttled_share, forecast.replayed) = (None, Vec::new());
    node.pass(&mut actor);
    assert_eq!(node.bursts()[1], "20000");
}

#[test]
fn a_burst_in_force_ends_only_below_half_of_the_condition() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor = node.actor();
    node.pass(&mut actor);
    let without = |node: &mut Node, share| {
        let forecast = node.forecasts.get_mut("app").unwrap();
        // The kernel counts no throttling any more: that is the burst's effect.
        forecast.throttled_share = Some(0.0);
        forecast.replayed = vec![(0.0, share), (0.25, 0.0), (0.5, 0.0), (0.75, 0.0)];
    };
    without(&mut node, 0.006);
    node.pass(&mut actor);
    assert_eq!(node.bursts()[1], "20000");
    without(&mut node, 0.004);
    let report = node.pass(&mut actor);
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    assert_eq!(report.changes[0].1, BurstChange::Ended(Ineligible::NotThrottled));
    assert_eq!(report.writes.restored, 2);
}

#[test]
fn everything_is_as_before_after_stop_crash_drain_and_restore() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        let reach = |node: &mut Node| {
            let mut actor = node.actor();
            node.pass(&mut actor);
            assert_eq!(node.bursts()[1], "20000");
            actor
        };
        let check = |node: &Node, after: &str| {
            assert_eq!(node.bursts(), ["0", "0", "0"], "{after}");
        };
        let (restored, errors) = reach(&mut node).give_back();
        assert!(restored == 2 && errors.is_empty(), "{restored}, {errors:?}");
        check(&node, "stop");
        node.normalize();
        drop(reach(&mut node));
        assert_eq!(restore(&node.config(), Duration::ZERO).unwrap(), 2);
        check(&node, "crash and restore");
        node.normalize();
        let mut actor = reach(&mut node);
        let report = node.pass_with(&mut actor, true);
        assert_eq!(report.mode, Mode::Observing(Why::Drained));
        check(&node, "drain");
        assert!(!node.dir.path().join("state/yields.json").exists());
    }
}

#[test]
fn quotas_above_the_limit_are_rejected_once_and_auto_still_bursts() {
    let mut node = Node::new(CgroupVersion::V2);
    node.annotate(r#"{"policy":"auto","cfsQuotaBurstPercent":300}"#);
    let mut actor = node.actor();
    let rejected = |report: &BurstReport| {
        let changes = report.changes.iter();
        let changes = changes.filter(|(_, change)| *change == BurstChange::Rejected);
        changes.map(|(one, _)| one.container.clone()).collect::<Vec<_>>()
    };
    let report = node.pass(&mut actor);
    assert_eq!(rejected(&report), ["app", "side"]);
    assert_eq!(node.bursts(), ["20000", "20000", "0"]);
    assert_eq!(rejected(&node.pass(&mut actor)), [""; 0], "reported");
    node.annotate(r#"{"policy":"cpuBurstOnly"}"#);
    assert_eq!(rejected(&node.pass(&mut actor)), [""; 0]);
    node.annotate(r#"{"policy":"cfsQuotaBurstOnly"}"#);
    let report = node.pass(&mut actor);
    assert_eq!(rejected(&report), ["app", "side"], "requested again");
    assert_eq!(report.others, [(Ineligible::NotOffered, 2)].into());
    assert_eq!(node.quotas(), [200_000, 40_000, 40_000]);
}

/// Writes the checkpoint of an agent that scaled the quotas of `app` and its pod, by 1.2, and
/// crashed. A kernel before 6.10 has divided the burst of the runtime, 12345.
fn scale_by_an_older_agent(node: &Node) {
    let written = [(path("app"), 40_000, ",\"burst\":12345"), (pod_path(), 200_000, "")];
    let entries = written.map(|(path, limit, burst)| {
        let scaled = limit * 6 / 5;
        node.quota(&path, scaled);
        let value = |quota: u64| match node.version {
            CgroupVersion::V1 => quota.to_string(),
            CgroupVersion::V2 => format!("{quota} 100000"),
        };
        let inode = fs::metadata(node.dir.path().join("cpu").join(&path)).unwrap().ino();
        let original = format!(r#"{{"value":"{}"{burst}}}"#, value(limit));
        let wrote = value(scaled);
        let names = r#""namespace":"n","pod":"cart""#;
        let was = format!(r#"{{{names},"inode":{inode},"original":{original},"wrote":"{wrote}"}}"#);
        format!(r#"["{path}","scaled_quota",{was}]"#)
    });
    node.file(&node.burst_file(&path("app")), "12");
    let body = format!(r#"{{"boot_id":null,"written":[{}]}}"#, entries.join(","));
    let file = CheckedFile { name: "yields.json", magic: "cpuwarden-yields-1", remedy: "" };
    node.file("state/yields.json", &file.text(&body));
}

#[test]
fn scaled_quotas_of_an_older_agent_are_restored_once() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let mut node = Node::new(version);
        scale_by_an_older_agent(&node);
        assert_eq!(node.quotas()[..2], [240_000, 48_000]);
        assert_eq!(restore(&node.config(), Duration::ZERO).unwrap(), 2);
        assert_eq!(node.quotas(), [200_000, 40_000, 40_000], "after a start");
        assert_eq!(node.bursts(), ["0", "12345", "0"], "the runtime's");
        assert!(!node.dir.path().join("state/yields.json").exists());
        scale_by_an_older_agent(&node);
        node.pass(&mut node.actor());
        assert_eq!(node.quotas(), [200_000, 40_000, 40_000], "after a pass");
        assert_eq!(node.bursts(), ["0", "12345", "0"], "left to the runtime");
        assert!(!node.dir.path().join("state/yields.json").exists());
    }
}

#[test]
fn observing_decides_and_writes_nothing() {
    let mut node = Node::new(CgroupVersion::V2);
    let mut actor =
        Actor::new(ActorConfig { burst: ActingMode::Observe, ..node.config() }, node.start);
    let report = node.pass(&mut actor);
    assert_eq!(report.mode, Mode::Observing(Why::Configured(Feature::Burst, ActingMode::Observe)));
    assert_eq!((report.containers.len(), report.containers[0].usec), (1, 20_000));
    assert_eq!(node.bursts(), ["0", "0", "0"]);
    assert!(!node.dir.path().join("state").exists());
}

/// A file of /proc stands for the cgroup's: it rejects 20000 with EINVAL, and accepts 0.
#[test]
fn a_burst_that_the_kernel_rejects_becomes_zero() {
    let mut node = Node::new(CgroupVersion::V2);
    let file = node.dir.path().join(node.burst_file(&path("app")));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/proc/self/oom_score_adj", &file).unwrap();
    fs::write(&file, "0").unwrap();
    let mut actor = node.actor();
    let report = node.pass(&mut actor);
    assert_eq!((report.writes.rejected, report.writes.errors.len()), (1, 0), "{report:?}");
    assert_eq!(node.bursts()[1], "0");
    let report = node.pass(&mut actor);
    assert_eq!((report.writes.rejected, report.writes.repaired), (0, 0), "not tried again at once");
    node.second += 601;
    assert_eq!(node.pass(&mut actor).writes.rejected, 1, "tried again after ten minutes");
}

#[test]
fn an_older_kernel_is_reported() {
    let mut node = Node::new(CgroupVersion::V2);
    let burst_settings = BurstSettings { can_burst: false, ..BurstSettings::default() };
    let mut actor = Actor::new(ActorConfig { burst_settings, ..node.config() }, node.start);
    let report = node.pass(&mut actor);
    assert_eq!(report.mode, Mode::Observing(Why::NoBurst));
    assert_eq!(node.bursts(), ["0", "0", "0"]);
}

#[test]
fn a_pod_limit_keeps_headroom_above_the_burst_of_the_pod() {
    let mut node = Node::of(CgroupVersion::V2, &["app", "side"]);
    // Its own limit is half of the containers' limits together.
    node.pod.resources.cpu_limit_millis = Some(400);
    node.quota(&pod_path(), 40_000);
    node.pass(&mut node.actor());
    assert_eq!(node.bursts(), ["30000", "20000", "20000"]);
}
