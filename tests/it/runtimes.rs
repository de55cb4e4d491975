//! Real runtimes under real quotas: the agent's findings match the runtimes' own output.
//!
//! Not among the `kernel` tests. A JVM and Node.js are 200 MB and 100 MB, which the QEMU node would
//! hold in memory as an initramfs. They take most of a minute to start on an emulated CPU. The
//! kernel version does not affect them.

use std::fs::File;
use std::io::Read as _;
use std::process::Command;

use serde_json::Value;

use crate::support::{Agent, Cgroup, Qos, RealTree, Running, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0009";

/// Container ID that ends with this number.
fn id(last: u32) -> String {
    format!("9a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29cc{last:08}")
}

/// Runtime found for the container whose ID ends with this number.
fn runtime(agent: &Agent, last: u32) -> Option<Value> {
    let (status, body) = agent.get("/api/v1/advice");
    assert_eq!(status, 200, "{body}");
    let report: Value = serde_json::from_str(&body).unwrap();
    let row = report["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["container"] == id(last))
        .cloned()?;
    row.get("runtime").cloned()
}

/// The runtime once its language is detected; before that, the container runs a shell.
fn known(agent: &Agent, last: u32, language: &str) -> Value {
    eventually(language, || {
        runtime(agent, last).is_some_and(|runtime| runtime["language"] == language)
    });
    runtime(agent, last).unwrap()
}

fn container(pod: &Cgroup, last: u32, quota_usec: u64) -> Cgroup {
    let container = pod.child(&id(last));
    container.set_quota_usec(quota_usec, 100_000);
    container
}

/// The word after a mark.
fn word<'a>(log: &'a str, mark: &str) -> &'a str {
    let rest = log.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {log}")).1;
    rest.split_whitespace().next().unwrap()
}

/// Starts a JVM that logs its settings and then waits for input.
fn jvm(container: &Cgroup, flags: &[&str], options: &str) -> (Running, String) {
    let mut command = container.command("java");
    command.args(flags).args([
        "-Xlog:gc+init",
        "-m",
        "java.base/sun.security.tools.keytool.Main",
        "-printcert",
    ]);
    Running::start(also(command, "JAVA_TOOL_OPTIONS", options), |line| {
        line.contains("Heap Max Capacity")
    })
}

fn also(mut command: Command, name: &str, value: &str) -> Command {
    if !value.is_empty() {
        command.env(name, value);
    }
    command
}

/// Asserts that version and threads match the JVM's log.
fn assert_as_logged(found: &Value, log: &str) {
    let version = found["version"].as_str().unwrap();
    assert!(word(log, "Version: ").starts_with(version) && version.contains('.'), "{found}\n{log}");
    let (_, cpus) = log.split_once("CPUs: ").unwrap();
    let available: u64 = word(cpus, "total, ").parse().unwrap();
    assert_eq!(found["parallelism"], available, "{found}\n{log}");
}

#[test]
fn a_jvm_is_detected_with_version_flags_and_processors() {
    let tree = RealTree::beside_others();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "1s"]);
    let containers: Vec<_> = (1..=4).map(|last| container(&pod, last, 100_000)).collect();
    let own_name = {
        let home = std::fs::canonicalize(on_path("java")).unwrap();
        let mut command = containers[3].command(home.with_file_name("keytool"));
        command.args(["-J-Xlog:gc+init", "-printcert"]);
        Running::start(command, |line| line.contains("Heap Max Capacity"))
    };
    let running = [
        jvm(&containers[0], &[], ""),
        jvm(
            &containers[1],
            &["-XX:ActiveProcessorCount=3", "-Xmx64m"],
            "-XX:ActiveProcessorCount=5 -Xmx99m",
        ),
        jvm(&containers[2], &[], "-XX:ActiveProcessorCount=4 -Xmx96m"),
        own_name,
    ];
    let found: Vec<_> = (1..=4).map(|last| known(&agent, last, "jvm")).collect();
    for (found, (_, log)) in found.iter().zip(&running) {
        assert_as_logged(found, log);
    }
    let sources = [0, 1, 2]
        .map(|at| (&found[at]["parallelism"], found[at]["parallelismSource"].as_str().unwrap()));
    assert_eq!(sources[0].1, "the limit, rounded up");
    assert_eq!(
        sources[1..],
        [(&3.into(), "ActiveProcessorCount"), (&4.into(), "ActiveProcessorCount")]
    );
    for (at, heap, logged) in [(1, "64m", "64M"), (2, "96m", "96M")] {
        assert_eq!(
            (found[at]["settings"]["Xmx"].as_str(), word(&running[at].1, "Max Capacity: ")),
            (Some(heap), logged)
        );
    }

    // A JVM follows changes of its limit at run time.
    assert_eq!(found[0]["parallelism"], 1);
    containers[0].set_quota_usec(50_000_000, 100_000);
    let cpus = std::thread::available_parallelism().unwrap().get();
    eventually("the new limit", || {
        runtime(&agent, 1).is_some_and(|runtime| runtime["parallelism"] == cpus)
    });
}

