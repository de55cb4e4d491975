//! The table of changes since the start: one row per container, and one per pod with its own quota.
//!
//! Only reads snapshots; independent of terminal and stage.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use api::Frame;
use serde_json::{Value, json};
use snapshot::{CfsTotals, ContainerRow, NodeSnapshot, PodRow, Published};
use timeline::Timeline;

/// Explanation of the columns that only this table has.
pub(crate) const LEGEND: &str = "\
THROTTLED: since the start, by its own limit. PEAK: in the worst second.
PERIODS: share of its active CFS periods. Idle containers have few: a high share can be harmless.
SECONDS: throttled seconds per second, summed over CPUs.
BY: whose limit throttled it: its own, one above it, or both.
";

/// Polling interval for a new snapshot; snapshots come once per second.
const LOOK: Duration = Duration::from_millis(50);
/// Text in the container column of a pod's row.
const POD: &str = "(pod)";

/// Namespace, pod and container. The pod's own row has no container and sorts first.
type Key = (String, String, Option<String>);

/// All rows with their counters.
#[derive(Debug, Default)]
pub struct DemoTable {
    rows: BTreeMap<Key, Row>,
    taken: Option<SystemTime>,
    /// The latest second of the views, for the verdicts.
    frame: Frame,
}

/// One row of the table.
#[derive(Debug, Default)]
struct Row {
    first: Counters,
    last: Counters,
    /// Time from `first` to `last`.
    seconds: f64,
    limit_cores: Option<f64>,
    /// Maximum throttled share within a second.
    peak: Option<f64>,
    is_fresh: bool,
}

/// Cumulative counters of one row.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    usage_ns: Option<u64>,
    cfs: Option<CfsTotals>,
    /// Length of the periods counted by `cfs`, microseconds.
    period_usec: Option<u64>,
    ancestor_ns: Option<u64>,
}

/// Rates over a time span.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    cores: Option<f64>,
    /// Throttled share of the time; `None` without its own quota.
    throttled: Option<f64>,
    /// Throttled share of the periods; `None` without its own quota.
    periods: Option<f64>,
    /// Throttled seconds per second, by the quota of the row's own cgroup and by those of its
    /// ancestors.
    own: f64,
    ancestor: f64,
}

impl DemoTable {
    /// Columns of numbers.
    pub(crate) const NUMBERS: Range<usize> = 2..8;

    /// The headline and all rows, as cells.
    pub(crate) fn cells(&self) -> Vec<Vec<String>> {
        let head =
            ["POD", "CONTAINER", "USED", "LIMIT", "THROTTLED", "PEAK", "PERIODS", "SECONDS", "BY"];
        let rows = self.rows.iter().map(|(key, row)| row.cells(key));
        std::iter::once(head.map(str::to_owned)).chain(rows).map(Vec::from).collect()
    }

    /// The latest second of the views; empty before the first.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// All rows as JSON; unknown values are null.
    pub(crate) fn rows(&self) -> Value {
        let row = |(key, row): (&Key, &Row)| {
            let (namespace, pod, container) = key;
            let found = row.rates();
            let rates = found.unwrap_or_default();
            json!({
                "namespace": namespace,
                "pod": pod,
                "container": container,
                "seconds": row.seconds,
                "usageCores": rates.cores,
                "limitCores": row.limit_cores,
                "throttledShare": rates.throttled,
                "peakThrottledShare": row.peak,
                "throttledPeriodsShare": rates.periods,
                "throttledOwn": found.map(|rates| rates.own),
                "throttledAncestor": found.map(|rates| rates.ancestor),
            })
        };
        self.rows.iter().map(row).collect()
    }

    /// Adds the next snapshot. The first one only sets the baseline of the counters.
    pub fn observe(&mut self, snapshot: &NodeSnapshot) {
        let passed = self
            .taken
            .zip(snapshot.taken)
            .and_then(|(before, now)| now.duration_since(before).ok());
        // If the clock was set, the nominal interval is the best estimate.
        let seconds =
            passed.filter(|passed| !passed.is_zero()).unwrap_or(snapshot.interval).as_secs_f64();
        self.taken = snapshot.taken;
        self.rows.values_mut().for_each(|row| row.is_fresh = false);
        for container in snapshot.containers.iter().filter(|container| container.live) {
            self.update(
                container_key(container),
                container_counters(container),
                container.cpu_limit.cores(),
                seconds,
            );
        }
        for pod in &snapshot.pods {
            let (now, limit_cores) = (pod_counters(pod, snapshot), pod.cpu_limit.cores());
            self.update(pod_key(pod), now, limit_cores, seconds);
        }
        self.rows.retain(|_, row| row.is_fresh);
    }

    fn update(&mut self, key: Key, now: Counters, limit_cores: Option<f64>, seconds: f64) {
        let row = match self.rows.entry(key) {
            Entry::Vacant(new) => new.insert(Row { first: now, last: now, ..Row::default() }),
            Entry::Occupied(known) => {
                let row = known.into_mut();
                row.advance(now, seconds);
                row
            }
        };
        row.limit_cores = limit_cores;
        row.is_fresh = true;
    }
}

