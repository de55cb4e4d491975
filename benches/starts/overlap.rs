//! Starts of shared containers beside a full LSE pod: the CPUs that the first program of each may
//! use, and the agent's own measure of the overlap.
//!
//! Two cases with the same agent: the runtime asks it for the CPUs of each container, or does not.
//! A container runs until a pass has confined it, in a pod of its own. An answer without CPUs
//! counts as one: the container then starts like one that is not asked for.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use kernel_text::CpuSet;

use crate::node::{LOST, Node, cpus_of, effective, online, pod};
use crate::support::{Qos, eventually};

const OVERLAP: &str = "cpuwarden_exclusive_overlap_seconds_total";

/// Sums of one case.
#[derive(Default)]
struct Case {
    /// Starts for which the agent's answer had CPUs.
    answered: usize,
    /// Starts whose first program could use the CPUs of the LSE pod.
    on_own: usize,
    overlap_seconds: f64,
}

pub(crate) fn run(starts: usize) {
    let mut node = Node::start(&[], &[]);
    let online = online();
    println!("{starts} starts beside a busy LSE pod with CPUs {} of {online}", node.own);
    println!("| case | answered | first program on the pod's CPUs | overlap, s |");
    println!("|---|---|---|---|");
    let placed = node.case("placed at creation", true, 0..starts);
    let unplaced = node.case("not placed", false, starts..2 * starts);
    assert_eq!((placed.on_own, placed.overlap_seconds), (0, 0.0), "with placement at creation");
    assert!(unplaced.overlap_seconds > 0.0, "without placement there is nothing to prevent");
}

impl Node {
    fn case(&mut self, name: &str, asks: bool, numbers: std::ops::Range<usize>) -> Case {
        let (mut case, starts) = (Case::default(), numbers.len());
        let before = self.overlap_seconds();
        for number in numbers {
            let (is_answered, first) = self.run_one(number, asks);
            case.answered += usize::from(is_answered);
            case.on_own += usize::from(!first.is_disjoint(&self.own));
        }
        case.overlap_seconds = self.overlap_seconds() - before;
        let Case { answered, on_own, overlap_seconds } = &case;
        println!("| {name} | {answered} of {starts} | {on_own} | {overlap_seconds:.3} |");
        case
    }

    /// Runs a container until it is confined. Returns whether the agent's answer had CPUs, and the
    /// CPUs that its first program could use.
    fn run_one(&mut self, number: usize, asks: bool) -> (bool, CpuSet) {
        let (pod, id) = (pod(number), format!("{number:064x}"));
        let answer = asks.then(|| cpus_of(&self.ask(&pod, &id))).flatten();
        let cgroup = self.tree.pod(Qos::Burstable, &pod.uid);
        let container = cgroup.child(&id);
        if let Some(cpus) = &answer {
            container.write("cpuset", "cpuset.cpus", cpus);
        }
        let mut program = container.command("sh");
        program.args(["-c", "grep Cpus_allowed_list /proc/self/status; echo; exec sleep 600"]);
        let mut program = program.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // Up to the empty line: the first program has ended.
        let mut output = BufReader::new(program.stdout.take().unwrap());
        for _ in 0..2 {
            output.read_line(&mut line).unwrap();
        }
        let began = Instant::now();
        while [&cgroup, &container].iter().any(|one| !effective(one).is_disjoint(&self.own)) {
            assert!(began.elapsed() < LOST, "container {number} was not confined");
            std::thread::sleep(Duration::from_millis(1));
        }
        program.kill().unwrap();
        program.wait().unwrap();
        container.remove();
        cgroup.remove();
        if asks {
            self.forget(pod);
        }
        (answer.is_some(), line.split_whitespace().last().unwrap().parse().unwrap())
    }

    /// Overlap so far, after the passes that could still add to it.
    fn overlap_seconds(&self) -> f64 {
        let ticks = self.agent.metrics().ticks();
        eventually("ticks", || self.agent.metrics().ticks() >= ticks + 3);
        let page = self.agent.metrics();
        page.with_prefix(OVERLAP).map(|sample| sample.value).sum()
    }
}
