//! Contention-only pressure: the share of wall-clock time in which at least one thread of a class
//! waited for a CPU although its own quota allowed it to run. PSI cannot give it, because PSI
//! counts throttled threads as waiting.
//!
//! The trace counts thread time, not its union over threads, so the share is known as a range.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use snapshot::{ContainerRow, NodeSnapshot, TraceMode};

/// Kubernetes QoS class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// `Guaranteed`.
    Guaranteed,
    /// `Burstable`.
    Burstable,
    /// `BestEffort`.
    BestEffort,
}

impl QosClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// Name as in the pod's status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Share of wall-clock time under contention: between `lower` and `upper`, both 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassPressure {
    /// At least this share.
    pub lower: f64,
    /// At most this share.
    pub upper: f64,
}

impl ClassPressure {
    /// Range for threads of several containers. Per container: contended thread time over the
    /// interval (1 is one thread that waits all the time), and its number of threads.
    ///
    /// At most `threads` wait at once, so the union of a container's waits is at least its thread
    /// time over its threads; the union over containers is at least that of any one, and at most
    /// the sum of all thread time.
    fn of(containers: impl Iterator<Item = (f64, u64)>) -> Self {
        let mut range = Self::default();
        for (waited, threads) in containers {
            range.lower = range.lower.max(waited / threads.max(1) as f64);
            range.upper += waited;
        }
        Self { lower: range.lower.min(1.0), upper: range.upper.min(1.0) }
    }

    /// Range of the union of classes.
    #[must_use]
    pub fn union(classes: impl IntoIterator<Item = Self>) -> Self {
        classes.into_iter().fold(Self::default(), |all, class| Self {
            lower: all.lower.max(class.lower),
            upper: (all.upper + class.upper).min(1.0),
        })
    }
}

/// Turns the trace's counters into pressure per tick.
///
/// A wait counts when it ends, so a reading may include the begin of a wait from the interval
/// before.
#[derive(Debug, Default)]
pub struct PressureMeter {
    /// By the labels of the container's series.
    last: HashMap<Box<str>, Counted>,
    read_at: Option<Instant>,
}

impl PressureMeter {
    /// Reads a snapshot. Returns the range of each class that has containers, or `None` for the
    /// first snapshot and unless waits are traced all the time: counts of a trace in bursts are
    /// estimates and bound nothing.
    pub fn read(&mut self, snapshot: &NodeSnapshot) -> Option<Vec<(QosClass, ClassPressure)>> {
        let trace = snapshot.waits.trace.as_ref();
        if trace.is_none_or(|trace| trace.mode != TraceMode::Continuous) {
            *self = Self::default();
            return None;
        }
        let now = snapshot.read_at?;
        let elapsed = self.read_at.and_then(|last| now.checked_duration_since(last));
        let elapsed = elapsed.filter(|time| !time.is_zero());
        if self.read_at.is_some() && elapsed.is_none() {
            return None;
        }
        let rows = snapshot.containers.iter().filter(|row| row.live);
        let counted = rows.map(|row| (row.identity.labels.clone(), Counted::of(row))).collect();
        let before = std::mem::replace(&mut self.last, counted);
        self.read_at = Some(now);
        Some(by_class(snapshot, &before, elapsed?.as_nanos() as f64))
    }
}

/// Counters of one container at one reading.
#[derive(Debug, Clone, Copy)]
struct Counted {
    contended_ns: u64,
    threads: Option<u64>,
}

impl Counted {
    fn of(row: &ContainerRow) -> Self {
        Self { contended_ns: contended_ns(row), threads: row.threads }
    }

    /// Contended thread time since `before` over the interval, and the larger number of threads at
    /// its ends. An unknown number is no bound.
    fn since(self, before: Option<&Self>, elapsed_ns: f64) -> (f64, u64) {
        let waited =
            self.contended_ns - before.map_or(0, |b| b.contended_ns).min(self.contended_ns);
        let threads = match before {
            Some(before) => self.threads.max(before.threads),
            None => self.threads,
        };
        (waited as f64 / elapsed_ns, threads.unwrap_or(u64::MAX))
    }
}

fn by_class(
    snapshot: &NodeSnapshot,
    before: &HashMap<Box<str>, Counted>,
    elapsed_ns: f64,
) -> Vec<(QosClass, ClassPressure)> {
    let mut containers: BTreeMap<QosClass, Vec<(f64, u64)>> = BTreeMap::new();
    for row in snapshot.containers.iter().filter(|row| row.live) {
        if let Some(class) = QosClass::of(&row.identity.qos_class) {
            let waited = Counted::of(row).since(before.get(&row.identity.labels), elapsed_ns);
            containers.entry(class).or_default().push(waited);
        }
    }
    let pressures = containers.into_iter();
    pressures.map(|(class, waits)| (class, ClassPressure::of(waits.into_iter()))).collect()
}

/// Thread time that a container waited for something else than a quota. Time without a known cause
/// is left out: it may have been throttling.
fn contended_ns(row: &ContainerRow) -> u64 {
    row.waits.as_deref().map_or(0, |waits| waits.neighbor_ns + waits.self_ns + waits.system_ns)
}
