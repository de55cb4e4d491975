//! Cost of a context switch with a program on `sched_switch`. Needs root, and for the first group
//! `perf bench` (package linux-perf).
//!
//! Groups, each on one CPU and in a cgroup below the root, where tasks are accounted:
//! - `perf bench sched pipe`: two processes that pass a byte back and forth, two switches per
//!   operation;
//! - `a ring of 24 cgroups`: 24 processes, each in its own cgroup, pass a byte around and back to
//!   this process. CPU time and switches are the kernel's own counts, since a woken member
//!   sometimes preempts the one that woke it.
//!
//! Cases of each, in turn, round after round: no program; `empty.bpf.c`, the cost of the hook
//! alone; our program, loaded and polled as the agent does. Printed: the median nanoseconds per
//! switch of each, and the medians of the differences within each round.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sched_trace::{ContainerId, Options, Owner, Owners, PodId, SchedTrace};
use testkit::{OnStage, OwnedCgroup};

static EMPTY: &[u8] = aya::include_bytes_aligned!("../crates/sched-trace/bpf/empty.bpf.o");

/// Many short rounds: other load on the machine hits only a few of them, and the median ignores
/// those.
const ROUNDS: usize = 75;
const PIPE_OPERATIONS: u32 = 30_000;
const MEMBERS: u32 = 24;
const LAPS: u32 = 1_000;
/// Argument that makes this binary a member of a ring.
const MEMBER: &str = "--ring-member";

fn main() {
    if std::env::args().any(|arg| arg == MEMBER) {
        return pass_tokens();
    }
    // This process has the same weight as the members of the ring.
    let stage = OnStage::enter();
    pin_to_last_cpu();
    let perf = perf_bench(1);
    match perf {
        Ok(_) => {
            compare("perf bench sched pipe", || {
                perf_bench(PIPE_OPERATIONS).expect("it ran before")
            });
        }
        Err(why) => println!("perf bench sched pipe: {why}; install the package linux-perf"),
    }
    let mut ring = Ring::new(&stage);
    compare(&format!("a ring of {MEMBERS} cgroups"), || ring.run(LAPS));
}

/// The program attached to `sched_switch`, if any.
enum Attached {
    None,
    Empty { _ebpf: Ebpf },
    Ours(Box<SchedTrace>),
}

impl Attached {
    fn new(case: usize) -> Self {
        match case {
            0 => Self::None,
            1 => Self::Empty { _ebpf: attach_empty() },
            _ => {
                let options = Options { budget: 1.0, ..Options::default() };
                Self::Ours(Box::new(
                    SchedTrace::start(&options).unwrap_or_else(|error| panic!("{error:?}")),
                ))
            }
        }
    }

    /// Reads the tables, as the agent does.
    fn poll(&mut self) {
        if let Self::Ours(trace) = self {
            let losses = trace.poll(Instant::now(), &mut Strangers, &[]).losses;
            assert_eq!(losses.lost_waits, 0, "a table was full");
        }
    }
}

fn attach_empty() -> Ebpf {
    let mut ebpf = Ebpf::load(EMPTY).expect("the object loads");
    let program: &mut BtfTracePoint = ebpf
        .program_mut("sched_switch")
        .expect("it is there")
        .try_into()
        .expect("it is a tp_btf program");
    program
        .load("sched_switch", &Btf::from_sys_fs().expect("the kernel has BTF"))
        .expect("it verifies");
    program.attach().expect("it attaches");
    ebpf
}

/// Maps no cgroup to a container: the roll-up is not part of a context switch.
struct Strangers;

impl Owners for Strangers {
    fn owner(&mut self, _: u64) -> Owner {
        Owner::System
    }

    fn has_container(&self, _: ContainerId) -> bool {
        false
    }

    fn has_pod(&self, _: PodId) -> bool {
        false
    }
}

