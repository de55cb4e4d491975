//! A model of a node: threads that fork, exit, sleep, migrate and are throttled on a few CPUs. The
//! bounds from what the trace would report are compared with the exact time.

use proptest::prelude::*;

use super::*;

/// A second has this many moments.
const MOMENTS: u64 = 8;
const MOMENT: u64 = 1000 * MS / MOMENTS;
const PODS: [(&str, &str); 4] =
    [("a", "Burstable"), ("b", "Burstable"), ("c", "Guaranteed"), ("d", "BestEffort")];
const SCOPES: [PressureScope; 4] = [
    PressureScope::Node,
    PressureScope::Guaranteed,
    PressureScope::Burstable,
    PressureScope::BestEffort,
];
/// Seconds between two scans of the threads. A scan also shows the time that has no cause.
const SCAN: u64 = 10;
const MOST_THREADS: usize = 24;
/// The pod that may run on CPU 0 only.
const PINNED: usize = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    Fork { pod: usize, cpu: usize, threads: usize },
    Exit(usize),
    Toggle(usize),
    Migrate(usize, usize),
    Throttle(usize),
    Host(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4usize, 0..3usize, 1..6usize)
            .prop_map(|(pod, cpu, threads)| Step::Fork { pod, cpu, threads }),
        4 => (0..MOST_THREADS).prop_map(Step::Exit),
        4 => (0..MOST_THREADS).prop_map(Step::Toggle),
        3 => (0..MOST_THREADS, 0..3usize).prop_map(|(thread, cpu)| Step::Migrate(thread, cpu)),
        1 => (0..4usize).prop_map(Step::Throttle),
        2 => (0..3usize).prop_map(Step::Host),
    ]
}

#[derive(Debug)]
struct Thread {
    pod: usize,
    cpu: usize,
    ready: bool,
    /// Its wait so far, in moments: for others, for its own pod.
    waited: [u64; 2],
}

/// How the trace reports waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Report {
    /// Each second.
    AtOnce,
    /// When they end, and what was before a migration only with the next scan. Lost time is a quarter
    /// of a second late.
    Late,
}

struct Model {
    node: Node,
    report: Report,
    cpus: usize,
    threads: Vec<Thread>,
    throttled: [bool; 4],
    host: [bool; 3],
    moment: u64,
    /// Waits that only the next scan shows, by pod, in moments.
    hidden: [u64; 4],
    /// Lost time that is not reported yet: its moment, the victim, the holder.
    losses: VecDeque<(u64, usize, Option<usize>)>,
    /// Exact time of this second by scope, in moments.
    exact: [u64; 4],
    /// Sums of the exact times and of the lower bounds, in milliseconds.
    sums: [(u64, u64); 4],
}

impl Model {
    fn new(cpus: usize, report: Report) -> Self {
        let mut node = Node::new(cpus as u32, &PODS);
        node.pin(PODS[PINNED].0, "0", 1);
        for (victim, _) in PODS {
            PODS.iter().for_each(|(holder, _)| node.lose(victim, holder, 0));
            node.lose(victim, "", 0);
        }
        node.poll();
        Self {
            node,
            report,
            cpus,
            threads: Vec::new(),
            throttled: [false; 4],
            host: [false; 3],
            moment: 0,
            hidden: [0; 4],
            losses: VecDeque::new(),
            exact: [0; 4],
            sums: [(0, 0); 4],
        }
    }

    fn cpu_for(&self, pod: usize, cpu: usize) -> usize {
        if pod == PINNED { 0 } else { cpu % self.cpus }
    }

    fn apply(&mut self, step: Step) {
        let count = self.threads.len();
        match step {
            Step::Fork { pod, cpu, threads } if count < MOST_THREADS => {
                let cpu = self.cpu_for(pod, cpu);
                let new = |_| Thread { pod, cpu, ready: true, waited: [0; 2] };
                self.threads.extend((0..threads).map(new));
            }
            Step::Exit(at) if count > 0 => {
                // A thread that is killed runs once more, and so its wait ends.
                let thread = self.threads.swap_remove(at % count);
                self.end(thread.pod, thread.waited);
            }
            Step::Toggle(at) if count > 0 => {
                let thread = &mut self.threads[at % count];
                let (pod, waited) = (thread.pod, std::mem::take(&mut thread.waited));
                thread.ready ^= true;
                self.end(pod, waited);
            }
            Step::Migrate(at, cpu) if count > 0 => self.migrate(at % count, cpu),
            Step::Throttle(pod) => self.throttled[pod] ^= true,
            Step::Host(cpu) => self.host[cpu] ^= true,
            _ => {}
        }
    }

    /// Moves a thread. The kernel begins a new wait where it is queued then.
    fn migrate(&mut self, at: usize, cpu: usize) {
        let pod = self.threads[at].pod;
        let cpu = self.cpu_for(pod, cpu);
        let thread = &mut self.threads[at];
        if thread.cpu != cpu {
            thread.cpu = cpu;
            let [others, own] = std::mem::take(&mut thread.waited);
            self.hidden[pod] += others + if self.report == Report::Late { own } else { 0 };
        }
    }

    /// Counts a wait that ends.
    fn end(&mut self, pod: usize, [others, own]: [u64; 2]) {
        let own_late = if self.report == Report::Late { own } else { 0 };
        self.node.wait(PODS[pod].0, |counts| {
            counts.neighbor_ns += others * MOMENT;
            counts.self_ns += own_late * MOMENT;
            counts.latency.counts[9] += u64::from(others + own > MOMENTS);
        });
    }

