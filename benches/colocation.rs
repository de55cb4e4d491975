//! A latency service beside batch work, under each rule of `--best-effort`. Needs root, writable
//! cgroups and BTF; takes 7 minutes.
//!
//! The service (a Burstable pod that requests half a core) answers 100 requests per second at fixed
//! times, each with 3 ms of CPU time, by two threads; a request's latency counts from the time at
//! which it was due. Batch has one spinner per CPU that counts its work. Two scenes, with the
//! weights that the kubelet sets:
//!
//! - batch is BestEffort: its weight is the least, so that the service's own protects it;
//! - batch requests two cores, by a batch priority: it has four times the weight of the service.
//!
//! Cases of each scene: without the agent; with the utilization rule (trace off); with the wait
//! rule (trace on). Next to the service alone, one thread of a cgroup of the idle class per CPU
//! keeps the CPUs awake, as batch does otherwise: a CPU that sleeps answers later. All cases run in
//! turn, each three times, for 10 seconds.
//!
//! Printed: p50 and p99 of the service, its answers per second, and the work of batch. With
//! CPUWARDEN_CHART=FILE.svg also a chart.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "support/load.rs"]
mod load;
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use load::{Latencies, Service};
use serde_json::json;
use support::{Agent, Cgroup, Kubelet, Qos, RealTree, pod_list, running_pod};

const LOAD: Service = Service {
    threads: 2,
    every: Duration::from_millis(10),
    group: 1,
    work: Duration::from_millis(3),
};
/// The first requests warm the service up; the agent decides in this time, too.
const SETTLE: Duration = Duration::from_secs(10);
const SPAN: Duration = Duration::from_secs(10);
const ROUNDS: usize = 3;

/// Shares of a request of half a core.
const SERVICE_SHARES: u64 = 512;

const SERVICE: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0201";
const BATCH: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0202";
const SERVICE_ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650201";
const BATCH_ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650202";

/// Batch next to the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batch {
    /// Of the QoS class BestEffort.
    BestEffort,
    /// Burstable, with a request of two cores and a batch priority.
    Requests,
}

/// Rule that protects the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Off,
    Utilization,
    Waits,
}

/// Load and rule beside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Alone,
    Beside(Batch, Rule),
}

const CASES: [Case; 7] = [
    Case::Alone,
    Case::Beside(Batch::BestEffort, Rule::Off),
    Case::Beside(Batch::BestEffort, Rule::Utilization),
    Case::Beside(Batch::BestEffort, Rule::Waits),
    Case::Beside(Batch::Requests, Rule::Off),
    Case::Beside(Batch::Requests, Rule::Utilization),
    Case::Beside(Batch::Requests, Rule::Waits),
];

impl Case {
    const fn scene(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Beside(Batch::BestEffort, _) => "BestEffort",
            Self::Beside(Batch::Requests, _) => "requests 2 cores",
        }
    }

    const fn rule(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Beside(_, Rule::Off) => "off",
            Self::Beside(_, Rule::Utilization) => "utilization rule",
            Self::Beside(_, Rule::Waits) => "wait rule",
        }
    }

    fn name(self) -> String {
        match self {
            Self::Alone => "the service alone".to_owned(),
            Self::Beside(..) => format!("batch {}, {}", self.scene(), self.rule()),
        }
    }

    /// Option of the agent, if one runs.
    const fn trace(self) -> Option<&'static str> {
        match self {
            Self::Alone | Self::Beside(_, Rule::Off) => None,
            Self::Beside(_, Rule::Utilization) => Some("off"),
            Self::Beside(_, Rule::Waits) => Some("on"),
        }
    }

    const fn batch(self) -> Batch {
        match self {
            Self::Alone => Batch::BestEffort,
            Self::Beside(batch, _) => batch,
        }
    }
}

/// Figures of one case.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    latencies: Latencies,
    /// Work of batch, million rounds per second.
    work: f64,
    /// CPU time of batch, cores.
    cores: f64,
}