/// Program that prints its version and the size of its thread pool, measured by starting twenty
/// tasks.
const NODE_PROGRAM: &str = r"
const { readdirSync } = require('fs'), { pbkdf2 } = require('crypto');
const threads = () => readdirSync('/proc/self/task').length;
const before = threads();
let left = 20;
for (let task = 0; task < 20; task++) pbkdf2('a', 'b', 1000, 32, 'sha256', () => {
    if (--left == 0) console.log(`Version: ${process.versions.node} pool: ${threads() - before} end`);
});
process.stdin.resume();
";

#[test]
fn nodejs_is_detected_with_version_event_loop_and_pool() {
    let tree = RealTree::beside_others();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "1s"]);
    let mut command = container(&pod, 1, 100_000).command("node");
    command.args(["-e", NODE_PROGRAM]);
    let (_running, log) =
        Running::start(also(command, "UV_THREADPOOL_SIZE", "7"), |line| line.contains("pool: "));
    let found = known(&agent, 1, "nodejs");
    assert_eq!(found["version"], word(&log, "Version: "), "{found}");
    assert_eq!(
        (&found["parallelism"], &found["parallelismSource"]),
        (&1.into(), &"one event loop".into())
    );
    assert_eq!(
        (found["settings"]["UV_THREADPOOL_SIZE"].as_str(), word(&log, "pool: ")),
        (Some("7"), "7")
    );
}

#[test]
fn python_is_detected_with_version_and_library_threads() {
    let tree = RealTree::beside_others();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "1s"]);
    let mut command = container(&pod, 1, 100_000).command("python3");
    let program = "import sys; print('Version:', '%d.%d' % sys.version_info[:2], flush=True); sys.stdin.read()";
    command.args(["-c", program]);
    let (_running, log) =
        Running::start(also(command, "OMP_NUM_THREADS", "3"), |line| line.contains("Version: "));
    let found = known(&agent, 1, "python");
    assert_eq!(
        (&found["version"], &found["parallelism"]),
        (&word(&log, "Version: ").into(), &3.into()),
        "{found}"
    );
    assert_eq!(found["parallelismSource"], "OMP_NUM_THREADS");
}

/// Path of a program.
fn on_path(program: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.exists());
    found.unwrap_or_else(|| panic!("{program} is not installed"))
}

/// Program that moves its `environ` and `cmdline` to 1 GiB of zeros, which needs no privileges and
/// no memory, then waits.
const HUGE_PROGRAM: &str = r"
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
PR_SET_MM, PR_SET_MM_MAP = 35, 14
NORESERVE_ANONYMOUS_PRIVATE = 0x4022
length = 1 << 30
at = libc.mmap(None, ctypes.c_size_t(length), mmap.PROT_READ, NORESERVE_ANONYMOUS_PRIVATE, -1, 0)
stat = open('/proc/self/stat').read().rpartition(')')[2].split()
field = lambda number: int(stat[number - 3])
code, data, brk = [field(26), field(27)], [field(45), field(46)], [field(47), libc.sbrk(0)]
layout = code + data + brk + [field(28)] + [at, at + length] * 2
# struct prctl_mm_map: no auxiliary vector, the same executable.
layout = struct.pack('11QQIi', *layout, 0, 0, -1)
if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, layout, ctypes.c_ulong(len(layout)), 0):
    sys.exit(f'prctl: errno {ctypes.get_errno()}')
print('moved', flush=True)
sys.stdin.read()
";

#[test]
fn a_gigabyte_of_environment_costs_no_memory() {
    let tree = RealTree::beside_others();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "200ms"]);
    let mut command = container(&pod, 1, 100_000).command("python3");
    command.args(["-c", HUGE_PROGRAM]);
    let (running, _) = Running::start(command, |line| line == "moved");
    let environ = File::open(format!("/proc/{}/environ", running.pid())).unwrap();
    let length = std::io::copy(&mut environ.take(64 << 20), &mut std::io::sink()).unwrap();
    assert_eq!(length, 64 << 20, "the program has not moved its environment");
    known(&agent, 1, "python");
    // Over several ticks: knowing the executable does not stop the agent from reading its
    // environment.
    agent.after_ticks(10);
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    let peak_kib: u64 = peak.strip_suffix(" kB").unwrap().parse().unwrap();
    println!("the agent's peak is {peak}");
    assert!(peak_kib < 256 << 10, "the agent's peak is {peak}");
}
