//! Cost of the agent on a full node: pods of two containers on real cgroups, all with quotas as the
//! kubelet sets them, one sample per second, advice on. Needs root and writable cgroups.
//!
//! Each case is a number of pods (110, 250, 500), a load, the trace on or off (`traced`,
//! `untraced`), and the source of the CPU counters (`files`, `bpf`):
//! - `asleep`: nothing runs in the containers;
//! - `light`: each container's process runs for 50 µs twice per second;
//! - `busy`: the same ten times per second.
//!
//! Without arguments, all 36 cases, in three quarters of an hour. With arguments, those that they
//! select, for example `cargo bench --bench node -- 500 asleep traced`.
//!
//! The agents of one node, up to four, run and are measured at the same time: what differs between
//! them is not the machine. A case measures 60 seconds, from 150 seconds after the agents' start,
//! when the first usage traces have been taken, the threads of every container scanned and the files
//! of idle ones closed. It prints
//! - the CPU time of the agent's own cgroup, in thousandths of a core. For comparison, on the same
//!   containers and over 15 seconds each before the agents, that of a thread which only reads each
//!   container's usage once per second (`cpuacct.usage`; `cpu.stat` on v2) through open descriptors,
//!   and of one that collects the counters of all cgroups by one call of the eBPF program once per
//!   second;
//! - the agent's anonymous and file memory, the kernel memory charged to its cgroup and what is left
//!   of it after a reclaim, and its open descriptors. The kernel charges the name and the inode of a
//!   file to the cgroup of the first process that opens it. On a node that is mostly the kubelet;
//!   this bench looks up all of them before the agents start;
//! - the series of its page, and the median and the longest time of 20 scrapes after these 60
//!   seconds: each on a new connection, with gzip, the agents one after another once per second, up
//!   to the last byte. No pod has a name, so that the labels, UIDs and container IDs, are longer than
//!   usual.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cgroupfs::KeptFile;
use metrics::exposition::decompress;
use sched_trace::{GroupCounters, KernelTypes};
use support::{Cgroup, Qos, RealTree};

const SETTLE: Duration = Duration::from_secs(150);
const MEASURED: Duration = Duration::from_secs(60);
const BARE: Duration = Duration::from_secs(15);
const SCRAPES: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

/// Argument that makes this bench run as a container's process, followed by its runs per second.
const RUN: &str = "run";

const PODS: [(&str, usize); 3] = [("110", 110), ("250", 250), ("500", 500)];

/// Loads, and how often each container's process runs per second.
const LOADS: [(&str, u32); 3] = [("asleep", 0), ("light", 2), ("busy", 10)];

/// Options of the agent.
const TRACES: [(&str, &str); 2] =
    [("untraced", "--sched-trace=off"), ("traced", "--sched-trace=on")];
const COUNTERS: [(&str, &str); 2] = [("files", "--bpf-counters=off"), ("bpf", "--bpf-counters=on")];

const HEAD: &str = "\
| pods | load | trace | counters | mcores | bare preads | bare BPF call | anonymous MiB | file MiB | kernel MiB \
| after reclaim | descriptors | series | page ms | longest page ms |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [run, per_second] = &arguments[..]
        && run == RUN
    {
        run_lightly(per_second.parse().unwrap());
    }
    println!("{HEAD}");
    let (traces, counters) = (selected(&arguments, &TRACES), selected(&arguments, &COUNTERS));
    for (_, pods) in selected(&arguments, &PODS) {
        for (load, runs_per_second) in selected(&arguments, &LOADS) {
            let node = Node::start(pods, runs_per_second);
            let bare = node.bare();
            node.look_at_all_names();
            let both = |trace| counters.iter().map(move |counters| (trace, *counters));
            let cases: Vec<_> = traces.iter().flat_map(|trace| both(*trace)).collect();
            let options: Vec<_> =
                cases.iter().map(|(trace, counters)| [trace.1, counters.1]).collect();
            for ((trace, counters), cost) in cases.iter().zip(node.measure(&options)) {
                let (trace, counters) = (trace.0, counters.0);
                println!("| {pods} | {load} | {trace} | {counters} | {} |", cost.row(bare));
            }
        }
    }
}

/// Values of a property: those that the arguments name, or all.
fn selected<'a, T: Copy>(arguments: &[String], all: &[(&'a str, T)]) -> Vec<(&'a str, T)> {
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let any = all.iter().any(|(name, _)| is_named(name));
    all.iter().filter(|(name, _)| is_named(name) || !any).copied().collect()
}

fn run_lightly(per_second: u32) -> ! {
    loop {
        std::thread::sleep(SECOND / per_second);
        testkit::load::use_cpu(Duration::from_micros(50));
    }
}

/// Pods with processes.
struct Node {
    // Dropped first.
    _processes: Vec<Process>,
    containers: Vec<Cgroup>,
    tree: RealTree,
}

/// CPU time of what reads only the counters, in thousandths of a core.
#[derive(Clone, Copy)]
struct Bare {
    preads: f64,
    bpf_call: f64,
}

/// A running agent in a cgroup of its own.
struct Agent {
    process: Process,
    own: Cgroup,
    address: SocketAddr,
}

/// What one agent costs.
struct Cost {
    mcores: f64,
    anonymous_mib: f64,
    file_mib: f64,
    kernel_mib: f64,
    reclaimed_mib: f64,
    descriptors: usize,
    page: Page,
}

/// Scrapes of one agent.
#[derive(Default)]
struct Page {
    last: Vec<u8>,
    times_ms: Vec<f64>,
}

impl Node {
    fn start(pods: usize, runs_per_second: u32) -> Self {
        let tree = RealTree::new();
        let containers: Vec<Cgroup> = (0..pods).flat_map(|pod| containers(&tree, pod)).collect();
        let program = program(runs_per_second);
        let start = |container| Process::start(container, &program);
        Self { _processes: containers.iter().map(start).collect(), containers, tree }
    }

