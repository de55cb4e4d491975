//! Cost of the agent on a full node: pods of two containers on real cgroups, all with quotas as the
//! kubelet sets them, one sample per second, advice on. Needs root and writable cgroups.
//!
//! Each case is a number of pods (110, 250, 500), a load, and the trace on or off:
//! - `asleep`: nothing runs in the containers;
//! - `light`: each container's process runs for 50 µs twice per second;
//! - `busy`: the same ten times per second.
//!
//! Without arguments, all cases. With arguments, those that they select, for example
//! `cargo bench --bench node -- 500 asleep traced`.
//!
//! A case measures 60 seconds, from 75 seconds after the agent's start, when the threads of every
//! container have been scanned and the files of idle ones closed. It prints the CPU time of the
//! agent's own cgroup; for comparison, over 15 seconds each after the agent's exit, that of a thread
//! which only reads each container's usage once per second (`cpuacct.usage`; `cpu.stat` on v2)
//! through open descriptors, and of one that collects the counters of all cgroups by one call of the
//! eBPF program once per second; the agent's anonymous and file memory; the kernel memory charged to
//! its cgroup, and what is left of it after a reclaim: the kernel caches the name and the inode of
//! each file that was ever opened until it needs the memory; and its open descriptors.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cgroupfs::KeptFile;
use sched_trace::{GroupCounters, KernelTypes};
use support::{Cgroup, Qos, RealTree};

const SETTLE: Duration = Duration::from_secs(75);
const MEASURED: Duration = Duration::from_secs(60);
const BARE: Duration = Duration::from_secs(15);
const SECOND: Duration = Duration::from_secs(1);

/// Argument that makes this bench run as a container's process, followed by its runs per second.
const RUN: &str = "run";

const PODS: [usize; 3] = [110, 250, 500];

/// Loads, and how often each container's process runs per second.
const LOADS: [(&str, u32); 3] = [("asleep", 0), ("light", 2), ("busy", 10)];

const TRACES: [&str; 2] = ["untraced", "traced"];

struct Case {
    pods: usize,
    load: &'static str,
    runs_per_second: u32,
    trace: &'static str,
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [run, per_second] = &arguments[..]
        && run == RUN
    {
        run_lightly(per_second.parse().unwrap());
    }
    println!(
        "| pods | load | trace | mcores | bare preads | bare BPF call | anonymous MiB | file MiB | kernel MiB | after reclaim | descriptors |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    cases(&arguments).iter().for_each(measure);
}

/// The cases that the arguments select: of each property, those that are named, or all.
fn cases(arguments: &[String]) -> Vec<Case> {
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let selected = |name: &str, all: &[&str]| is_named(name) || !all.iter().any(|n| is_named(n));
    let pods = PODS.map(|pods| pods.to_string());
    let (pods, loads) = (pods.each_ref().map(String::as_str), LOADS.map(|(load, _)| load));
    let mut cases = Vec::new();
    for number in pods.iter().filter(|number| selected(number, &pods)) {
        for (load, runs_per_second) in LOADS.iter().filter(|(load, _)| selected(load, &loads)) {
            for trace in TRACES.iter().filter(|trace| selected(trace, &TRACES)) {
                let pods = number.parse().unwrap();
                cases.push(Case { pods, load, runs_per_second: *runs_per_second, trace });
            }
        }
    }
    cases
}

fn run_lightly(per_second: u32) -> ! {
    loop {
        std::thread::sleep(SECOND / per_second);
        testkit::load::use_cpu(Duration::from_micros(50));
    }
}

fn measure(case: &Case) {
    let tree = RealTree::new();
    let containers: Vec<Cgroup> = (0..case.pods).flat_map(|pod| containers(&tree, pod)).collect();
    let _processes: Vec<Process> =
        containers.iter().map(|container| Process::start(container, &case.program())).collect();
    let own = tree.kubepods().child("agent");
    let agent = Process::start(&own, &case.agent(&tree));
    std::thread::sleep(SETTLE);
    let (before, began) = (own.usage_ns(), Instant::now());
    std::thread::sleep(MEASURED);
    let used = mcores(own.usage_ns() - before, began.elapsed());
    let (anonymous, file) = (agent.status_mib("RssAnon:"), agent.status_mib("RssFile:"));
    let (kernel, descriptors) = (kernel_mib(&own), agent.descriptors());
    reclaim(&own);
    let reclaimed = kernel_mib(&own);
    drop(agent);
    let files: Vec<_> = containers.iter().map(usage_file).collect();
    let mut buffer = Vec::new();
    let preads = bare_mcores(|| {
        files.iter().for_each(|file| drop(black_box(file.read(&mut buffer).map(<[u8]>::len))));
    });
    let version = testkit::try_hierarchy().unwrap().version;
    let sys_root = Path::new("/sys");
    let types = KernelTypes::read(sys_root).unwrap();
    let mut counters = GroupCounters::load(sys_root, &types, version).unwrap();
    let inodes: Vec<u64> = containers.iter().map(Cgroup::inode).collect();
    let call = bare_mcores(|| {
        counters.collect().unwrap();
        inodes.iter().for_each(|inode| _ = black_box(counters.get(*inode)));
    });
    println!(
        "| {} | {} | {} | {used:.1} | {preads:.1} | {call:.1} | {anonymous:.1} | {file:.1} | {kernel:.1} | {reclaimed:.1} | {descriptors} |",
        case.pods, case.load, case.trace,
    );
}

fn mcores(cpu_ns: u64, elapsed: Duration) -> f64 {
    cpu_ns as f64 / elapsed.as_nanos() as f64 * 1000.0
}

impl Case {
    /// The program of a container.
    fn program(&self) -> Command {
        if self.runs_per_second == 0 {
            let mut sleep = Command::new("sleep");
            sleep.arg("infinity");
            return sleep;
        }
        let mut run = Command::new(std::env::current_exe().unwrap());
        run.args([RUN, &self.runs_per_second.to_string()]);
        run
    }

