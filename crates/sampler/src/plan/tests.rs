use super::*;

const EVERYTHING: ReadPlan = ReadPlan {
    counters: true,
    settings: true,
    stat: StatRead::Always,
    local: true,
    slow: Some(SlowRead::All),
    threads: true,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A cgroup that was read each second up to `now`, idle for the last `idle` seconds.
fn read_each_second(start: Instant, now: u64, idle: u64) -> Activity {
    let mut activity = Activity { settings_written: false, throttle_due: false, ..Activity::new() };
    for second in 0..now {
        activity.note(start + seconds(second), second + idle < now);
    }
    activity.slow_read = Some(start + seconds(now - 1));
    activity.threads_read = activity.slow_read;
    activity
}

/// The plan in a tick without rechecks; the parent has been idle for `parent_idle` seconds.
fn plan(version: CgroupVersion, files: FileSet, activity: &Activity, parent_idle: u64) -> ReadPlan {
    plan_on(Occasion::Tick, version, files, activity, parent_idle, |_| {})
}

/// The same on any occasion, after `change` of the inputs.
fn plan_on(
    occasion: Occasion,
    version: CgroupVersion,
    files: FileSet,
    activity: &Activity,
    parent_idle: u64,
    change: impl FnOnce(&mut Watched<'_>),
) -> ReadPlan {
    let (start, timing) = (Instant::now(), Timing::default());
    let offset = seconds(100);
    let now = start + offset;
    let mut rechecks = Rechecks::new(start);
    // A tick of zero length, which contains no phase.
    rechecks.advance(now, &timing);
    rechecks.advance(now, &timing);
    let clock = Clock { now, version, sees_settings: true, rechecks };
    let parent = read_each_second(now - seconds(30), 30, parent_idle);
    let mut watched = Watched {
        files,
        is_above_root: false,
        phase: 0,
        found: now - seconds(30),
        activity,
        above: PathQuota::default(),
        parent: Some(&parent),
    };
    change(&mut watched);
    read_plan(&watched, occasion, &clock, &timing)
}

fn container(idle: u64) -> Activity {
    let activity = read_each_second(Instant::now() + seconds(70), 30, idle);
    Activity { had_quota: true, ..activity }
}

#[test]
fn what_is_read_follows_from_activity() {
    use FileSet::{Bandwidth, Container, Pod};
    use StatRead::{Always, IfQuota, IfRun};
    let nothing = ReadPlan {
        counters: false,
        settings: false,
        stat: IfRun,
        local: false,
        slow: None,
        threads: false,
    };
    let counters = ReadPlan { counters: true, ..nothing };
    let (busy, idle) = (container(0), container(5));
    let unlimited = |activity| Activity { had_quota: false, ..activity };
    let written = Activity { settings_written: true, ..idle };
    let inherits =
        Activity { above: PathQuota { throttled_ns: 1, ..PathQuota::default() }, ..idle };
    let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
    let cases = [
        ("a running container", v1, Container, busy, 0, ReadPlan { stat: Always, ..counters }),
        ("its pod runs", v1, Container, idle, 0, counters),
        ("both are idle", v1, Container, idle, 5, nothing),
        (
            "on v2 cpu.stat holds the usage",
            v2,
            Container,
            idle,
            0,
            ReadPlan { stat: Always, ..counters },
        ),
        (
            "without a quota",
            v1,
            Container,
            unlimited(busy),
            0,
            ReadPlan { stat: IfQuota, ..counters },
        ),
        (
            "a setting was written",
            v1,
            Container,
            written,
            5,
            ReadPlan { settings: true, ..counters },
        ),
        ("a quota above has throttled", v1, Container, inherits, 5, counters),
        ("a pod is always read", v1, Pod, idle, 5, counters),
        (
            "and so is what is above it",
            v2,
            Bandwidth,
            unlimited(idle),
            5,
            ReadPlan { stat: IfQuota, ..counters },
        ),
    ];
    for (case, version, files, activity, parent_idle, expected) in cases {
        assert_eq!(plan(version, files, &activity, parent_idle), expected, "{case}");
    }
    assert_eq!(plan(v1, Container, &Activity::new(), 5), EVERYTHING, "what is new");
}

#[test]
fn between_ticks_only_new_cgroups_and_those_above_the_root_are_read() {
    use FileSet::{Bandwidth, Container, Pod};
    let running = container(0);
    let used = Activity { has_usage: true, ..running };
    let never_read = Activity::new();
    for (case, files, activity, age, is_above_root, expected) in [
        ("what runs waits for its tick", Container, running, 5, false, false),
        ("a usage file may still appear", Container, running, 4, false, true),
        ("it has appeared", Container, used, 4, false, false),
        ("a pod has no such file", Pod, running, 4, false, false),
        ("what was never read", Pod, never_read, 5, false, true),
        ("a quota that new cgroups inherit", Bandwidth, used, 5, true, true),
        ("one of the kubelet", Bandwidth, used, 5, false, false),
    ] {
        let change = |watched: &mut Watched<'_>| {
            watched.found += seconds(30 - age);
            watched.is_above_root = is_above_root;
        };
        let version = CgroupVersion::V1;
        let plan = plan_on(Occasion::BetweenTicks, version, files, &activity, 0, change);
        assert_eq!((plan.counters, plan.slow, plan.threads), (expected, None, false), "{case}");
    }
}

#[test]
fn files_of_a_cgroup_are_closed_once_it_is_idle_for_long() {
    use FileSet::{Bandwidth, Container, Pod};
    let (start, timing) = (Instant::now(), Timing::default());
    let most = Keeping { settings: false, ..Keeping::ALL };
    let idle_for = |idle| read_each_second(start, 100, idle);
    let kept = |files, idle, parent_idle| {
        let (activity, parent) = (idle_for(idle), idle_for(parent_idle));
        let watched = Watched {
            files,
            is_above_root: false,
            phase: 0,
            found: start,
            activity: &activity,
            above: PathQuota::default(),
            parent: Some(&parent),
        };
        kept_files(&watched, most, start + seconds(99), &timing)
    };
    let long = 61;
    let none = Keeping { counters: false, running: false, settings: false, slow: false };
    let counters = Keeping { counters: true, ..none };
    for (case, files, idle, parent_idle, expected) in [
        ("it runs", Container, 0, 0, most),
        ("not for long", Container, 30, long, most),
        ("its pod runs", Container, long, 0, counters),
        ("both are idle", Container, long, long, none),
        ("a pod is read in each tick", Pod, long, long, counters),
        ("there are few above the pods", Bandwidth, long, long, Keeping::ALL),
    ] {
        assert_eq!(kept(files, idle, parent_idle), expected, "{case}");
    }
}

#[test]
fn a_last_read_includes_throttling_by_ancestors() {
    let idle = container(5);
    let quota = PathQuota { had_quota: true, ..PathQuota::default() };
    let idle = Activity { above: quota, slow_read: None, threads_read: None, ..idle };
    let on = |occasion, files| {
        let limited = |watched: &mut Watched<'_>| watched.above = quota;
        plan_on(occasion, CgroupVersion::V2, files, &idle, 5, limited)
    };
    let last = on(Occasion::LastRead, FileSet::Container);
    assert_eq!((last.counters, last.local, last.slow, last.threads), (true, true, None, false));
    let tick = on(Occasion::Tick, FileSet::Container);
    assert_eq!(
        (tick.counters, tick.local, tick.slow, tick.threads),
        (false, false, Some(SlowRead::All), true)
    );
    assert!(!on(Occasion::LastRead, FileSet::Pod).local, "only containers have the file");
}

#[test]
fn idle_is_a_time_at_any_interval() {
    let (start, timing) = (Instant::now(), Timing::default());
    for millis in [100, 250, 1000, 1500, 60_000] {
        let mut activity = Activity::new();
        let interval = Duration::from_millis(millis);
        activity.note(start, true);
        let mut now = start;
        while now < start + timing.idle_after {
            assert!(!activity.is_idle(now, &timing), "every {millis} ms, after {:?}", now - start);
            now += interval;
            activity.note(now, false);
        }
        assert!(activity.is_idle(now, &timing), "every {millis} ms");
        activity.note(now + interval, true);
        assert!(!activity.is_idle(now + interval * 2, &timing));
    }
}

#[test]
fn memory_is_read_every_thirty_seconds_and_its_limit_every_sixty() {
    let (start, timing) = (Instant::now(), Timing::default());
    let mut activity = Activity::new();
    let read = |activity: &mut Activity, at| {
        let now = start + seconds(at);
        let files = activity.slow_files_due(now, &timing);
        activity.note_slow(files, false, now);
        files
    };
    use SlowRead::{All, Memory, Often};
    let found = [0, 10, 20, 30, 39, 50, 60, 70].map(|at| read(&mut activity, at));
    assert_eq!(found, [All, Often, Often, Memory, Often, Often, All, Often]);
    let mut activity = Activity::new();
    let found = [0, 10, 29, 40, 59].map(|at| read(&mut activity, at));
    assert_eq!(found, [All, Often, Memory, Often, All], "a tick early");
    activity.slow_read = None;
    assert_eq!(read(&mut activity, 61), All, "its series is new");
    assert_eq!(timing.with_memory_often().memory_recheck, seconds(10));
}

#[test]
fn child_cgroups_are_read_each_time_once_there_are_some() {
    let start = Instant::now();
    let at = |second| Some(start + seconds(second));
    let mut activity = Activity::new();
    let mut note = |files, has_children, second| {
        activity.note_slow(files, has_children, start + seconds(second))
    };
    assert_eq!(note(SlowRead::All, false, 0), None);
    assert_eq!(note(SlowRead::Often, false, 10), None, "not looked for");
    assert_eq!(note(SlowRead::Memory, false, 30), at(0));
    assert_eq!(note(SlowRead::Often, true, 40), at(30));
    assert_eq!(note(SlowRead::Memory, true, 60), at(40));
}