    fn bare(&self) -> Bare {
        let files: Vec<_> = self.containers.iter().map(usage_file).collect();
        let mut buffer = Vec::new();
        let preads = bare_mcores(|| {
            files.iter().for_each(|file| drop(black_box(file.read(&mut buffer).map(<[u8]>::len))));
        });
        let version = testkit::try_hierarchy().unwrap().version;
        let sys_root = Path::new("/sys");
        let types = KernelTypes::read(sys_root).unwrap();
        let mut counters = GroupCounters::load(sys_root, &types, version).unwrap();
        let inodes: Vec<u64> = self.containers.iter().map(Cgroup::inode).collect();
        let bpf_call = bare_mcores(|| {
            counters.collect(None).unwrap();
            counters.collect_usage(None);
            inodes.iter().for_each(|inode| _ = black_box(counters.get(*inode)));
        });
        Bare { preads, bpf_call }
    }

    /// Looks up every file of the containers and pods in this process's cgroup.
    fn look_at_all_names(&self) {
        for directory in self.containers.iter().flat_map(Cgroup::dirs) {
            let files = |directory: &Path| fs::read_dir(directory).unwrap();
            for file in files(&directory).chain(files(directory.parent().unwrap())) {
                let _ = black_box(fs::metadata(file.unwrap().path()));
            }
        }
    }

    /// Runs an agent with each of these options, all at the same time.
    fn measure(&self, options: &[[&str; 2]]) -> Vec<Cost> {
        let agents: Vec<Agent> =
            (0..).zip(options).map(|(number, options)| self.start_agent(number, options)).collect();
        std::thread::sleep(SETTLE);
        let before: Vec<_> =
            agents.iter().map(|agent| (agent.own.usage_ns(), Instant::now())).collect();
        std::thread::sleep(MEASURED);
        let mut costs: Vec<Cost> =
            agents.iter().zip(before).map(|(agent, before)| agent.cost(before)).collect();
        for _ in 0..SCRAPES {
            std::thread::sleep(SECOND);
            let pages = agents.iter().zip(&mut costs).map(|(agent, cost)| (agent, &mut cost.page));
            pages.for_each(|(agent, page)| page.scrape(agent.address));
        }
        for (agent, cost) in agents.into_iter().zip(&mut costs) {
            reclaim(&agent.own);
            cost.reclaimed_mib = kernel_mib_of(&agent.own);
            drop(agent.process);
            agent.own.remove();
        }
        costs
    }

    fn start_agent(&self, number: usize, options: &[&str]) -> Agent {
        let own = self.tree.above().child(&format!("agent-{number}"));
        let address = support::http::free_address();
        let process = Process::start(&own, &self.agent(address, options));
        Agent { process, own, address }
    }

    fn agent(&self, address: SocketAddr, options: &[&str]) -> Command {
        let mut command = Command::new(support::binary());
        command.args(["run", "--pod-source=none"]).args(options);
        command.arg(format!("--listen={address}"));
        command.arg(format!("--kubepods={}", self.tree.kubepods().path().display()));
        command
    }
}

impl Agent {
    /// Cost since a moment, without scrapes.
    fn cost(&self, (usage_ns, began): (u64, Instant)) -> Cost {
        Cost {
            mcores: mcores(self.own.usage_ns() - usage_ns, began.elapsed()),
            anonymous_mib: self.process.status_mib("RssAnon:"),
            file_mib: self.process.status_mib("RssFile:"),
            kernel_mib: kernel_mib_of(&self.own),
            reclaimed_mib: f64::NAN,
            descriptors: self.process.descriptors(),
            page: Page::default(),
        }
    }
}

impl Cost {
    fn row(&self, Bare { preads, bpf_call }: Bare) -> String {
        let Self { mcores, anonymous_mib, file_mib, kernel_mib, .. } = self;
        let Self { reclaimed_mib, descriptors, page, .. } = self;
        let [median_ms, longest_ms] = page.median_and_longest_ms();
        format!(
            "{mcores:.1} | {preads:.1} | {bpf_call:.1} | {anonymous_mib:.1} | {file_mib:.1} | {kernel_mib:.1} \
             | {reclaimed_mib:.1} | {descriptors} | {} | {median_ms:.1} | {longest_ms:.1}",
            page.series()
        )
    }
}

impl Page {
    fn scrape(&mut self, address: SocketAddr) {
        let began = Instant::now();
        self.last = scrape(address);
        self.times_ms.push(began.elapsed().as_secs_f64() * 1000.0);
    }

    fn series(&self) -> usize {
        let page = String::from_utf8(decompress(&self.last).unwrap()).unwrap();
        page.lines().filter(|line| !line.starts_with('#')).count()
    }

    fn median_and_longest_ms(&self) -> [f64; 2] {
        let mut times = self.times_ms.clone();
        times.sort_by(f64::total_cmp);
        [times[times.len() / 2], times[times.len() - 1]]
    }
}

/// The page, compressed.
fn scrape(address: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server closes the connection after the page.
    stream.write_all(b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    answer.split_off(head + 4)
}

/// The program of a container.
fn program(runs_per_second: u32) -> Command {
    if runs_per_second == 0 {
        let mut sleep = Command::new("sleep");
        sleep.arg("infinity");
        return sleep;
    }
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args([RUN, &runs_per_second.to_string()]);
    run
}

fn mcores(cpu_ns: u64, elapsed: Duration) -> f64 {
    cpu_ns as f64 / elapsed.as_nanos() as f64 * 1000.0
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
fn kernel_mib_of(cgroup: &Cgroup) -> f64 {
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