/// Adds every snapshot to the table, and the latest second of the views, until the task is aborted.
pub async fn follow(
    published: Published<NodeSnapshot>,
    timeline: Timeline,
    table: Arc<Mutex<DemoTable>>,
) {
    let mut seen = 0;
    loop {
        let snapshot = published.latest();
        if snapshot.sequence > seen {
            seen = snapshot.sequence;
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            table.observe(&snapshot);
            table.frame = timeline.latest().unwrap_or_default();
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Row {
    fn advance(&mut self, now: Counters, seconds: f64) {
        let second = Rates::between(&self.last, &now, seconds).throttled;
        self.peak = second.map(|second| self.peak.map_or(second, |peak| peak.max(second)));
        self.last = now;
        self.seconds += seconds;
    }

    /// Rates since the row appeared; `None` before its second snapshot.
    fn rates(&self) -> Option<Rates> {
        (self.seconds > 0.0).then(|| Rates::between(&self.first, &self.last, self.seconds))
    }

    fn cells(&self, (namespace, pod, container): &Key) -> [String; 9] {
        let found = self.rates();
        let rates = found.unwrap_or_default();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let percent = |value: Option<f64>| {
            value.map_or("-".to_owned(), |value| format!("{:.0} %", value * 100.0))
        };
        [
            format!("{namespace}/{pod}"),
            container.clone().unwrap_or_else(|| POD.to_owned()),
            number(rates.cores, 2),
            number(self.limit_cores, 2),
            percent(rates.throttled),
            percent(self.peak),
            percent(rates.periods),
            number(found.map(|rates| rates.own + rates.ancestor), 2),
            rates.origin().to_owned(),
        ]
    }
}

impl Rates {
    fn between(before: &Counters, now: &Counters, seconds: f64) -> Self {
        let gained =
            |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before?) as f64);
        let per_second = |before, now| gained(before, now).map(|ns| ns / 1e9 / seconds);
        let cfs = |pick: fn(&CfsTotals) -> u64| {
            (before.cfs.as_ref().map(pick), now.cfs.as_ref().map(pick))
        };
        let (periods_before, periods) = cfs(|cfs| cfs.periods);
        let (throttled_before, throttled) = cfs(|cfs| cfs.throttled_periods);
        let (own_before, own) = cfs(|cfs| cfs.throttled_ns);
        let (periods, throttled) =
            (gained(periods_before, periods), gained(throttled_before, throttled));
        // A period that began before the window may end in it.
        let of_time =
            |(throttled, usec): (f64, u64)| (throttled * usec as f64 / 1e6 / seconds).min(1.0);
        // No periods: it was idle, and nothing was throttled.
        let of_periods = |(periods, throttled): (f64, f64)| {
            if periods > 0.0 { throttled / periods } else { 0.0 }
        };
        Self {
            cores: per_second(before.usage_ns, now.usage_ns),
            throttled: throttled.zip(now.period_usec).map(of_time),
            periods: periods.zip(throttled).map(of_periods),
            own: per_second(own_before, own).unwrap_or(0.0),
            ancestor: per_second(before.ancestor_ns, now.ancestor_ns).unwrap_or(0.0),
        }
    }

    /// Origin of the throttling: its own limit or one above it.
    fn origin(&self) -> &'static str {
        match (self.own > 0.0, self.ancestor > 0.0) {
            (true, true) => "both",
            (true, false) => "own",
            (false, true) => "above",
            (false, false) => "-",
        }
    }
}

fn container_key(row: &ContainerRow) -> Key {
    let identity = &row.identity;
    (identity.namespace.clone(), identity.pod.clone(), Some(identity.container.clone()))
}

fn container_counters(row: &ContainerRow) -> Counters {
    let (usage_ns, period_usec) = (row.usage_ns, row.period_usec());
    Counters { usage_ns, cfs: row.cfs, period_usec, ancestor_ns: row.throttled_ancestor_ns }
}

fn pod_key(row: &PodRow) -> Key {
    (row.identity.namespace.clone(), row.identity.pod.clone(), None)
}

/// A pod's use is the sum of its containers'. Its period is theirs, too: the kubelet sets one
/// period for all quotas of a node.
fn pod_counters(row: &PodRow, snapshot: &NodeSnapshot) -> Counters {
    let of_pod = |container: &&ContainerRow| {
        container.identity.namespace == row.identity.namespace
            && container.identity.pod == row.identity.pod
    };
    let containers = || snapshot.containers.iter().filter(of_pod);
    let usage_ns = containers().filter_map(|row| row.usage_ns).sum();
    let limit = containers().find_map(|container| container.cpu_limit.limited());
    let period_usec = limit.map(|limit| limit.period_usec);
    Counters { usage_ns: Some(usage_ns), cfs: Some(row.cfs), period_usec, ancestor_ns: None }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use snapshot::{Bandwidth, CpuLimit, Limit, Quota};

    use super::*;

    fn at(second: u64, periods: u64, throttled_periods: u64) -> NodeSnapshot {
        let cfs = CfsTotals {
            periods,
            throttled_periods,
            throttled_ns: throttled_periods * 70_000_000,
            ..CfsTotals::default()
        };
        let burst = ContainerRow {
            live: true,
            cfs: Some(cfs),
            bandwidth: Some(Bandwidth { quota: Quota::Max, period_usec: 100_000 }),
            usage_ns: Some(second * 30_000_000),
            cpu_limit: Limit::Limited(CpuLimit { cores: 0.2, period_usec: 100_000 }),
            ..ContainerRow::default()
        };
        NodeSnapshot {
            taken: Some(UNIX_EPOCH + Duration::from_secs(second)),
            containers: vec![burst],
            ..NodeSnapshot::default()
        }
    }

    #[test]
    fn idle_time_lowers_only_the_throttled_share_of_time() {
        let mut table = DemoTable::default();
        // Three active periods in each of ten seconds, one of them throttled, and two in the last
        // second.
        (0..10).for_each(|second| table.observe(&at(second, 3 * second, second)));
        table.observe(&at(10, 30, 11));
        let cells = table.cells().remove(1);
        assert_eq!(
            cells[2..],
            ["0.03", "0.20", "11 %", "20 %", "37 %", "0.08", "own"],
            "{cells:?}"
        );
    }
}
