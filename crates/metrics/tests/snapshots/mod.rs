//! Snapshots shared by the tests: a small node with every field of cgroup v2, and large nodes.

#![allow(dead_code, reason = "several test binaries and a bench share this, each a part of it")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubepods::model::Owner;
use metrics::{AdviceRow, AgentMetrics, Build, SlowedBecause, SlowedBy, SlowedRow};
use snapshot::{
    Bandwidth, CfsTotals, ContainerGc, ContainerIdentity, ContainerRow, ContainerWaits, CpuLimit,
    CpuPlace, CpuWeight, CpusetRow, FeatureState, GcInterval, GcUnread, Histogram, InterferenceRow,
    KernelCounters, KernelInfo, Limit, Losses, MissingContainer, NodeGc, NodeRow, NodeSnapshot,
    NodeWaits, PodIdentity, PodRow, PressureRow, PressureScope, ProcessRow, Quota, SamplerRow,
    SmtShares, Threads, TraceMode, TraceRow, WINDOW_BUCKETS, WeightRule, WindowHistogram, labels,
};

/// Time of the snapshots: 2026-01-02 03:04:05 UTC.
pub(crate) fn taken() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// A pod that others and its own limit have slowed.
pub(crate) fn slowed(namespace: &str, pod: &str) -> SlowedRow {
    let because = |reason, slowed_ns| SlowedBecause { reason, slowed_ns, lost_ns: slowed_ns / 4 };
    let by = |namespace: &str, workload: &str, beyond_request| SlowedBy {
        namespace: namespace.into(),
        workload: workload.into(),
        beyond_request,
        slowed_ns: 20_000_000_000,
    };
    SlowedRow {
        pod: Arc::new(PodIdentity::new(namespace.to_owned(), pod.to_owned())),
        reasons: vec![because("neighbor", 60_000_000_000), because("own_limit", 3_000_000_000)],
        by: vec![by("batch", "report", true), by("system", "", false), by("several", "", false)],
    }
}

/// The agent's own metrics, each with a value.
pub(crate) fn agent() -> AgentMetrics {
    let agent = AgentMetrics::new(Build { version: "0.1.0", revision: "0123abc" });
    agent.observe_tick(Duration::from_micros(80), Duration::from_millis(2));
    agent.observe_tick(Duration::from_secs(3), Duration::from_millis(40));
    agent.pod_source_succeeded("kubelet", taken());
    agent.pod_source_failed("pod_resources");
    agent.set_apiserver_requests(1);
    agent.set_subsystems([("sampler", true), ("pinning", false)].into_iter());
    agent.subsystem_restarted("pinning");
    agent.page_rendered("metrics");
    agent.http_connection_cut("waiting");
    agent.add_node_condition_patch("ok");
    agent.set_pod_lists_cut(1);
    let pinning = agent.pinning();
    pinning.set_pinned([(["shop", "cart-1", "LSR", "FullPCPUs"], 2)].into_iter());
    pinning.set_pool("share", 6);
    pinning.add_overlaps([(["shop", "cart-1"], Duration::from_millis(20))].into_iter());
    pinning.add_operations("write", true, 3);
    pinning.add_rejection("request_not_integer");
    pinning.set_enforcing(Some("--pinning=observe"));
    pinning.set_stepped_back([(["pod", "rewritten"], 2)].into_iter());
    pinning.add_event("sent");
    agent.set_recording(true);
    agent.slowed().set(vec![slowed("shop", "cart-1")]);
    let injection = agent.injection();
    injection.set_connected(["containerd", "v2.4.3"], true);
    injection.add_disconnected(Duration::from_millis(1500));
    injection.add_reconnections(2);
    injection.add_empty_answer("CreateContainer");
    injection.add_missed("pod_not_listed", 1);
    let variable = ["shop", "cart-1", "main", "GOMAXPROCS", "1", "injected"];
    injection.set_variables([variable].into_iter());
    let best_effort = agent.best_effort();
    best_effort.set_step(2, Duration::from_secs(5));
    best_effort.set_enforcing(Some("--best-effort=observe"));
    best_effort.set_restricted([["batch", "gone"]].into_iter());
    best_effort.set_restricted([["batch", "report"]].into_iter());
    best_effort.set_harm(0.25);
    best_effort.set_budget(1.5);
    best_effort.add_transition(1, "harm");
    best_effort.add_writes("all", "restored", 3);
    let burst = agent.burst();
    burst.set_enforcing(None);
    burst.set_bursts([(["shop", "cart-1", "main"], 0.015)].into_iter());
    burst.set_containers([("burst", 1), ("busy", 2), ("not_offered", 1)].into_iter());
    burst.add_change(["raise", "throttled"]);
    burst.add_writes("burst", "ok", 2);
    agent.advice().set(vec![advised("cart-1")]);
    agent
}

