//! Cost of the agent on a full node: 250 pods of two containers on real cgroups, all with quotas as
//! the kubelet sets them, one sample per second, advice on, trace off. Needs root and writable
//! cgroups.
//!
//! Cases of 60 seconds each. Each starts 75 seconds after the agent, when the threads of every
//! container have been scanned:
//! - `still`: nothing runs in the containers (target: 0.5 % of a core);
//! - `light`: each container's process runs for 50 µs twice per second.
//!
//! Printed: the CPU time of the agent's own cgroup; for comparison, over the 30 seconds after the
//! agent's exit, that of a thread which only reads each container's usage once per second
//! (`cpuacct.usage`; `cpu.stat` on v2) through open descriptors; the ratio of the two; the resident
//! memory; and the memory charged to the agent's cgroup, kernel memory included.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cgroupfs::KeptFile;
use support::{Cgroup, Qos, RealTree};

const PODS: usize = 250;
const SETTLE: Duration = Duration::from_secs(75);
const MEASURED: Duration = Duration::from_secs(60);
const BARE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// Argument that makes this bench run as a container's process.
const LIGHT: &str = "run-lightly";

fn main() {
    if std::env::args().any(|argument| argument == LIGHT) {
        run_lightly();
    }
    measure("still", || {
        let mut sleep = Command::new("sleep");
        sleep.arg("infinity");
        sleep
    });
    measure("light", || {
        let mut light = Command::new(std::env::current_exe().unwrap());
        light.arg(LIGHT);
        light
    });
}

fn run_lightly() -> ! {
    loop {
        std::thread::sleep(SECOND / 2);
        testkit::load::use_cpu(Duration::from_micros(50));
    }
}

fn measure(name: &str, program: impl Fn() -> Command) {
    let tree = RealTree::new();
    let containers: Vec<Cgroup> = (0..PODS).flat_map(|pod| containers(&tree, pod)).collect();
    let _processes: Vec<Process> =
        containers.iter().map(|container| Process::start(container, &program())).collect();
    let own = tree.kubepods().child("agent");
    let mut command = Command::new(support::binary());
    command.args(["run", "--listen=127.0.0.1:0", "--pod-source=none", "--sched-trace=off"]);
    command.arg(format!("--kubepods={}", tree.kubepods().path().display()));
    let agent = Process::start(&own, &command);
    std::thread::sleep(SETTLE);
    let (before, began) = (own.usage_ns(), Instant::now());
    std::thread::sleep(MEASURED);
    let agent_share = (own.usage_ns() - before) as f64 / began.elapsed().as_nanos() as f64;
    let (resident, charged) = (agent.resident_mib(), charged_mib(&own));
    drop(agent);
    let bare_share = bare_share(&containers);
    println!(
        "{name}: {:.2} % of a core, bare reads {:.2} %, agent / bare {:.2}; {resident:.1} MiB resident, {charged:.1} MiB charged",
        agent_share * 100.0,
        bare_share * 100.0,
        agent_share / bare_share,
    );
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

    fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn charged_mib(cgroup: &Cgroup) -> f64 {
    let directory = cgroup.dir("memory");
    let read = |file| fs::read_to_string(directory.join(file)).ok();
    let text = read("memory.usage_in_bytes").or_else(|| read("memory.current")).unwrap();
    text.trim().parse::<f64>().unwrap() / f64::from(1 << 20)
}

/// Share of a core that it takes to read each container's usage once per second.
fn bare_share(containers: &[Cgroup]) -> f64 {
    let files: Vec<_> = containers.iter().map(usage_file).collect();
    let mut buffer = Vec::new();
    let mut read_all =
        || files.iter().for_each(|file| drop(black_box(file.read(&mut buffer).map(<[u8]>::len))));
    read_all();
    let (before, began) = (thread_cpu_ns(), Instant::now());
    while began.elapsed() < BARE {
        std::thread::sleep(SECOND);
        read_all();
    }
    (thread_cpu_ns() - before) as f64 / began.elapsed().as_nanos() as f64
}

fn usage_file(container: &Cgroup) -> KeptFile {
    let open = |controller, name| KeptFile::open(&container.dir(controller), name).unwrap();
    open("cpuacct", "cpuacct.usage").or_else(|| open("cpu", "cpu.stat")).unwrap()
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(Duration::try_from(time).unwrap().as_nanos()).unwrap()
}
