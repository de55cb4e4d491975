//! A scheduler like CFS with bandwidth control, in virtual time. It reports its events, and the
//! exact integral of who ran while the victim waited.
//!
//! Not modeled: levels of weights above the containers, topology, and the time of a switch.

mod balance;

use super::exact::Exact;
use super::scene::{Event, Kind, LENGTH, Load, MS, Ns, PERIOD, Scene};

const TICK: Ns = 4 * MS;
/// Quota that a CPU takes at a time.
const QUOTA_SLICE: Ns = 5 * MS;
/// Quota that a CPU keeps when nothing is left to run.
const KEPT: Ns = MS;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Sleeping,
    Queued,
    Running,
    Gone,
}

#[derive(Debug)]
struct Thread {
    state: State,
    cpu: usize,
    /// The next wakeup, or what is left to run.
    wakes: Ns,
    left: Ns,
    /// Order in its container.
    place: u64,
    moves: Ns,
}

#[derive(Debug)]
struct Cpu {
    current: Option<usize>,
    ran: Ns,
    resched: bool,
    /// Virtual runtimes by container, and the least of them.
    virtual_ns: Vec<f64>,
    least: f64,
    /// Quota that was taken, by cgroup.
    taken: Vec<Ns>,
    throttled: Vec<bool>,
    /// Number of runnable threads, by container.
    runnable: Vec<usize>,
}

pub(crate) struct Scheduler<'a> {
    scene: &'a Scene,
    now: Ns,
    threads: Vec<Thread>,
    victims: Vec<usize>,
    cpus: Vec<Cpu>,
    /// Quota left in this period, by cgroup.
    pools: Vec<Ns>,
    place: u64,
    random: u64,
    events: Vec<Event>,
    exact: Exact,
}

impl<'a> Scheduler<'a> {
    /// The events of a scene, and the exact integral.
    pub(crate) fn run(scene: &'a Scene) -> (Vec<Event>, Exact) {
        let groups = scene.groups.len();
        let cpu = || Cpu {
            current: None,
            ran: 0,
            resched: false,
            virtual_ns: vec![0.0; groups],
            least: 0.0,
            taken: vec![0; groups],
            throttled: vec![false; groups],
            runnable: vec![0; groups],
        };
        let mut scheduler = Self {
            scene,
            now: 0,
            threads: Vec::new(),
            victims: scene.threads_of(scene.victim),
            cpus: (0..scene.cpus).map(|_| cpu()).collect(),
            pools: scene.groups.iter().map(|group| group.quota.unwrap_or(0)).collect(),
            place: 0,
            random: 0x2545_f491_4f6c_dd1d,
            events: Vec::new(),
            exact: Exact::new(scene),
        };
        scheduler.begin();
        while scheduler.now < LENGTH {
            scheduler.step();
        }
        (scheduler.events, scheduler.exact)
    }

    fn begin(&mut self) {
        for (number, thread) in self.scene.threads.iter().enumerate() {
            let spread = match thread.load {
                Load::Spin => 0,
                Load::Periodic { every, .. } | Load::Forking { every, .. } => {
                    self.jitter(every) % every
                }
            };
            let allowed = (0..self.scene.cpus).filter(|cpu| thread.cpus >> cpu & 1 == 1);
            let allowed: Vec<usize> = allowed.collect();
            self.threads.push(Thread {
                state: State::Sleeping,
                cpu: allowed[number % allowed.len()],
                wakes: thread.begins + spread,
                left: 0,
                place: 0,
                moves: thread.moved_every.unwrap_or(LENGTH),
            });
        }
    }

    /// A deterministic value from 0.9 to 1.1 times this one.
    fn jitter(&mut self, value: Ns) -> Ns {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        value * 9 / 10 + self.random % (value / 5).max(1)
    }

    fn event(&mut self, cpu: usize, kind: Kind) {
        self.events.push(Event { at: self.now, cpu, kind });
    }

