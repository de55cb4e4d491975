//! The rules by which the eBPF program (`crates/sched-trace/bpf/sched_trace.bpf.c`) attributes waits,
//! copied function by function for the union of lost time. One difference: the spans of throttles
//! are those of the stream; the program derives them from counters of the kernel.

use std::collections::{HashMap, HashSet, VecDeque};

use super::scene::{Event, Kind, MS, Ns, SECOND};
use super::stream::Stream;

const SLICES: usize = 1024;
const SPANS: usize = 16;
const LATE: Ns = 10 * MS;
const SETTLE: Ns = 1 << 28;

/// The container that ran, or none.
type Holder = Option<usize>;

/// One holder's turn on a CPU.
#[derive(Debug, Clone, Copy)]
struct Slice {
    start: Ns,
    holder: Holder,
    covered: Ns,
    unthrottled: Ns,
}

/// Throttles of a container's run queue.
#[derive(Debug, Default)]
struct Throttles {
    /// The newest first.
    spans: VecDeque<(Ns, Ns)>,
    since: Ns,
    is_known: bool,
}

#[derive(Debug, Default)]
struct Cpu {
    /// The newest last.
    slices: VecDeque<Slice>,
    settled: Ns,
    walked: Ns,
    /// The first switch of the session.
    began: Option<Ns>,
    /// By pod, from when on the last walk counted.
    coverage: HashMap<usize, Ns>,
    /// By container.
    throttles: HashMap<usize, Throttles>,
    ever_throttled: HashSet<usize>,
}

/// A wait that is shared out from new to old.
#[derive(Debug)]
struct Share {
    group: usize,
    pod: usize,
    lo: Ns,
    hi: Ns,
    /// Number of older slices that are left.
    left: usize,
    floor: Ns,
    fresh: Ns,
}

/// Waits of a pod in one second, by cause.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    /// Lost time by the pod that ran; `None`: unattributed.
    pub(crate) lost: HashMap<Option<usize>, Ns>,
    pub(crate) own: Ns,
    pub(crate) wakeups: u64,
    pub(crate) late_wakeups: u64,
}

pub(crate) struct Attribution<'a> {
    pub(crate) stream: Stream<'a>,
    cpus: Vec<Cpu>,
    /// By pod, since it was last taken.
    waits: Vec<Waits>,
    /// Waits of the victim's threads, by what was found out about them.
    pub(crate) found: Found,
}

/// Thread time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    pub(crate) cause: Ns,
    pub(crate) throttled: Ns,
    pub(crate) unknown: Ns,
}

impl<'a> Attribution<'a> {
    pub(crate) fn new(stream: Stream<'a>) -> Self {
        let cpus = stream.cpus.iter().map(|_| Cpu::default()).collect();
        let waits = vec![Waits::default(); stream.scene.pods.len()];
        Self { stream, cpus, waits, found: Found::default() }
    }