/// Advice for the container `main` of a pod.
pub(crate) fn advised(pod: &str) -> AdviceRow {
    AdviceRow {
        identity: identity("shop", pod, "main"),
        runtime: Some("go"),
        version: Some("go1.24.4".into()),
        parallelism: Some(8),
        objective: "0.01".into(),
        limit_cores: Some(1.5),
        limit_bound: "lower",
        burst_seconds: Some(0.05),
        memory_soft_limit_bytes: Some(700 << 20),
    }
}

/// A node with `containers` containers, two per pod, with every value that a row can have.
pub(crate) fn node(containers: usize) -> NodeSnapshot {
    NodeSnapshot {
        sequence: 7,
        read_at: None,
        taken: Some(taken()),
        interval: Duration::from_secs(1),
        containers: (0..containers).map(container).collect(),
        pods: Vec::new(),
        cgroups: Vec::new(),
        missing: None,
        waits: Arc::default(),
        gc: Arc::default(),
        node: node_row(),
        sampler: SamplerRow {
            cgroups: vec![("container", containers as u64), ("pod", containers as u64 / 2)],
            unmapped_cgroups: vec![("container", 1)],
            read_errors: vec![("vanished", 3), ("io", 0)],
            unkept_cgroups: 0,
            task_scan_ns: Some(1_500_000),
            task_scan_threads: Some(42),
            process: ProcessRow {
                cpu_ns: Some(12_340_000_000),
                resident_bytes: Some(12_582_912),
                virtual_bytes: Some(1_258_291_200),
                open_fds: Some(512),
                max_fds: Some(1_048_576),
                start_time_seconds: Some(1_700_000_000.25),
            },
        },
    }
}

/// A snapshot in which every metric of the catalogue has a sample: a live container, one that is
/// gone, and a pod with a quota.
pub(crate) fn maximal() -> NodeSnapshot {
    let mut snapshot = node(1);
    snapshot.containers.push(ContainerRow {
        identity: identity("shop", "cart-1", "gone"),
        usage_ns: Some(3_250_000_000),
        user_ns: Some(3_000_000_000),
        system_ns: Some(250_000_000),
        ..ContainerRow::default()
    });
    snapshot.pods.push(pod(0));
    let missing = |sandboxed_by: Option<&str>| MissingContainer {
        namespace: "shop".into(),
        pod: "machine".into(),
        container: "app".into(),
        sandboxed_by: sandboxed_by.map(Into::into),
    };
    snapshot.missing = Some([missing(None), missing(Some("kata")), missing(Some("kata"))].into());
    snapshot.waits = Arc::new(NodeWaits {
        interference: vec![InterferenceRow {
            victim: pod(0).identity,
            aggressor_namespace: "batch".into(),
            aggressor_pod: "encode-0".into(),
            wait_ns: 1_250_000_000,
        }],
        pressure: vec![
            pressure(PressureScope::Node, 1_500_000_000, 4_000_000_000),
            pressure(PressureScope::Burstable, 1_250_000_000, 3_000_000_000),
        ],
        trace: Some(TraceRow {
            mode: TraceMode::Bursts { one_of: 4 },
            run_ns: 2_000_000,
            switches: 10_000,
            losses: Losses {
                lost_waits: 1,
                lost_ns: 5_000,
                evicted_histories: 2,
                unknown_cgroup_ns: 7_000,
            },
        }),
        ..NodeWaits::default()
    });
    snapshot.gc = Arc::new(NodeGc {
        unread: vec![(GcUnread::NotPermitted, 3)],
        dropped: 1,
        feature: Some(FeatureState {
            feature: "garbage_collection",
            enabled: true,
            reason: String::new(),
        }),
        ..NodeGc::default()
    });
    snapshot.containers[0].gc = Some(Arc::new(collections()));
    snapshot
}