    fn step(&mut self) {
        let next = self.next_time();
        self.advance(next - self.now);
        self.now = next;
        if self.now.is_multiple_of(PERIOD) {
            self.refill();
        }
        self.finish_work();
        self.wake_sleepers();
        self.move_waiters();
        if self.now.is_multiple_of(TICK) {
            (0..self.cpus.len()).for_each(|cpu| self.tick(cpu));
        }
        for cpu in 0..self.cpus.len() {
            if self.is_exhausted(cpu) || self.cpus[cpu].resched {
                self.reschedule(cpu);
            }
        }
    }

    fn next_time(&self) -> Ns {
        let mut next = (self.now / TICK + 1) * TICK;
        next = next.min((self.now / PERIOD + 1) * PERIOD).min(LENGTH);
        for (number, thread) in self.threads.iter().enumerate() {
            let at = match thread.state {
                State::Sleeping => thread.wakes,
                State::Running => self.now + thread.left.min(self.quota_left(number)),
                State::Queued => thread.moves,
                State::Gone => continue,
            };
            next = next.min(at.max(self.now + 1));
        }
        next
    }

    fn group(&self, thread: usize) -> usize {
        self.scene.threads[thread].group
    }

    /// What a thread may run before a quota is used up on its CPU.
    fn quota_left(&self, thread: usize) -> Ns {
        let taken = &self.cpus[self.threads[thread].cpu].taken;
        let limited = self.limited(self.group(thread));
        limited.map(|group| taken[group]).min().unwrap_or(LENGTH)
    }