    /// The program is attached again, and knows nothing of the past.
    pub(crate) fn begin_session(&mut self) {
        self.cpus.fill_with(Cpu::default);
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch { prev, next, .. } => self.switch(event.cpu, prev, next, event.at),
            Kind::Migrate { thread } => self.migrate(thread, event.at),
            Kind::Throttle { group } => self.throttle(event.cpu, group, event.at),
            Kind::Unthrottle { group } => self.unthrottle(event.cpu, group, event.at),
            _ => {}
        }
        self.stream.apply(event);
    }

    /// The waits of a second that ends: user space first settles the CPUs on which threads wait.
    pub(crate) fn take(&mut self, now: Ns) -> Vec<Waits> {
        for cpu in 0..self.cpus.len() {
            let is_measured = !self.cpus[cpu].slices.is_empty() && now > self.cpus[cpu].walked;
            if is_measured && self.stream.waiting(cpu).next().is_some() {
                self.settle(cpu, None, now);
            }
        }
        let none = vec![Waits::default(); self.waits.len()];
        std::mem::replace(&mut self.waits, none)
    }

    fn below(&self, quota: usize) -> Vec<usize> {
        let scene = self.stream.scene;
        (0..scene.groups.len()).filter(|group| scene.chain(*group).any(|of| of == quota)).collect()
    }

    /// The history of a run queue begins when a thread is seen to leave it throttled.
    fn throttle(&mut self, cpu: usize, quota: usize, now: Ns) {
        let current = self.stream.cpus[cpu].current.map(|thread| self.stream.group(thread));
        for group in self.below(quota) {
            self.cpus[cpu].ever_throttled.insert(group);
            let throttles = self.cpus[cpu].throttles.entry(group).or_default();
            if current == Some(group) && !throttles.is_known {
                (throttles.is_known, throttles.since) = (true, now);
            }
        }
    }

    fn unthrottle(&mut self, cpu: usize, quota: usize, now: Ns) {
        let Some(start) = self.stream.cpus[cpu].throttled[quota] else { return };
        for group in self.below(quota) {
            let throttles = self.cpus[cpu].throttles.entry(group).or_default();
            throttles.spans.push_front((start, now));
            throttles.spans.make_contiguous().sort_by_key(|(_, end)| std::cmp::Reverse(*end));
            throttles.spans.truncate(SPANS);
        }
    }

    fn switch(&mut self, cpu: usize, prev: Option<usize>, next: Option<usize>, now: Ns) {
        self.cpus[cpu].began.get_or_insert(now);
        let holder = next.map(|thread| self.stream.group(thread));
        let mut turn = Slice { start: now, holder, covered: 0, unthrottled: 0 };
        if let Some(next) = next.filter(|_| holder != Some(0)) {
            self.account_arrival(cpu, next, &mut turn);
        }
        let before = prev.map(|thread| self.stream.group(thread));
        self.push(cpu, before, turn);
        if now - self.cpus[cpu].walked > SETTLE {
            self.settle(cpu, next, now);
        }
    }

    /// `before`: the holder of the newest turn.
    fn push(&mut self, cpu: usize, before: Holder, turn: Slice) {
        let slices = &mut self.cpus[cpu].slices;
        match slices.back_mut().filter(|_| before == turn.holder) {
            Some(slice) => extend(slice, turn.start - slice.start, &turn),
            None => {
                if slices.len() == SLICES {
                    slices.pop_front();
                }
                slices.push_back(turn);
            }
        }
    }

    fn begin_share(&self, cpu: usize, group: usize, lo: Ns, hi: Ns) -> Share {
        let pod = self.stream.scene.pod_of(group);
        let state = &self.cpus[cpu];
        let floor = state.settled.max(state.began.unwrap_or(0));
        let left = state.slices.len();
        Share { group, pod, lo, hi, left, floor, fresh: hi }
    }

    /// The wait of the thread that comes in.
    fn account_arrival(&mut self, cpu: usize, next: usize, turn: &mut Slice) {
        let thread = self.stream.threads[next];
        let Some(queued) = thread.queued else { return };
        let pod = self.stream.pod(next);
        self.waits[pod].wakeups += u64::from(thread.woken);
        let wait = self.account_wait(cpu, next, queued, turn);
        self.waits[pod].late_wakeups += u64::from(thread.woken && wait >= LATE);
    }

    /// The wait on the old CPU of a thread that is moved.
    fn migrate(&mut self, number: usize, now: Ns) {
        let thread = self.stream.threads[number];
        let Some(queued) = thread.queued else { return };
        let (cpu, group) = (thread.cpu, self.stream.group(number));
        let Some(running) = self.cpus[cpu].slices.back().map(|slice| slice.holder) else { return };
        let throttled = &self.stream.cpus[cpu].throttled;
        if self.stream.scene.chain(group).any(|group| throttled[group].is_some()) {
            return;
        }
        let mut turn = Slice { start: now, holder: Some(group), covered: 0, unthrottled: 0 };
        self.account_wait(cpu, number, queued, &mut turn);
        if turn.covered > 0 {
            self.push(cpu, running, turn);
            let goes_on = Slice { start: now, holder: running, covered: 0, unthrottled: 0 };
            self.push(cpu, Some(group), goes_on);
        }
    }

    /// A wait that ends with a turn or with a move. Returns its length without throttling.
    fn account_wait(&mut self, cpu: usize, number: usize, queued: Ns, turn: &mut Slice) -> Ns {
        let (group, now, wait) = (self.stream.group(number), turn.start, turn.start - queued);
        if wait == 0 {
            return 0;
        }
        let from = queued.max(self.cpus[cpu].began.unwrap_or(0));
        let mut share = self.begin_share(cpu, group, from, now);
        let (mut throttled, mut newest) = (0, 0);
        if self.cpus[cpu].ever_throttled.contains(&group) {
            let throttles = self.cpus[cpu].throttles.entry(group).or_default();
            if !throttles.is_known {
                // Nothing is known of the past: the whole wait may have been a throttle.
                (throttles.is_known, throttles.since) = (true, now);
                throttles.spans.clear();
                share.lo = from.max(self.cpus[cpu].settled.min(now));
                self.find(&share, 0);
                return 0;
            }
            newest = throttles.spans.front().map_or(0, |(_, end)| *end);
            throttled = self.charge_whole(cpu, &mut share);
        } else {
            share.lo = from.max(self.cpus[cpu].settled.min(now));
            self.charge_slices(cpu, &mut share);
        }
        self.find(&share, throttled);
        turn.covered = wait;
        turn.unthrottled = if newest > queued { now - newest } else { wait };
        wait - throttled
    }

    /// Shares out to the slices; what is older than they stays, and is unattributed.
    fn charge_slices(&mut self, cpu: usize, share: &mut Share) {
        while share.left > 0 {
            let slice = self.cpus[cpu].slices[share.left - 1];
            if slice.start < share.hi {
                let from = slice.start.max(share.lo);
                self.charge(share, slice.holder, from);
                share.hi = from;
                if from == share.lo {
                    return;
                }
            }
            let pod = slice.holder.map(|group| self.stream.scene.pod_of(group));
            if pod == Some(share.pod) {
                let is_same = slice.holder == Some(share.group);
                let covered = if is_same { slice.covered } else { slice.unthrottled };
                share.fresh = share.fresh.min(slice.start.saturating_sub(covered));
            }
            share.left -= 1;
        }
        let unknown = lost_part(share, share.lo);
        *self.waits[share.pod].lost.entry(None).or_default() += unknown;
    }

    /// Counts the rest of a wait, for which no cause is known.
    fn find(&mut self, share: &Share, throttled: Ns) {
        if share.pod == self.stream.scene.victim {
            self.found.throttled += throttled;
            self.found.unknown += share.hi - share.lo;
        }
    }

    fn charge(&mut self, share: &Share, holder: Holder, from: Ns) {
        if share.pod == self.stream.scene.victim {
            self.found.cause += share.hi - from;
        }
        let Some(holder) = holder.map(|group| self.stream.scene.pod_of(group)) else { return };
        let waits = &mut self.waits[share.pod];
        if holder == share.pod {
            waits.own += share.hi - from;
        } else {
            *waits.lost.entry(Some(holder)).or_default() += lost_part(share, from);
        }
    }

    /// Cuts a wait at the throttles of its run queue. Returns what lies inside.
    fn charge_throttled(&mut self, cpu: usize, share: &mut Share) -> Ns {
        let spans = self.cpus[cpu].throttles[&share.group].spans.clone();
        let (lo, mut hi) = (share.lo, share.hi);
        let (mut throttled, mut unknown) = (0, 0);
        for (start, end) in &spans {
            if *end <= lo {
                break;
            }
            if *start >= hi {
                continue;
            }
            if *end < hi {
                (share.lo, share.hi) = (*end, hi);
                self.charge_slices(cpu, share);
                unknown += share.hi - share.lo;
                hi = *end;
            }
            let start = (*start).max(lo);
            throttled += hi - start;
            hi = start;
        }
        (share.lo, share.hi) = (lo, hi);
        // Before the oldest span that is kept there may have been another.
        if hi > lo && spans.get(SPANS - 1).is_none_or(|(_, end)| *end <= lo) {
            self.charge_slices(cpu, share);
        }
        share.hi += unknown;
        throttled
    }

    /// A run queue that was ever throttled is not counted by walks.
    fn charge_whole(&mut self, cpu: usize, share: &mut Share) -> Ns {
        let (queued, settled) = (share.lo, self.cpus[cpu].settled);
        if queued >= settled {
            return self.charge_throttled(cpu, share);
        }
        share.lo = settled;
        let mut throttled = self.charge_throttled(cpu, share);
        let unknown = share.hi - share.lo;
        // It had no history then, and was counted too.
        if self.cpus[cpu].throttles[&share.group].since > settled {
            return throttled;
        }
        let began = self.cpus[cpu].began.unwrap_or(0);
        (share.lo, share.hi, share.floor) = (queued, settled, began);
        let coverage = self.cpus[cpu].coverage.get(&share.pod);
        share.fresh = coverage.map_or(share.fresh, |from| share.fresh.min(*from));
        throttled += self.charge_throttled(cpu, share);
        share.hi += unknown;
        throttled
    }

    /// Counts the waits in progress.
    fn settle(&mut self, cpu: usize, next: Option<usize>, now: Ns) {
        self.cpus[cpu].walked = now;
        self.cpus[cpu].coverage.clear();
        let waiting: Vec<usize> = self.stream.waiting(cpu).collect();
        for thread in waiting {
            let group = self.stream.group(thread);
            let is_left = group == 0 || self.cpus[cpu].ever_throttled.contains(&group);
            let queued = self.stream.threads[thread].queued;
            let Some(queued) = queued.filter(|at| *at < now) else { continue };
            if is_left || Some(thread) == next {
                continue;
            }
            let lo = queued.max(self.cpus[cpu].settled).max(self.cpus[cpu].began.unwrap_or(0));
            let mut share = self.begin_share(cpu, group, lo, now);
            let from = self.cpus[cpu].coverage.entry(share.pod).or_insert(now);
            share.fresh = *from;
            *from = queued.min(*from);
            self.charge_slices(cpu, &mut share);
            self.find(&share, 0);
        }
        self.cpus[cpu].settled = now;
    }
}

/// The part of a wait, from this moment on, that is not yet counted.
fn lost_part(share: &Share, from: Ns) -> Ns {
    share.hi.min(share.fresh).saturating_sub(from.max(share.floor))
}

/// Another thread of the same container goes on with the turn.
fn extend(slice: &mut Slice, after: Ns, turn: &Slice) {
    slice.covered = slice.covered.max(turn.covered.saturating_sub(after));
    slice.unthrottled = slice.unthrottled.max(turn.unthrottled.saturating_sub(after));
}

/// Seconds.
pub(crate) fn seconds(ns: Ns) -> f64 {
    ns as f64 / SECOND as f64
}