/// Runs the three cases in turn; `run` returns nanoseconds per switch.
fn compare(name: &str, mut run: impl FnMut() -> f64) {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut took = [0.0; 3];
        for turn in 0..3 {
            let case = (round + turn) % 3;
            let mut attached = Attached::new(case);
            took[case] = run();
            attached.poll();
            attached.poll();
        }
        rounds.push(took);
    }
    let median_of = |value: fn(&[f64; 3]) -> f64| median(rounds.iter().map(value).collect());
    println!("{name}: nanoseconds a switch, medians of {ROUNDS} rounds");
    println!("  none  {:7.0}", median_of(|round| round[0]));
    println!(
        "  empty {:7.0}  {:+5.0} over none",
        median_of(|round| round[1]),
        median_of(|round| round[1] - round[0])
    );
    println!(
        "  ours  {:7.0}  {:+5.0} over none, {:+5.0} over empty",
        median_of(|round| round[2]),
        median_of(|round| round[2] - round[0]),
        median_of(|round| round[2] - round[1])
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds per switch; one operation is two switches.
fn perf_bench(operations: u32) -> Result<f64, String> {
    let mut perf = Command::new("perf");
    perf.args(["bench", "-f", "simple", "sched", "pipe", "-l", &operations.to_string()]);
    let output = perf.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds: f64 = text.trim().parse().map_err(|_| format!("it says {text:?}"))?;
    Ok(seconds * 1e9 / f64::from(operations) / 2.0)
}

/// Processes that each pass a byte to the next, and the last one back to this process.
struct Ring {
    members: Vec<Child>,
    first: PipeWriter,
    last: PipeReader,
    _cgroups: Vec<OwnedCgroup>,
}

impl Ring {
    fn new(stage: &OnStage) -> Self {
        let (mut reader, first) = std::io::pipe().expect("a pipe can be created");
        let (mut members, mut cgroups) = (Vec::new(), Vec::new());
        for number in 0..MEMBERS {
            let (next, writer) = std::io::pipe().expect("a pipe can be created");
            let mut member = Command::new(std::env::current_exe().expect("this binary has a path"));
            let member =
                member.arg(MEMBER).stdin(Stdio::from(reader)).stdout(Stdio::from(writer)).spawn();
            let member = member.expect("a process can be created");
            let cgroup =
                OwnedCgroup::create(stage.cgroup().path().join(format!("member-{number}")));
            cgroup.add_process(member.id());
            cgroups.push(cgroup);
            members.push(member);
            reader = next;
        }
        Self { members, first, last: reader, _cgroups: cgroups }
    }

    /// Nanoseconds per switch.
    fn run(&mut self, laps: u32) -> f64 {
        let before = self.used();
        for _ in 0..laps {
            self.first.write_all(&[0]).expect("the ring is there");
            self.last.read_exact(&mut [0]).expect("the ring is there");
        }
        let after = self.used();
        (after.nanoseconds - before.nanoseconds) as f64 / (after.switches - before.switches) as f64
    }

    fn used(&self) -> Used {
        let all = self.members.iter().map(Child::id).chain([std::process::id()]);
        all.map(Used::of).fold(Used::default(), |sum, one| Used {
            nanoseconds: sum.nanoseconds + one.nanoseconds,
            switches: sum.switches + one.switches,
        })
    }
}

/// CPU time of processes and number of switches to them, from `/proc/PID/schedstat`.
#[derive(Default)]
struct Used {
    nanoseconds: u64,
    switches: u64,
}

impl Used {
    fn of(pid: u32) -> Self {
        let path = format!("/proc/{pid}/schedstat");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let numbers: Vec<u64> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Self { nanoseconds: numbers[0], switches: numbers[2] }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Body of a ring's member: passes bytes on until its standard input ends.
fn pass_tokens() {
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    let mut token = [0];
    while input.read_exact(&mut token).is_ok()
        && output.write_all(&token).and_then(|()| output.flush()).is_ok()
    {}
}

fn pin_to_last_cpu() {
    let allowed = sched_getaffinity(None).expect("one's own affinity can be read");
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).expect("there is a CPU");
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).expect("one's own affinity can be set");
}
