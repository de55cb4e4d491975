//! Five published methods, from their descriptions. All read the same stream, and the same rule
//! turns what each of them blames on others into an answer.

use super::answer::{Answer, Claim, Unit};
use super::attribution::seconds;
use super::scene::{Event, Kind, Ns, SECOND, Scene};
use super::stream::Stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// The pod that uses most CPU while the victim's run delay is high.
    CpuUse,
    /// The victim's PSI, divided by the CPU use of the others.
    PsiShare,
    /// Each wait is blamed on the thread that ran before it ended.
    LastRunner,
    /// The run delay, divided by how often each pod preempted the victim.
    Preemptions,
    /// Each turn is blamed at its end, as a whole, by the cgroups that wait there, less the time in which
    /// their own quota throttled them.
    SliceEnd,
}

impl Method {
    pub(crate) const ALL: [Self; 5] =
        [Self::CpuUse, Self::PsiShare, Self::LastRunner, Self::Preemptions, Self::SliceEnd];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CpuUse => "CPU use",
            Self::PsiShare => "PSI × CPU share",
            Self::LastRunner => "last runner",
            Self::Preemptions => "preemptions",
            Self::SliceEnd => "slice end",
        }
    }

    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::PsiShare | Self::SliceEnd => Unit::Union,
            Self::CpuUse | Self::LastRunner | Self::Preemptions => Unit::Threads,
        }
    }

    /// The delay of the victim in a second, and the part of each pod; the victim's own part is no
    /// other's.
    fn blame(self, second: &Observed, victim: usize) -> (f64, Vec<f64>) {
        let of_others = |of: &[Ns]| {
            let mut parts: Vec<f64> = of.iter().map(|ns| seconds(*ns)).collect();
            parts[victim] = 0.0;
            parts
        };
        match self {
            Self::CpuUse => divided(seconds(second.run_delay), of_others(&second.used)),
            Self::PsiShare => divided(second.psi, of_others(&second.used)),
            Self::Preemptions => {
                let counts = second.preempted_by.iter().map(|count| *count as f64).collect();
                divided(seconds(second.run_delay), counts)
            }
            Self::LastRunner => as_they_are(&second.last_runner),
            Self::SliceEnd => as_they_are(&second.slices),
        }
    }

    pub(crate) fn answer(self, scene: &Scene, observed: &[Observed]) -> Claim {
        let mut claimed = vec![0.0; scene.pods.len()];
        let (mut sums, mut slowed) = (claimed.clone(), 0);
        for second in observed {
            let (delay, parts) = self.blame(second, scene.victim);
            let is_slowed = is_slowed(delay, seconds(second.used[scene.victim]));
            slowed += usize::from(is_slowed);
            for (pod, part) in parts.iter().enumerate() {
                claimed[pod] += part;
                sums[pod] += if is_slowed { *part } else { 0.0 };
            }
        }
        let answer = if slowed >= LEAST_SLOWED { named(scene, &sums) } else { Answer::NoOther };
        Claim { answer, seconds: claimed }
    }
}

/// The floor of the verdict: 20 ms and a tenth, in three seconds of a minute.
const LEAST_SLOWED: usize = 3;

fn is_slowed(delay: f64, used: f64) -> bool {
    delay >= 0.02 && delay >= 0.1 * (used + delay)
}

fn divided(delay: f64, parts: Vec<f64>) -> (f64, Vec<f64>) {
    let total: f64 = parts.iter().sum();
    let share = if total > 0.0 { delay / total } else { 0.0 };
    (delay, parts.into_iter().map(|part| part * share).collect())
}

fn as_they_are(parts: &[Ns]) -> (f64, Vec<f64>) {
    let parts: Vec<f64> = parts.iter().map(|ns| seconds(*ns)).collect();
    (parts.iter().sum(), parts)
}

/// Share of the largest part that is one cause. Of 50, 55, 65, 70 and 80 %, these methods together are
/// right most often from 65 % on.
const ONE: f64 = 0.65;

/// The pod with most of all.
fn named(scene: &Scene, sums: &[f64]) -> Answer {
    let total: f64 = sums.iter().sum();
    let first = (0..sums.len()).max_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap_or(0);
    match sums[first] >= ONE * total {
        _ if total <= 0.0 => Answer::Unknown,
        true if first == scene.victim => Answer::NoOther,
        true => Answer::One(scene.pods[first].workload.to_owned()),
        false => Answer::Several,
    }
}

/// What the methods take from one second of the stream. By pod where it is a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    used: Vec<Ns>,
    /// Run delay of the victim's threads, throttling included.
    run_delay: Ns,
    /// `some` of the victim's cgroup, seconds.
    psi: f64,
    last_runner: Vec<Ns>,
    preempted_by: Vec<u64>,
    slices: Vec<Ns>,
}