/// Garbage collection of a Go program.
fn collections() -> ContainerGc {
    ContainerGc {
        cycles: 1_234,
        cpu_ns: Some(98_765_432_100),
        pause_ns: Some(432_100_000),
        live_bytes: Some(64 << 20),
        goal_bytes: Some(128 << 20),
        limit_bytes: Some(700 << 20),
        recent: Some(GcInterval {
            number: 7,
            seconds: 10.0,
            cycles: 12,
            cpu_share: Some(0.125),
            stopped_share: Some(0.01),
        }),
        ..ContainerGc::default()
    }
}

fn pressure(scope: PressureScope, lower_ns: u64, upper_ns: u64) -> PressureRow {
    PressureRow { scope, lower_ns, upper_ns, lower: 0.1, upper: 0.4 }
}

/// Identity of a container's series, with plausible values for the other fields.
pub(crate) fn identity(namespace: &str, pod: &str, container: &str) -> Arc<ContainerIdentity> {
    Arc::new(ContainerIdentity {
        labels: labels::pairs(&[("namespace", namespace), ("pod", pod), ("container", container)]),
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        uid: "8c5b0c0e-91a1-4f3c-a0ad-2f5f4b6f9d11".to_owned(),
        container_id: "4f1f7c0a9be44b0f8d3a2f6f5f0f0c6e0d6c4a0b1b2c3d4e5f60718293a4b5c6".to_owned(),
        image: "registry.example/shop/cart:1.2.3".to_owned(),
        qos_class: "Burstable".to_owned(),
        cpu_qos: String::new(),
        best_effort: false,
        cgroup_driver: "systemd",
        workload: Some(Owner { kind: "Deployment".into(), name: "checkout".into() }),
        pod_labels: Box::default(),
        claims_cpus: false,
    })
}

/// The `n`th container of a node; counters differ between rows, as on a real node.
fn container(n: usize) -> ContainerRow {
    let seed = n as u64 * 1_000_003;
    let pod = format!("checkout-7d9c5b6f4-{:05}", n / 2);
    ContainerRow {
        identity: identity("shop", &pod, if n.is_multiple_of(2) { "app" } else { "proxy" }),
        live: true,
        usage_ns: Some(85_234_567_891 + seed * 998),
        user_ns: Some(81_234_567_891 + seed * 997),
        system_ns: Some(4_000_000_000 + seed),
        cfs: Some(cfs(seed)),
        throttled_ancestor_ns: Some(seed),
        throttled_child_ns: None,
        windows: Some(windows(n as u64)),
        cpu_limit: Limit::Limited(CpuLimit { cores: 0.25, period_usec: 100_000 }),
        request_cores: Some(0.1),
        weight: Some(CpuWeight::Weight(17)),
        weight_rule: WeightRule::Quadratic,
        bandwidth: Some(Bandwidth { quota: Quota::Usec(25_000), period_usec: 100_000 }),
        cgroup: Some("kubepods.slice/kubepods-burstable.slice/cri-containerd-4f1f.scope".into()),
        // Includes what was counted before the agent started.
        kernel: KernelCounters {
            usage_ns: Some(1_000_085_234_567_891 + seed * 998),
            periods: Some(100_600 + seed),
            throttled_periods: Some(100_210 + seed),
            throttled_ns: Some(1_017_123_456_789 + seed),
            pressure_waiting_ns: Some(1_009_876_543_000 + seed),
            pressure_stalled_ns: Some(1_001_234_000 + seed),
            memory_waiting_ns: Some(3_000_001_000 + seed),
            memory_stalled_ns: Some(2_000_001_000 + seed),
            io_waiting_ns: Some(5_000_001_000 + seed),
            io_stalled_ns: Some(4_000_001_000 + seed),
            tasks: Some(24),
        },
        pressure_waiting_ns: Some(9_876_543_000 + seed),
        pressure_stalled_ns: Some(1_234_000 + seed),
        contention_lower_ns: Some(70_000_000 + seed),
        contention_upper_ns: Some(90_000_000 + seed),
        run_delay_ns: Some(95_000_000 + seed),
        waits: Some(Arc::new(waits(seed))),
        gc: None,
        cpuset: Some(Arc::new(CpusetRow { cpus: "0-3,8".to_owned(), count: 5 })),
        numa_memory: vec![(0, 33_554_432 + seed), (1, 4096)],
        first_pid: Some(1),
        threads: Threads::Counted(23),
        runnable_threads: Some(2),
        memory_working_set_bytes: Some(134_217_728 + seed),
        memory_live_bytes: Some(134_217_728 + seed),
        memory_limit_bytes: Limit::Limited(268_435_456),
        memory_request_bytes: Some(67_108_864),
        spec: None,
    }
}

