//! Garbage collection of the containers, read every ten seconds: counters that add up over restarts
//! of a program, and the latest interval.
//!
//! Needs its own thread, so that the sampler's ticks and the advice never wait for it: the first
//! reading of an executable analyzes it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use runtimes::{GcReader, GcReading};
use snapshot::{
    ContainerGc, ContainerRow, FeatureState, GcInterval, GcUnread, NodeGc, NodeSnapshot, Published,
};

use crate::ROUND;

/// Name of the feature.
const FEATURE: &str = "garbage_collection";
/// More cycles per second are implausible: each stops the program twice.
const MAX_CYCLES_PER_SECOND: f64 = 10_000.0;

/// Reads the garbage collection of all containers every ten seconds, until the other end of
/// `stopped` is dropped. Calls `round` after each round. May be called again after a panic.
pub fn read_collections(
    reader: &mut GcReader,
    published: &Published<NodeSnapshot>,
    slot: &Published<NodeGc>,
    stopped: &Receiver<()>,
    mut round: impl FnMut(),
) {
    let mut node = GcCollector::default();
    loop {
        let began = Instant::now();
        let snapshot = published.latest();
        // Before its first tick the sampler knows no container.
        let is_empty = snapshot.sequence == 0;
        if !is_empty {
            node.read(&snapshot, reader, began);
            slot.publish(node.published());
        }
        round();
        let pause = if is_empty { Duration::from_secs(1) } else { ROUND };
        let left = pause.saturating_sub(began.elapsed());
        if !matches!(stopped.recv_timeout(left), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

/// Garbage collection of all containers of a node, over the rounds of readings.
#[derive(Debug, Default)]
pub struct GcCollector {
    /// By the labels of the container's series.
    programs: HashMap<Box<str>, ProgramCollections>,
    unread: HashMap<GcUnread, u64>,
    dropped: u64,
    rounds: u64,
}

impl GcCollector {
    /// Reads the live containers of a snapshot. `at` is the time of the round.
    pub fn read(&mut self, snapshot: &NodeSnapshot, reader: &mut GcReader, at: Instant) {
        self.rounds += 1;
        self.unread.clear();
        let rows = &snapshot.containers;
        let present: HashSet<&str> = rows.iter().map(|row| &*row.identity.labels).collect();
        self.programs.retain(|labels, _| present.contains(&**labels));
        for row in rows.iter().filter(|row| row.live) {
            let Some(pid) = row.first_pid else { continue };
            match reader.read(pid) {
                Ok(None) => {}
                Ok(Some(reading)) => self.add(row, reading, at),
                Err(reason) => self.count(reason),
            }
        }
    }

    fn add(&mut self, row: &ContainerRow, reading: GcReading, at: Instant) {
        let labels = &row.identity.labels;
        let known = self.programs.get_mut(labels);
        let is_plausible = match known {
            Some(program) => program.add(reading, at, self.rounds),
            None => {
                self.programs.insert(labels.clone(), ProgramCollections::new(reading, at));
                true
            }
        };
        if !is_plausible {
            self.count(GcUnread::Implausible);
        }
    }

    fn count(&mut self, reason: GcUnread) {
        self.dropped += u64::from(reason == GcUnread::Implausible);
        *self.unread.entry(reason).or_default() += 1;
    }

    /// The state after the latest round.
    #[must_use]
    pub fn published(&self) -> NodeGc {
        let containers = self
            .programs
            .iter()
            .map(|(labels, program)| (labels.clone(), Arc::new(program.total())));
        let unread = GcUnread::ALL.map(|reason| (reason, self.unread.get(&reason).copied()));
        let refused = self.unread.contains_key(&GcUnread::NotPermitted);
        let reason = if refused && self.programs.is_empty() {
            GcUnread::NotPermitted.explanation().to_owned()
        } else {
            String::new()
        };
        NodeGc {
            containers: containers.collect(),
            unread: unread
                .into_iter()
                .filter_map(|(reason, containers)| Some((reason, containers?)))
                .collect(),
            dropped: self.dropped,
            feature: Some(FeatureState { feature: FEATURE, enabled: reason.is_empty(), reason }),
        }
    }
}

/// Garbage collection of one container's program.
#[derive(Debug)]
struct ProgramCollections {
    /// Sums of the processes that have ended.
    before: Counters,
    latest: GcReading,
    read_at: Instant,
    recent: Option<GcInterval>,
    /// Whether the latest reading was dropped because a counter went back. If the next one is as
    /// low, the process has started another program.
    is_suspect: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    cycles: u64,
    cpu_ns: Option<u64>,
    pause_ns: Option<u64>,
    safepoint_ns: Option<u64>,
}

impl Counters {
    fn of(reading: &GcReading) -> Self {
        Self {
            cycles: reading.cycles,
            cpu_ns: reading.cpu_ns,
            pause_ns: reading.pause_ns,
            safepoint_ns: reading.safepoint_ns,
        }
    }

    fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
        };
        Self {
            cycles: self.cycles.saturating_add(other.cycles),
            cpu_ns: sum(self.cpu_ns, other.cpu_ns),
            pause_ns: sum(self.pause_ns, other.pause_ns),
            safepoint_ns: sum(self.safepoint_ns, other.safepoint_ns),
        }
    }

    /// Whether no counter is below that of an earlier reading.
    fn follows(self, before: Self) -> bool {
        let grows = |now: Option<u64>, before: Option<u64>| now >= before;
        self.cycles >= before.cycles
            && grows(self.cpu_ns, before.cpu_ns)
            && grows(self.pause_ns, before.pause_ns)
            && grows(self.safepoint_ns, before.safepoint_ns)
    }

    /// Time in which the program was stopped, nanoseconds.
    fn stopped_ns(self) -> Option<u64> {
        self.safepoint_ns.or(self.pause_ns)
    }
}

impl ProgramCollections {
    fn new(reading: GcReading, at: Instant) -> Self {
        Self {
            before: Counters::default(),
            latest: reading,
            read_at: at,
            recent: None,
            is_suspect: false,
        }
    }

    /// Adds a reading; returns whether it is plausible.
    fn add(&mut self, reading: GcReading, at: Instant, number: u64) -> bool {
        let (now, latest) = (Counters::of(&reading), Counters::of(&self.latest));
        let seconds = at.saturating_duration_since(self.read_at).as_secs_f64();
        let is_same = reading.process == self.latest.process;
        if is_same && !now.follows(latest) && !self.is_suspect {
            self.is_suspect = true;
            return false;
        }
        if !is_same || !now.follows(latest) {
            *self = Self { before: self.before.plus(latest), ..Self::new(reading, at) };
            return true;
        }
        let cycles = now.cycles - latest.cycles;
        if seconds <= 0.0 || cycles as f64 > MAX_CYCLES_PER_SECOND * seconds.max(1.0) {
            return false;
        }
        let cpu_share = reading.share_since(&self.latest);
        let stopped_ns = now.stopped_ns().zip(latest.stopped_ns());
        let stopped_share = stopped_ns
            .map(|(now, then)| (now.saturating_sub(then) as f64 / 1e9 / seconds).min(1.0));
        self.recent = Some(GcInterval { number, seconds, cycles, cpu_share, stopped_share });
        (self.latest, self.read_at, self.is_suspect) = (reading, at, false);
        true
    }

    fn total(&self) -> ContainerGc {
        let total = self.before.plus(Counters::of(&self.latest));
        ContainerGc {
            cycles: total.cycles,
            cpu_ns: total.cpu_ns,
            pause_ns: total.pause_ns,
            safepoint_ns: total.safepoint_ns,
            live_bytes: self.latest.live_bytes,
            goal_bytes: self.latest.goal_bytes,
            limit_bytes: self.latest.limit_bytes,
            settings: self.latest.settings.clone(),
            recent: self.recent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(process: (u32, u64), cycles: u64, cpu_ns: u64) -> GcReading {
        let mut reading = GcReading::default();
        (reading.process, reading.cycles, reading.cpu_ns) = (process, cycles, Some(cpu_ns));
        reading
    }

    fn program(began: Instant) -> ProgramCollections {
        ProgramCollections::new(reading((7, 1), 100, 1_000), began)
    }

    #[test]
    fn counters_add_up_over_restarts_of_the_program() {
        let began = Instant::now();
        let mut program = program(began);
        assert!(program.add(reading((7, 1), 120, 1_500), began + ROUND, 2));
        let recent = program.total().recent.unwrap();
        assert_eq!((recent.number, recent.cycles, recent.seconds), (2, 20, 10.0));
        assert!(program.add(reading((9, 5), 3, 40), began + 2 * ROUND, 3));
        let total = program.total();
        assert_eq!((total.cycles, total.cpu_ns, total.recent), (123, Some(1_540), None));
    }

    #[test]
    fn a_counter_that_goes_back_once_is_dropped_and_twice_is_another_program() {
        let began = Instant::now();
        let mut program = program(began);
        assert!(!program.add(reading((7, 1), 5, 50), began + ROUND, 2));
        assert_eq!(program.total().cycles, 100);
        assert!(program.add(reading((7, 1), 110, 1_100), began + 2 * ROUND, 3), "it was torn");
        assert!(!program.add(reading((7, 1), 6, 60), began + 3 * ROUND, 4));
        assert!(
            program.add(reading((7, 1), 9, 90), began + 4 * ROUND, 5),
            "the process has called exec"
        );
        assert_eq!((program.total().cycles, program.total().cpu_ns), (119, Some(1_190)));
    }

    #[test]
    fn more_cycles_than_any_program_runs_are_implausible() {
        let began = Instant::now();
        let mut program = program(began);
        assert!(!program.add(reading((7, 1), 1_000_000, 1_000), began + ROUND, 2));
        assert_eq!(program.total().cycles, 100);
    }
}