    fn agent(&self, tree: &RealTree) -> Command {
        let trace = if self.trace == "traced" { "on" } else { "off" };
        let mut command = Command::new(support::binary());
        command.args(["run", "--listen=127.0.0.1:0", "--pod-source=none"]);
        command.arg(format!("--sched-trace={trace}"));
        command.arg(format!("--kubepods={}", tree.kubepods().path().display()));
        command
    }
}

fn containers(tree: &RealTree, pod: usize) -> [Cgroup; 2] {
    let uid = format!("{pod:08x}-0000-4000-8000-000000000000");
    let pod_cgroup = tree.pod(Qos::Burstable, &uid);
    // The sum of its containers' quotas, as the kubelet sets it.
    pod_cgroup.set_quota_usec(40_000, 100_000);
    [0, 1].map(|container| {
        let cgroup = pod_cgroup.child(&format!("{:064x}", 2 * pod + container));
        cgroup.set_quota_usec(20_000, 100_000);
        cgroup
    })
}

/// A process in a cgroup, killed on drop.
struct Process(Child);

impl Process {
    fn start(cgroup: &Cgroup, what: &Command) -> Self {
        let mut command = cgroup.command(what.get_program());
        command
            .args(what.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// A size from `/proc/PID/status`.
    fn status_mib(&self, name: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kernel memory charged to a cgroup.
fn kernel_mib(cgroup: &Cgroup) -> f64 {
    let directory = cgroup.dir("memory");
    let v1 = fs::read_to_string(directory.join("memory.kmem.usage_in_bytes")).ok();
    let v2 = || {
        let stat = fs::read_to_string(directory.join("memory.stat")).unwrap();
        stat.lines().find_map(|line| line.strip_prefix("kernel ")).unwrap().to_owned()
    };
    v1.unwrap_or_else(v2).trim().parse::<f64>().unwrap() / f64::from(1 << 20)
}

/// Reclaims what the kernel can of a cgroup's memory.
fn reclaim(cgroup: &Cgroup) {
    let directory = cgroup.dir("memory");
    // Both fail once nothing is left to reclaim.
    if fs::write(directory.join("memory.reclaim"), "1G").is_err() {
        let _ = fs::write(directory.join("memory.limit_in_bytes"), "4096");
        let _ = fs::write(directory.join("memory.limit_in_bytes"), "-1");
    }
}

/// CPU time that it takes to read all counters once per second.
fn bare_mcores(mut read_all: impl FnMut()) -> f64 {
    read_all();
    let (before, began) = (thread_cpu_ns(), Instant::now());
    while began.elapsed() < BARE {
        std::thread::sleep(SECOND);
        read_all();
    }
    mcores(thread_cpu_ns() - before, began.elapsed())
}

fn usage_file(container: &Cgroup) -> KeptFile {
    let open = |controller, name| KeptFile::open(&container.dir(controller), name).unwrap();
    open("cpuacct", "cpuacct.usage").or_else(|| open("cpu", "cpu.stat")).unwrap()
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(Duration::try_from(time).unwrap().as_nanos()).unwrap()
}
