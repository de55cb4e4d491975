//! The table: what changed from one snapshot to the next, a row a container, and one for a pod with a quota of its own.
//!
//! Reads snapshots only; knows neither terminal nor stage.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use sampler::snapshot::{CfsTotals, ContainerRow, NodeSnapshot, PodRow};

/// What the columns mean.
pub(super) const LEGEND: &str = "\
THROTTLED: share of the last second's CFS periods that ran into the quota; PEAK: the highest such second.
DENIED: CPU-seconds a second that a quota withheld, summed over CPUs, BY the container's own quota or an ancestor's.
";

/// Container column of a row that is a pod.
const POD: &str = "(pod)";

/// Namespace, pod, and container; `None` for the pod's own row, which sorts first.
type Key = (String, String, Option<String>);

/// All rows, with what they were.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<Key, Row>,
    taken: Option<SystemTime>,
}

/// One row.
#[derive(Debug, Default)]
struct Row {
    seen: Counters,
    limit_cores: Option<f64>,
    rates: Option<Rates>,
    /// Highest share of throttled periods in a second.
    peak: Option<f64>,
    denied_by_own: bool,
    denied_by_ancestor: bool,
    is_fresh: bool,
}

/// Counters of one row, as accumulated.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    usage_ns: Option<u64>,
    cfs: Option<CfsTotals>,
    ancestor_ns: Option<u64>,
}

/// What a second brought.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    cores: Option<f64>,
    /// Share of throttled periods; `None` without a quota of its own.
    throttled: Option<f64>,
    own: f64,
    ancestor: f64,
}

impl Table {
    /// Takes in the next snapshot. The first one only sets where the counters stand.
    pub(super) fn observe(&mut self, snapshot: &NodeSnapshot) {
        let passed = self.taken.zip(snapshot.taken).and_then(|(before, now)| now.duration_since(before).ok());
        // A clock that was set: better the nominal time than none.
        let seconds = passed.filter(|passed| !passed.is_zero()).unwrap_or(snapshot.interval).as_secs_f64();
        self.taken = snapshot.taken;
        self.rows.values_mut().for_each(|row| row.is_fresh = false);
        for container in snapshot.containers.iter().filter(|container| container.live) {
            self.update(container_key(container), container_counters(container), container.limit_cores, seconds);
        }
        for pod in &snapshot.pods {
            self.update(pod_key(pod), pod_counters(pod, snapshot), pod.limit_cores, seconds);
        }
        self.rows.retain(|_, row| row.is_fresh);
    }

    fn update(&mut self, key: Key, now: Counters, limit_cores: Option<f64>, seconds: f64) {
        let is_new = !self.rows.contains_key(&key);
        let row = self.rows.entry(key).or_default();
        if !is_new {
            row.advance(Rates::between(&row.seen, &now, seconds));
        }
        row.seen = now;
        row.limit_cores = limit_cores;
        row.is_fresh = true;
    }
}

impl Row {
    fn advance(&mut self, rates: Rates) {
        self.peak = rates.throttled.map(|now| self.peak.map_or(now, |peak| peak.max(now)));
        self.denied_by_own |= rates.own > 0.0;
        self.denied_by_ancestor |= rates.ancestor > 0.0;
        self.rates = Some(rates);
    }

    fn origin(&self) -> &'static str {
        match (self.denied_by_own, self.denied_by_ancestor) {
            (true, true) => "own+ancestor",
            (true, false) => "own",
            (false, true) => "ancestor",
            (false, false) => "-",
        }
    }

    fn cells(&self, (namespace, pod, container): &Key) -> [String; 8] {
        let rates = self.rates.unwrap_or_default();
        let number =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0} %", value * 100.0));
        let denied = self.rates.map(|rates| rates.own + rates.ancestor);
        [
            format!("{namespace}/{pod}"),
            container.clone().unwrap_or_else(|| POD.to_owned()),
            number(rates.cores, 2),
            number(self.limit_cores, 2),
            percent(rates.throttled),
            percent(self.peak),
            number(denied, 2),
            self.origin().to_owned(),
        ]
    }
}

impl Rates {
    fn between(before: &Counters, now: &Counters, seconds: f64) -> Self {
        let gained = |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before?) as f64);
        let core_seconds = |before, now| gained(before, now).map(|ns| ns / 1e9 / seconds);
        let cfs = |pick: fn(&CfsTotals) -> u64| (before.cfs.as_ref().map(pick), now.cfs.as_ref().map(pick));
        let (periods_before, periods) = cfs(|cfs| cfs.periods);
        let (throttled_before, throttled) = cfs(|cfs| cfs.throttled_periods);
        let (denied_before, denied) = cfs(|cfs| cfs.throttled_ns);
        // No period at all: an idle second, in which nothing was throttled.
        let share = |(periods, throttled): (f64, f64)| if periods > 0.0 { throttled / periods } else { 0.0 };
        Self {
            cores: core_seconds(before.usage_ns, now.usage_ns),
            throttled: gained(periods_before, periods).zip(gained(throttled_before, throttled)).map(share),
            own: core_seconds(denied_before, denied).unwrap_or(0.0),
            ancestor: core_seconds(before.ancestor_ns, now.ancestor_ns).unwrap_or(0.0),
        }
    }
}

fn container_key(row: &ContainerRow) -> Key {
    let identity = &row.identity;
    (identity.namespace.clone(), identity.pod.clone(), Some(identity.container.clone()))
}

fn container_counters(row: &ContainerRow) -> Counters {
    Counters { usage_ns: row.usage_ns(), cfs: row.cfs, ancestor_ns: row.throttled_ancestor_ns }
}

fn pod_key(row: &PodRow) -> Key {
    (row.identity.namespace.clone(), row.identity.pod.clone(), None)
}

/// A pod's use is that of its containers.
fn pod_counters(row: &PodRow, snapshot: &NodeSnapshot) -> Counters {
    let of_pod = |container: &&ContainerRow| {
        container.identity.namespace == row.identity.namespace && container.identity.pod == row.identity.pod
    };
    let usage_ns = snapshot.containers.iter().filter(of_pod).filter_map(ContainerRow::usage_ns).sum();
    Counters { usage_ns: Some(usage_ns), cfs: Some(row.cfs), ancestor_ns: None }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["POD", "CONTAINER", "CORES", "LIMIT", "THROTTLED", "PEAK", "DENIED", "BY"].map(str::to_owned);
        let rows = self.rows.iter().map(|(key, row)| row.cells(key));
        let lines: Vec<[String; 8]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 8] = std::array::from_fn(width);
        for line in &lines {
            let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                0 | 1 => format!("{cell:<width$}"),
                7 => cell.clone(),
                _ => format!("{cell:>width$}"),
            });
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "))?;
        }
        Ok(())
    }
}