/// Observes the whole stream, second by second.
pub(crate) fn observe(scene: &Scene, events: &[Event]) -> Vec<Observed> {
    let none = vec![0; scene.pods.len()];
    let second = Observed {
        used: none.clone(),
        last_runner: none.clone(),
        preempted_by: none.clone(),
        slices: none,
        ..Observed::default()
    };
    let mut observer = Observer {
        stream: Stream::new(scene),
        seconds: vec![second; (scene.length / SECOND) as usize],
        pressure: vec![vec![[0; 2]; (scene.length / SECOND) as usize]; scene.cpus],
        now: vec![0; scene.cpus],
        exempt: vec![0; scene.cpus],
    };
    events.iter().for_each(|event| observer.apply(event));
    observer.end()
}

struct Observer<'a> {
    stream: Stream<'a>,
    seconds: Vec<Observed>,
    /// By CPU and second: time in which some thread of the victim waited, and in which the victim was
    /// not idle there.
    pressure: Vec<Vec<[Ns; 2]>>,
    now: Vec<Ns>,
    /// By CPU, the part of the current turn in which the victim waited for its own quota.
    exempt: Vec<Ns>,
}

impl Observer<'_> {
    fn apply(&mut self, event: &Event) {
        self.pass(event.cpu, event.at);
        match event.kind {
            Kind::Switch { prev, next, stays } => self.switch(event, prev, next, stays),
            // The thread leaves the run queue on which it waited.
            Kind::Migrate { thread } => self.pass(self.stream.threads[thread].cpu, event.at),
            _ => {}
        }
        self.stream.apply(event);
    }

    fn end(mut self) -> Vec<Observed> {
        let end = self.stream.scene.length;
        (0..self.now.len()).for_each(|cpu| self.pass(cpu, end));
        for (number, second) in self.seconds.iter_mut().enumerate() {
            // The kernel weighs the CPUs by the time in which the group is not idle there.
            let of_cpus = || self.pressure.iter().map(|cpu| cpu[number]);
            let weight: f64 = of_cpus().map(|[_, busy]| seconds(busy)).sum();
            let some: f64 = of_cpus().map(|[some, busy]| seconds(some) * seconds(busy)).sum();
            second.psi = if weight > 0.0 { some / weight } else { 0.0 };
        }
        self.seconds
    }

    /// Adds CPU time and pressure up to now, second by second.
    fn pass(&mut self, cpu: usize, until: Ns) {
        let current = self.stream.cpus[cpu].current.map(|thread| self.stream.pod(thread));
        let waits = self.stream.victims(cpu).next().is_some();
        if waits && self.is_own(cpu) {
            self.exempt[cpu] += until - self.now[cpu].min(until);
        }
        while self.now[cpu] < until {
            let (at, number) = (self.now[cpu], (self.now[cpu] / SECOND) as usize);
            let end = until.min((number as Ns + 1) * SECOND);
            if let Some(pod) = current {
                self.seconds[number].used[pod] += end - at;
            }
            let is_busy = waits || current == Some(self.stream.scene.victim);
            let pressure = &mut self.pressure[cpu][number];
            pressure[0] += if waits { end - at } else { 0 };
            pressure[1] += if is_busy { end - at } else { 0 };
            self.now[cpu] = end;
        }
    }

    fn switch(&mut self, event: &Event, prev: Option<usize>, next: Option<usize>, stays: bool) {
        let number = ((event.at / SECOND) as usize).min(self.seconds.len() - 1);
        let victim = self.stream.scene.victim;
        let pod_of = |thread: Option<usize>| thread.map(|thread| self.stream.pod(thread));
        let (before, after) = (pod_of(prev), pod_of(next));
        let is_blamed = self.stream.victims(event.cpu).next().is_some();
        let exempt = std::mem::take(&mut self.exempt[event.cpu]);
        let second = &mut self.seconds[number];
        if let Some(next) = next.filter(|_| after == Some(victim)) {
            let thread = &self.stream.threads[next];
            // run_delay goes on at a migration; a tracer of wakeups sees the whole wait as well.
            let wait = event.at - thread.waits.unwrap_or(event.at);
            second.run_delay += wait;
            if let Some(before) = before {
                second.last_runner[before] += wait;
            }
        }
        if let Some(after) = after.filter(|_| before == Some(victim) && stays) {
            second.preempted_by[after] += 1;
        }
        if let Some(before) = before.filter(|before| is_blamed && *before != victim) {
            second.slices[before] += event.at - self.stream.cpus[event.cpu].since - exempt;
        }
    }

    /// Whether all threads of the victim that wait on a CPU wait for a quota of its own.
    fn is_own(&self, cpu: usize) -> bool {
        let throttled = &self.stream.cpus[cpu].throttled;
        self.stream.victims(cpu).all(|thread| {
            self.stream.scene.chain(self.stream.group(thread)).any(|group| {
                self.stream.scene.groups[group].pod.is_some() && throttled[group].is_some()
            })
        })
    }
}