fn main() {
    load::run_role();
    let mut all = vec![Vec::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (case, figures) in CASES.iter().zip(&mut all) {
            let measured = measure(*case);
            println!("{:20} {:18} {measured:?}", case.scene(), case.rule());
            figures.push(measured);
        }
    }
    println!(
        "\n| batch | rule | p50 | p99 | p99 by run | answers per second | work of batch, rounds per second | CPUs of batch |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let means: Vec<Figures> = all.iter().map(|figures| mean(figures)).collect();
    for ((case, runs), figures) in CASES.iter().zip(&all).zip(&means) {
        let Figures { latencies: Latencies { p50_ms, p99_ms, answers_per_second }, work, cores } =
            figures;
        let by_run: Vec<_> =
            runs.iter().map(|run| format!("{:.1}", run.latencies.p99_ms)).collect();
        println!(
            "| {} | {} | {p50_ms:.1} ms | {p99_ms:.1} ms | {} | {answers_per_second:.0} | {work:.0} M | {cores:.2} |",
            case.scene(),
            case.rule(),
            by_run.join(", ")
        );
    }
    if let Some(path) = std::env::var_os("CPUWARDEN_CHART") {
        std::fs::write(path, chart(&means)).unwrap();
    }
}

fn mean(figures: &[Figures]) -> Figures {
    let of =
        |value: fn(&Figures) -> f64| figures.iter().map(value).sum::<f64>() / figures.len() as f64;
    Figures {
        latencies: Latencies {
            p50_ms: of(|figures| figures.latencies.p50_ms),
            p99_ms: of(|figures| figures.latencies.p99_ms),
            answers_per_second: of(|figures| figures.latencies.answers_per_second),
        },
        work: of(|figures| figures.work),
        cores: of(|figures| figures.cores),
    }
}

/// Sets the shares of a pod and its container.
fn set_shares(pod: &Cgroup, container: &Cgroup, shares: u64) {
    for cgroup in [pod, container] {
        cgroup.set_weight(shares);
    }
}

/// The service and batch with the shares that `pkg/kubelet/cm` computes, and the kubelet's list.
fn scene(tree: &RealTree, batch: Batch) -> (Cgroup, Cgroup, Kubelet) {
    let qos = if batch == Batch::Requests { Qos::Burstable } else { Qos::BestEffort };
    let pods = [tree.pod(Qos::Burstable, SERVICE), tree.pod(qos, BATCH)];
    let [service, spinning] = [pods[0].child(SERVICE_ID), pods[1].child(BATCH_ID)];
    let batch_shares = if batch == Batch::Requests { 2048 } else { 2 };
    set_shares(&pods[0], &service, SERVICE_SHARES);
    set_shares(&pods[1], &spinning, batch_shares);
    // The level has the shares of its pods' requests.
    let of_batch = if batch == Batch::Requests { batch_shares } else { 0 };
    tree.kubepods().existing_child("burstable").set_weight(SERVICE_SHARES + of_batch);
    tree.kubepods().existing_child("besteffort").set_weight(2);
    let requesting = |pod: &mut serde_json::Value, cpu: &str| {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    };
    let mut listed = [
        running_pod(SERVICE, "test", "service", SERVICE_ID),
        running_pod(BATCH, "test", "batch", BATCH_ID),
    ];
    requesting(&mut listed[0], "500m");
    match batch {
        Batch::BestEffort => listed[1]["status"]["qosClass"] = json!("BestEffort"),
        Batch::Requests => {
            requesting(&mut listed[1], "2");
            listed[1]["spec"]["priority"] = json!(5500);
        }
    }
    (service, spinning, Kubelet::start(pod_list(&listed)))
}

fn measure(case: Case) -> Figures {
    let tree = RealTree::new();
    let (service, batch, kubelet) = scene(&tree, case.batch());
    let state = tempfile::tempdir().unwrap();
    let [latencies, work] = ["latencies", "work"].map(|name| state.path().join(name));
    let beside = if case == Case::Alone { awake(&tree) } else { batch.clone() };
    let _spinners = load::start_spinners(&beside, &work);
    let _agent = case.trace().map(|trace| {
        let own = [
            format!("--state-dir={}", state.path().display()),
            "--best-effort=enforce".to_owned(),
            format!("--sched-trace={trace}"),
        ];
        let node = node_flags(&tree, state.path());
        let flags = [kubelet.flags(), node.to_vec(), own.to_vec()].concat();
        Agent::start_in(&tree.above().child("agent"), &flags)
    });
    let running = LOAD.start(&service, &latencies);
    let start = Instant::now();
    std::thread::sleep(SETTLE);
    let (from, used, done) = (start.elapsed(), batch.usage_ns(), load::rounds_done(&work));
    std::thread::sleep(SPAN);
    let to = start.elapsed();
    let seconds = (to - from).as_secs_f64();
    let figures = Figures {
        work: (load::rounds_done(&work) - done) / seconds,
        cores: (batch.usage_ns() - used) as f64 / 1e9 / seconds,
        // The last requests may not be answered yet.
        latencies: Latencies::read(&latencies, from, to - Duration::from_secs(1)),
    };
    drop(running);
    if case == Case::Alone { Figures { work: 0.0, cores: 0.0, ..figures } } else { figures }
}

/// A cgroup outside kubepods whose threads run only where nothing else wants to.
fn awake(tree: &RealTree) -> Cgroup {
    let cgroup = tree.above().child("awake");
    cgroup.write("cpu", "cpu.idle", "1");
    cgroup
}

/// Flags that make the tree the whole node: other load of the machine is not the system's use.
fn node_flags(tree: &RealTree, directory: &Path) -> [String; 2] {
    let is_v2 = tree.above().dir("cpu") == tree.above().dir("memory");
    let root = if is_v2 { tree.above().dir("cpu") } else { directory.join("cgroups") };
    if !is_v2 {
        std::fs::create_dir(&root).unwrap();
        for controller in ["cpu", "cpuacct", "cpuset", "memory"] {
            symlink(tree.above().dir(controller), root.join(controller)).unwrap();
        }
    }
    [format!("--cgroup-root={}", root.display()), "--kubepods=kubepods".to_owned()]
}

/// Bars of the p99 and of the work of batch.
fn chart(means: &[Figures]) -> String {
    let height = 40 + 34 * means.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 820 {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"820\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"280\" y=\"20\" font-weight=\"bold\">p99 of the service, ms</text>\n\
         <text x=\"570\" y=\"20\" font-weight=\"bold\">work of batch, million rounds per second</text>\n",
    );
    let most = |value: fn(&Figures) -> f64| means.iter().map(value).fold(f64::EPSILON, f64::max);
    let (most_ms, most_work) = (most(|one| one.latencies.p99_ms), most(|one| one.work));
    for (at, (case, figures)) in CASES.iter().zip(means).enumerate() {
        let y = 36 + 34 * at;
        let (ms, work) = (figures.latencies.p99_ms, figures.work);
        let (wide, other) = (220.0 * ms / most_ms, 180.0 * work / most_work);
        let text = y + 17;
        writeln!(
            svg,
            "<text x=\"270\" y=\"{text}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"280\" y=\"{y}\" width=\"{wide:.0}\" height=\"24\" fill=\"#c2410c\"/>\n\
             <text x=\"{:.0}\" y=\"{text}\">{ms:.1}</text>\n\
             <rect x=\"570\" y=\"{y}\" width=\"{other:.0}\" height=\"24\" fill=\"#1d4ed8\"/>\n\
             <text x=\"{:.0}\" y=\"{text}\">{work:.0}</text>",
            case.name(),
            286.0 + wide,
            576.0 + other,
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}