    /// One moment, in which each CPU runs the thread that `pick` selects.
    fn pass(&mut self, pick: usize) {
        let mut waiting = [false; 4];
        for cpu in 0..self.cpus {
            self.pass_on(cpu, pick, &mut waiting);
        }
        for (scope, exact) in SCOPES.iter().zip(&mut self.exact) {
            let covers = |(_, class): (&str, &str)| scope.covers(class, class == "BestEffort");
            *exact += u64::from((0..PODS.len()).any(|pod| waiting[pod] && covers(PODS[pod])));
        }
        self.moment += 1;
        let late = if self.report == Report::Late { MOMENTS / 4 } else { 0 };
        let is_due =
            |&mut (moment, ..): &mut (u64, usize, Option<usize>)| moment + late < self.moment;
        while let Some((_, pod, holder)) = self.losses.pop_front_if(is_due) {
            self.node.lose(PODS[pod].0, holder.map_or("", |pod| PODS[pod].0), MOMENT / MS);
        }
    }

    fn pass_on(&mut self, cpu: usize, pick: usize, waiting: &mut [bool; 4]) {
        let throttled = self.throttled;
        let is_queued =
            |thread: &Thread| thread.cpu == cpu && thread.ready && !throttled[thread.pod];
        let queued: Vec<usize> =
            (0..self.threads.len()).filter(|&at| is_queued(&self.threads[at])).collect();
        let choices = queued.len() + usize::from(self.host[cpu]);
        if choices == 0 {
            return;
        }
        let running = queued.get(pick % choices).copied();
        let holder = running.map(|at| self.threads[at].pod);
        let mut lost = [false; 4];
        for &at in queued.iter().filter(|&&at| Some(at) != running) {
            let pod = self.threads[at].pod;
            let is_own = holder == Some(pod);
            waiting[pod] = true;
            lost[pod] |= !is_own;
            if is_own && self.report == Report::AtOnce {
                self.node.wait(PODS[pod].0, |counts| counts.self_ns += MOMENT);
            }
            self.threads[at].waited[usize::from(is_own)] += 1;
        }
        for pod in (0..PODS.len()).filter(|&pod| lost[pod]) {
            self.losses.push_back((self.moment, pod, holder));
        }
        if let Some(at) = running {
            let (pod, waited) =
                (self.threads[at].pod, std::mem::take(&mut self.threads[at].waited));
            self.end(pod, waited);
        }
    }

    /// Reports a second, and compares it. Returns its exact times, in milliseconds.
    fn poll(&mut self) -> Result<[u64; 4], TestCaseError> {
        if (self.moment / MOMENTS).is_multiple_of(SCAN) {
            self.scan();
        }
        let before = SCOPES.map(|scope| self.totals(scope));
        self.node.poll();
        let exact = std::mem::take(&mut self.exact).map(|moments| moments * MOMENT / MS);
        for (at, scope) in SCOPES.into_iter().enumerate() {
            let ((lower, upper), exact) = (self.totals(scope), exact[at]);
            let (lower, upper) = (lower - before[at].0, upper - before[at].1);
            let (exact_sum, lower_sum) = &mut self.sums[at];
            (*exact_sum, *lower_sum) = (*exact_sum + exact, *lower_sum + lower);
            prop_assert!(lower_sum <= exact_sum, "{scope:?}: lower {lower_sum}, exact {exact_sum}");
            let is_bound = lower <= exact && exact <= upper;
            let text = format!("{scope:?}: {lower} {exact} {upper}");
            prop_assert!(is_bound || self.report == Report::Late, "{}", text);
        }
        Ok(exact)
    }

    fn totals(&self, scope: PressureScope) -> (u64, u64) {
        let is_known = self.node.meter.totals.contains_key(&scope);
        if is_known { self.node.totals(scope) } else { (0, 0) }
    }

    fn scan(&mut self) {
        for (pod, hidden) in std::mem::take(&mut self.hidden).into_iter().enumerate() {
            self.node.wait(PODS[pod].0, |counts| counts.unattributed_ns += hidden * MOMENT);
            let count = self.threads.iter().filter(|thread| thread.pod == pod).count();
            self.node.snapshot.containers[pod].threads = Threads::Counted(count as u64);
        }
    }
}

/// Runs a script: the steps of each moment, and which thread then runs.
fn run(cpus: usize, report: Report, script: &[(Vec<Step>, usize)]) -> Result<(), TestCaseError> {
    let mut model = Model::new(cpus, report);
    let mut exact = [0; 4];
    let mut moment = |model: &mut Model, pick| {
        model.pass(pick);
        if model.moment.is_multiple_of(MOMENTS) {
            let second = model.poll()?;
            exact.iter_mut().zip(second).for_each(|(sum, second)| *sum += second);
        }
        Ok::<_, TestCaseError>(())
    };
    for (steps, pick) in script {
        steps.iter().for_each(|&step| model.apply(step));
        moment(&mut model, *pick)?;
    }
    // All waits end, and the next scan has read the threads.
    while !model.threads.is_empty() {
        model.apply(Step::Exit(0));
    }
    for _ in 0..(SCAN + 1) * MOMENTS {
        moment(&mut model, 0)?;
    }
    for (scope, exact) in SCOPES.into_iter().zip(exact) {
        let (lower, upper) = model.totals(scope);
        prop_assert!(lower <= exact && exact <= upper, "{scope:?}: {lower} {exact} {upper}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_exact_time_lies_between_the_bounds(
        cpus in 1..=3usize,
        report in prop_oneof![Just(Report::AtOnce), Just(Report::Late)],
        script in proptest::collection::vec(
            (proptest::collection::vec(step(), 0..3), 0..MOST_THREADS), 1..200),
    ) {
        run(cpus, report, &script)?;
    }
}
