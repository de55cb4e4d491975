//! Wakeups, preemption, and the CPU of each thread.

use super::super::scene::{Kind, LENGTH, Load, MS, Ns};
use super::{Scheduler, State, TICK, Thread};

/// Least turn of a thread before a tick preempts it.
const TURN: Ns = 3 * MS;
/// Lead in virtual runtime that a thread that wakes up needs to preempt another.
const LEAD: f64 = 1e6;
/// Virtual runtime that a sleeper is given.
const CREDIT: f64 = 3e6;

impl Scheduler<'_> {
    pub(super) fn wake_sleepers(&mut self) {
        for number in 0..self.threads.len() {
            let thread = &self.threads[number];
            // It has not left its CPU yet.
            let is_leaving = self.cpus[thread.cpu].current == Some(number);
            if thread.state == State::Sleeping && thread.wakes <= self.now && !is_leaving {
                self.wake(number);
            }
        }
    }

    fn wake(&mut self, number: usize) {
        let load = self.scene.threads[number].load;
        let cpu = self.place_thread(number, matches!(load, Load::Forking { .. }));
        let (left, every) = match load {
            Load::Spin => (2 * LENGTH, LENGTH),
            Load::Periodic { work, every } | Load::Forking { work, every } => {
                (work, self.jitter(every))
            }
        };
        let group = self.group(number);
        let credit = if matches!(load, Load::Forking { .. }) { 0.0 } else { CREDIT };
        self.enter(group, cpu, credit);
        let thread = &mut self.threads[number];
        (thread.cpu, thread.left, thread.wakes) = (cpu, left, self.now + every);
        self.queue(number);
        self.event(cpu, Kind::Wakeup { thread: number });
        self.preempt(group, cpu);
    }

    /// The CPU of a thread that wakes up: its last one, or an idle one. A new thread goes where the
    /// fewest are.
    fn place_thread(&self, number: usize, is_new: bool) -> usize {
        let allowed = self.scene.threads[number].cpus;
        let mut allowed = (0..self.cpus.len()).filter(|cpu| allowed >> cpu & 1 == 1);
        let last = self.threads[number].cpu;
        if is_new {
            return allowed.min_by_key(|cpu| self.load(*cpu)).unwrap_or(last);
        }
        if self.load(last) == 0 {
            return last;
        }
        allowed.find(|cpu| self.load(*cpu) == 0).unwrap_or(last)
    }

    /// Number of runnable threads of a CPU.
    fn load(&self, cpu: usize) -> usize {
        self.cpus[cpu].runnable.iter().sum()
    }

    pub(super) fn queue(&mut self, number: usize) {
        self.place += 1;
        self.threads[number].place = self.place;
        self.set(number, State::Queued);
    }

    /// Places a container on a CPU on which it has no thread yet.
    fn enter(&mut self, group: usize, cpu: usize, credit: f64) {
        if self.cpus[cpu].runnable[group] == 0 {
            let least = self.cpus[cpu].least - credit;
            let own = &mut self.cpus[cpu].virtual_ns[group];
            *own = own.max(least);
        }
    }

    fn preempt(&mut self, group: usize, cpu: usize) {
        let Some(current) = self.cpus[cpu].current else {
            self.cpus[cpu].resched = true;
            return;
        };
        let other = self.group(current);
        let (new, old) = (&self.scene.groups[group], &self.scene.groups[other]);
        if new.is_idle || group == other {
            return;
        }
        let virtual_ns = &self.cpus[cpu].virtual_ns;
        let lead = LEAD * 1024.0 / self.weight(group, cpu).max(1024.0);
        if old.is_idle || virtual_ns[group] + lead < virtual_ns[other] {
            self.cpus[cpu].resched = true;
        }
    }

    pub(super) fn move_waiters(&mut self) {
        for number in 0..self.threads.len() {
            let Some(every) = self.scene.threads[number].moved_every else { continue };
            if self.threads[number].moves > self.now {
                continue;
            }
            self.threads[number].moves = self.now + every;
            if self.threads[number].state == State::Queued {
                self.migrate(number, (self.threads[number].cpu + 1) % self.cpus.len());
            }
        }
    }

    fn migrate(&mut self, number: usize, cpu: usize) {
        let group = self.group(number);
        self.set(number, State::Sleeping);
        self.enter(group, cpu, 0.0);
        self.threads[number].cpu = cpu;
        self.queue(number);
        self.event(cpu, Kind::Migrate { thread: number });
        self.preempt(group, cpu);
    }

    /// Preempts a thread whose turn is over, and balances.
    pub(super) fn tick(&mut self, cpu: usize) {
        if self.now.is_multiple_of(5 * TICK) || self.cpus[cpu].current.is_none() {
            self.pull(cpu);
        }
        let state = &self.cpus[cpu];
        let Some(current) = state.current else { return };
        let group = self.group(current);
        let is_before = |(number, thread): (usize, &Thread)| {
            let other = self.group(number);
            thread.state == State::Queued
                && thread.cpu == cpu
                && !self.is_throttled(other, cpu)
                && state.virtual_ns[other] <= state.virtual_ns[group]
        };
        if state.ran >= TURN && self.threads.iter().enumerate().any(is_before) {
            self.cpus[cpu].resched = true;
        }
    }

    /// Pulls a thread from the CPU with the most.
    pub(super) fn pull(&mut self, cpu: usize) {
        let busiest = (0..self.cpus.len()).max_by_key(|cpu| self.load(*cpu)).unwrap_or(cpu);
        if self.load(busiest) < self.load(cpu) + 2 {
            return;
        }
        let waiting = (0..self.threads.len()).filter(|number| {
            let thread = &self.threads[*number];
            let group = self.group(*number);
            thread.state == State::Queued
                && thread.cpu == busiest
                && self.scene.threads[*number].cpus >> cpu & 1 == 1
                && !self.is_throttled(group, busiest)
                && !self.is_throttled(group, cpu)
        });
        if let Some(number) = waiting.min_by_key(|number| self.threads[*number].place) {
            self.migrate(number, cpu);
        }
    }
}
