//! A model of a container whose threads fork, exit, sleep, wait for a rival and are throttled on
//! two CPUs. The bounds are compared with the exact time.

use proptest::prelude::*;

use super::*;

/// Nanoseconds of a moment: longer than what an unseen thread may use unnoticed.
const MOMENT: u64 = 50_000_000;
const CPUS: usize = 2;
const MOST_THREADS: usize = 8;
/// Time since boot when the model begins, in moments.
const BOOT: u64 = 2000;

#[derive(Debug, Clone, Copy)]
enum Step {
    Fork(usize),
    /// Of a thread that sleeps or has just run.
    Exit(usize),
    Wake(usize),
    /// Of a thread that has just run.
    Sleep(usize),
    Throttle(usize),
    Rival(usize),
    Scan,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..CPUS).prop_map(Step::Fork),
        2 => (0..MOST_THREADS).prop_map(Step::Exit),
        4 => (0..MOST_THREADS).prop_map(Step::Wake),
        3 => (0..MOST_THREADS).prop_map(Step::Sleep),
        1 => (0..CPUS).prop_map(Step::Throttle),
        2 => (0..CPUS).prop_map(Step::Rival),
        3 => Just(Step::Scan),
    ]
}

/// Times in moments.
#[derive(Debug, Clone)]
struct Thread {
    tid: u32,
    cpu: usize,
    started: u64,
    ready: bool,
    has_just_run: bool,
    run: u64,
    /// Waits that ended, and the one in progress.
    delay: u64,
    waits: u64,
    /// What it waited for others since the last scan.
    contended: u64,
}

#[derive(Debug, Default)]
struct Model {
    delays: Delays,
    threads: Vec<Thread>,
    next_tid: u32,
    now: u64,
    usage: u64,
    throttled: [bool; CPUS],
    /// Length of the throttle in progress, by CPU, and of those that ended.
    throttle: [u64; CPUS],
    throttled_total: u64,
    rival: [bool; CPUS],
    /// Exact time of the interval before the last scan, over the threads that this scan saw.
    exact: u64,
    /// Sums of the intervals that were evaluated: exact, and upper bound, nanoseconds.
    sums: (u64, u64),
    any_throttle: bool,
}

impl Model {
    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Fork(cpu) if self.threads.len() < MOST_THREADS => self.fork(cpu),
            Step::Exit(at) => {
                let may = |thread: &Thread| thread.has_just_run || !thread.ready;
                if self.threads.get(at).is_some_and(may) {
                    self.threads.swap_remove(at);
                }
            }
            Step::Wake(at) => {
                if let Some(thread) = self.threads.get_mut(at) {
                    thread.ready = true;
                }
            }
            Step::Sleep(at) => {
                if let Some(thread) = self.threads.get_mut(at).filter(|it| it.has_just_run) {
                    thread.ready = false;
                }
            }
            Step::Throttle(cpu) => {
                self.throttled[cpu] ^= true;
                self.throttled_total += std::mem::take(&mut self.throttle[cpu]);
            }
            Step::Rival(cpu) => self.rival[cpu] ^= true,
            Step::Scan => self.scan()?,
            Step::Fork(_) => {}
        }
        Ok(())
    }

    fn fork(&mut self, cpu: usize) {
        self.next_tid += 1;
        self.threads.push(Thread {
            tid: self.next_tid,
            cpu,
            started: self.now,
            ready: true,
            has_just_run: false,
            run: 0,
            delay: 0,
            waits: 0,
            contended: 0,
        });
    }

    /// One moment, in which each CPU runs what `pick` selects.
    fn pass(&mut self, pick: usize) {
        self.threads.iter_mut().for_each(|thread| thread.has_just_run = false);
        for cpu in 0..CPUS {
            let (throttled, rival) = (self.throttled[cpu], self.rival[cpu]);
            let queued = self.threads.iter_mut().filter(|it| it.ready && it.cpu == cpu);
            let mut queued: Vec<&mut Thread> = queued.collect();
            if queued.is_empty() {
                continue;
            }
            let running = (!throttled).then_some(pick % (queued.len() + usize::from(rival)));
            self.any_throttle |= throttled;
            self.throttle[cpu] += u64::from(throttled);
            for (at, thread) in queued.iter_mut().enumerate() {
                if running == Some(at) {
                    (thread.has_just_run, thread.run) = (true, thread.run + 1);
                    thread.delay += std::mem::take(&mut thread.waits);
                    self.usage += 1;
                } else {
                    thread.waits += 1;
                    thread.contended += u64::from(!throttled);
                }
            }
        }
        self.now += 1;
    }

    fn scan(&mut self) -> Result<(), TestCaseError> {
        let time = Duration::from_nanos((BOOT + self.now) * MOMENT);
        let throttled_ns = self.throttled_total * MOMENT;
        let throttled = ThrottledTime { least_ns: throttled_ns, most_ns: throttled_ns };
        let times = ContainerTimes { throttled, usage_ns: Some(self.usage * MOMENT) };
        let mut scan =
            self.delays.begin_scan(ScanTime { tick: time, began: time, ended: time }, times);
        for thread in &self.threads {
            scan.thread(ThreadDelay {
                tid: thread.tid,
                delay_ns: thread.delay * MOMENT,
                run_ns: thread.run * MOMENT,
                runnable: thread.ready,
                started: Some(Duration::from_nanos((BOOT + thread.started) * MOMENT)),
            });
        }
        let found = scan.end();
        let exact = std::mem::take(&mut self.exact);
        // Before the first scan is no interval.
        for thread in &mut self.threads {
            self.exact += std::mem::take(&mut thread.contended) * MOMENT;
        }
        let Some(Contention { lower_ns, upper_ns, .. }) = found else {
            self.exact = 0;
            return Ok(());
        };
        prop_assert!(lower_ns <= exact, "lower {lower_ns}, exact {exact}");
        self.sums = (self.sums.0 + exact, self.sums.1 + upper_ns);
        prop_assert!(self.sums.0 <= self.sums.1, "exact and upper: {:?}", self.sums);
        let is_bound = exact <= upper_ns || self.any_throttle;
        prop_assert!(is_bound, "exact {exact}, upper {upper_ns}");
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_exact_time_lies_between_the_bounds(
        script in proptest::collection::vec(
            (proptest::collection::vec(step(), 0..3), 0..MOST_THREADS), 1..150),
    ) {
        let mut model = Model::default();
        model.fork(0);
        model.scan()?;
        for (steps, pick) in script {
            steps.into_iter().try_for_each(|step| model.apply(step))?;
            model.pass(pick);
        }
        model.scan()?;
        model.scan()?;
    }
}