fn waits(seed: u64) -> ContainerWaits {
    let histogram = |sum_ns| Histogram { counts: [5, 4, 3, 2, 1, 0, 0, 0, 0, 1], sum_ns };
    ContainerWaits {
        throttled_ns: 17_123_456_789 + seed,
        neighbor_ns: 2_500_000_000 + seed,
        self_ns: 300_000_000,
        system_ns: 40_000_000,
        unattributed_ns: 5_000_000,
        latency: histogram(2_840_000_000),
        stalls: histogram(17_123_456_789),
        smt: Some(SmtShares {
            self_ns: 1_000_000_000,
            other_ns: 2_000_000_000,
            idle_ns: 3_000_000_000,
        }),
    }
}

/// The `n`th pod with its own quota.
pub(crate) fn pod(n: usize) -> PodRow {
    let name = format!("checkout-7d9c5b6f4-{n:05}");
    PodRow {
        identity: Arc::new(PodIdentity::new("shop".to_owned(), name)),
        cfs: cfs(n as u64),
        windows: windows(n as u64),
        cpu_limit: Limit::Limited(CpuLimit { cores: 1.5, period_usec: 100_000 }),
    }
}

fn cfs(seed: u64) -> CfsTotals {
    CfsTotals {
        periods: 600 + seed,
        throttled_periods: 210 + seed / 3,
        throttled_ns: 17_123_456_789 + seed,
        burst_periods: Some(4),
        burst_ns: Some(80_000_000),
    }
}

fn windows(seed: u64) -> WindowHistogram {
    let mut counts = [1; WINDOW_BUCKETS.len() + 1];
    counts[0] = 40 + seed;
    WindowHistogram { counts, sum: 3.7 + seed as f64 / 3.0 }
}

fn node_row() -> NodeRow {
    let place = |cpu| CpuPlace {
        cpu,
        core: Some(cpu / 2 * 2),
        llc: Some(0),
        socket: Some(0),
        ..CpuPlace::default()
    };
    NodeRow {
        cpus: vec![("online", 4), ("possible", 8)],
        cpu_info: (0..4).map(place).collect(),
        idle_ns: None,
        steal_ns: Some(30_000_000),
        pressure_waiting_ns: Some(5_000_001_000),
        kernel: KernelInfo {
            release: "6.1.0-37-amd64".to_owned(),
            cgroup_version: "v2",
            cgroup_driver: "systemd",
            throttle_accounting: "cfs_rq",
            psi: "on",
            btf: true,
            weight_rule: WeightRule::Quadratic,
        },
        features: vec![
            FeatureState { feature: "pressure", enabled: true, reason: String::new() },
            FeatureState {
                feature: "throttled_local",
                enabled: false,
                reason: "no cpu.stat.local before Linux 6.6".to_owned(),
            },
        ],
    }
}