    fn limited(&self, group: usize) -> impl Iterator<Item = usize> + use<'a> {
        let scene = self.scene;
        scene.chain(group).filter(|group| scene.groups[*group].quota.is_some())
    }

    fn advance(&mut self, length: Ns) {
        self.account(length);
        for cpu in 0..self.cpus.len() {
            let Some(current) = self.cpus[cpu].current else { continue };
            let group = self.group(current);
            let weight = self.weight(group, cpu);
            for limited in self.limited(group) {
                self.cpus[cpu].taken[limited] -= length;
            }
            self.threads[current].left = self.threads[current].left.saturating_sub(length);
            self.cpus[cpu].ran += length;
            self.cpus[cpu].virtual_ns[group] += length as f64 * 1024.0 / weight;
        }
    }

    /// Adds to the exact integral.
    fn account(&mut self, length: Ns) {
        for cpu in 0..self.cpus.len() {
            let holder = self.cpus[cpu].current.map(|current| self.group(current));
            let waiting = self.victims.iter().filter(|thread| {
                let thread = &self.threads[**thread];
                thread.state == State::Queued && thread.cpu == cpu
            });
            let (mut all, mut throttled) = (0, 0);
            for thread in waiting {
                all += 1;
                throttled += Ns::from(self.is_throttled(self.group(*thread), cpu));
            }
            self.exact.add(self.scene, holder, [all, all - throttled], length);
        }
    }

    fn is_throttled(&self, group: usize, cpu: usize) -> bool {
        self.scene.chain(group).any(|group| self.cpus[cpu].throttled[group])
    }

    /// The part of a container's weight that this CPU has.
    fn weight(&self, group: usize, cpu: usize) -> f64 {
        let all: usize = self.cpus.iter().map(|cpu| cpu.runnable[group]).sum();
        let here = self.cpus[cpu].runnable[group];
        (self.scene.groups[group].weight * here as u64 / all.max(1) as u64).max(2) as f64
    }

    fn set(&mut self, number: usize, state: State) {
        let is_runnable = |state| matches!(state, State::Queued | State::Running);
        let group = self.group(number);
        let thread = &mut self.threads[number];
        let runnable = &mut self.cpus[thread.cpu].runnable[group];
        *runnable += usize::from(is_runnable(state));
        *runnable -= usize::from(is_runnable(thread.state));
        thread.state = state;
    }

    fn refill(&mut self) {
        for group in 0..self.scene.groups.len() {
            let Some(quota) = self.scene.groups[group].quota else { continue };
            self.pools[group] = quota;
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu].throttled[group] && self.take(group, cpu) {
                    self.cpus[cpu].throttled[group] = false;
                    self.cpus[cpu].resched = true;
                    self.event(cpu, Kind::Unthrottle { group });
                }
            }
        }
    }

    /// Takes quota for a CPU. Returns whether there is any.
    fn take(&mut self, group: usize, cpu: usize) -> bool {
        let part = QUOTA_SLICE.min(self.pools[group]);
        self.pools[group] -= part;
        self.cpus[cpu].taken[group] += part;
        self.cpus[cpu].taken[group] > 0
    }

    fn finish_work(&mut self) {
        for number in 0..self.threads.len() {
            let thread = &self.threads[number];
            let is_over = self.now >= self.scene.threads[number].ends;
            let is_done = thread.state == State::Running && thread.left == 0;
            let ends = is_over && matches!(thread.state, State::Running | State::Sleeping);
            if !is_done && !ends {
                continue;
            }
            let was_running = thread.state == State::Running;
            self.set(number, if is_over { State::Gone } else { State::Sleeping });
            if was_running {
                self.cpus[self.threads[number].cpu].resched = true;
            }
        }
    }

    fn is_exhausted(&self, cpu: usize) -> bool {
        self.cpus[cpu].current.is_some_and(|current| self.quota_left(current) == 0)
    }

    fn reschedule(&mut self, cpu: usize) {
        let prev = self.cpus[cpu].current;
        let stays = prev.is_some_and(|prev| self.threads[prev].state == State::Running);
        if let Some(prev) = prev {
            if stays {
                self.queue(prev);
            }
            self.give_back(self.group(prev), cpu);
        }
        let mut next = self.pick(cpu);
        if next.is_none() {
            self.pull(cpu);
            next = self.pick(cpu);
        }
        if let Some(next) = next {
            self.set(next, State::Running);
        }
        let state = &mut self.cpus[cpu];
        (state.current, state.ran, state.resched) = (next, 0, false);
        if next != prev || (prev.is_some() && !stays) {
            self.event(cpu, Kind::Switch { prev, next, stays });
        }
    }

    /// A CPU without threads of a container gives its quota back.
    fn give_back(&mut self, group: usize, cpu: usize) {
        if self.cpus[cpu].runnable[group] > 0 {
            return;
        }
        for limited in self.limited(group) {
            let taken = self.cpus[cpu].taken[limited];
            let back = taken.saturating_sub(KEPT);
            self.cpus[cpu].taken[limited] -= back;
            self.pools[limited] += back;
        }
    }

    /// The first thread of the container with the least virtual runtime. Throttles those whose quota
    /// is used up.
    fn pick(&mut self, cpu: usize) -> Option<usize> {
        loop {
            let queued = (0..self.threads.len()).filter(|number| {
                let thread = &self.threads[*number];
                thread.state == State::Queued
                    && thread.cpu == cpu
                    && !self.is_throttled(self.group(*number), cpu)
            });
            let virtual_ns = &self.cpus[cpu].virtual_ns;
            let next = queued.min_by(|a, b| {
                let (first, second) = (virtual_ns[self.group(*a)], virtual_ns[self.group(*b)]);
                let places = self.threads[*a].place.cmp(&self.threads[*b].place);
                first.total_cmp(&second).then(places)
            })?;
            let group = self.group(next);
            let empty = self
                .limited(group)
                .find(|limited| self.cpus[cpu].taken[*limited] == 0 && !self.take(*limited, cpu));
            let Some(empty) = empty else {
                let least = self.cpus[cpu].virtual_ns[group];
                self.cpus[cpu].least = self.cpus[cpu].least.max(least);
                return Some(next);
            };
            self.cpus[cpu].throttled[empty] = true;
            self.event(cpu, Kind::Throttle { group: empty });
        }
    }
}
