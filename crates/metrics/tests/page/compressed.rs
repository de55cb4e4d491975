//! The compressed page, of which unchanged pieces are kept, is the page that is rendered as a whole.

use std::sync::Arc;

use metrics::catalogue::{Preset, Selection};
use metrics::exposition::decompress;
use metrics::{AgentMetrics, Exposition};
use proptest::prelude::*;
use snapshot::{ContainerRow, NodeSnapshot, NodeWaits, PodRow};

use crate::{FORMATS, NO_CAP, snapshots};

/// Change of a node between two pages. Positions are taken modulo the number of rows.
#[derive(Debug, Clone)]
enum Change {
    Start(usize),
    Stop(usize),
    Rename(usize),
    /// The same names in a new identity.
    Reidentify(usize),
    Count(usize, u64),
    /// One counter goes, and another one comes with its value.
    Replace(usize),
    /// A row and the next one exchange their windows, which only every other row has.
    Exchange(usize),
    Quota(usize),
    Cpuset(usize, u8),
    Pods(usize),
    Waits(Option<u64>),
    Advice(usize, bool),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..1000_usize;
    prop_oneof![
        at.clone().prop_map(Change::Start),
        at.clone().prop_map(Change::Stop),
        at.clone().prop_map(Change::Rename),
        at.clone().prop_map(Change::Reidentify),
        (at.clone(), 0..3_000_000_000_u64).prop_map(|(at, ns)| Change::Count(at, ns)),
        at.clone().prop_map(Change::Replace),
        at.clone().prop_map(Change::Exchange),
        at.clone().prop_map(Change::Quota),
        (at.clone(), 0..4_u8).prop_map(|(at, cpu)| Change::Cpuset(at, cpu)),
        (0..200_usize).prop_map(Change::Pods),
        prop::option::of(0..3_000_000_000_u64).prop_map(Change::Waits),
        (0..200_usize, any::<bool>()).prop_map(|(rows, changed)| Change::Advice(rows, changed)),
    ]
}

impl Change {
    /// The change with a position that exists on a node of `len` rows, if it has any.
    fn within(&self, len: usize) -> Self {
        let len = len.max(1);
        match *self {
            Self::Start(at) => Self::Start(at % len),
            Self::Stop(at) => Self::Stop(at % len),
            Self::Rename(at) => Self::Rename(at % len),
            Self::Reidentify(at) => Self::Reidentify(at % len),
            Self::Count(at, ns) => Self::Count(at % len, ns),
            Self::Replace(at) => Self::Replace(at % len),
            Self::Exchange(at) => Self::Exchange(at % len),
            Self::Quota(at) => Self::Quota(at % len),
            Self::Cpuset(at, cpu) => Self::Cpuset(at % len, cpu),
            Self::Pods(_) | Self::Waits(_) | Self::Advice(..) => self.clone(),
        }
    }

    fn apply(&self, number: usize, snapshot: &mut NodeSnapshot, agents: &[AgentMetrics]) {
        let rows = &mut snapshot.containers;
        let len = rows.len();
        match self.within(len) {
            Self::Start(at) => rows.insert(at, started(number)),
            Self::Pods(pods) => snapshot.pods = pods_with_quota(pods, number),
            Self::Waits(ns) => snapshot.waits = waits(ns),
            Self::Advice(rows, changed) => advise(agents, rows, changed),
            _ if rows.is_empty() => {}
            Self::Stop(at) => drop(rows.remove(at)),
            Self::Rename(at) => rows[at].identity = started(number).identity,
            Self::Reidentify(at) => {
                let identity = &mut rows[at].identity;
                *identity = Arc::new((**identity).clone());
            }
            Self::Count(at, ns) => count(&mut rows[at], ns),
            Self::Replace(at) => {
                let row = &mut rows[at];
                row.throttled_ancestor_ns = row.cfs.take().map(|cfs| cfs.throttled_ns);
            }
            Self::Exchange(at) => {
                let windows = rows[at].windows.take();
                let other = std::mem::replace(&mut rows[(at + 1) % len].windows, windows);
                rows[at].windows = other;
            }
            Self::Quota(at) => rows[at].cpu_limit = snapshot::Limit::Unlimited,
            Self::Cpuset(at, cpu) => {
                let cpuset = snapshot::CpusetRow { cpus: cpu.to_string(), count: 1 };
                rows[at].cpuset = Some(Arc::new(cpuset));
            }
        }
    }
}

fn started(number: usize) -> ContainerRow {
    let identity = snapshots::identity("new", &format!("pod-{number}"), "app");
    ContainerRow { identity, live: true, user_ns: Some(number as u64), ..ContainerRow::default() }
}

fn count(row: &mut ContainerRow, ns: u64) {
    row.user_ns = row.user_ns.map(|before| before + ns);
    if let Some(windows) = &mut row.windows {
        windows.observe(ns as f64 / 3e9);
    }
    if let Some(waits) = &mut row.waits {
        Arc::make_mut(waits).latency.counts[3] += ns;
    }
}

fn pods_with_quota(pods: usize, number: usize) -> Vec<PodRow> {
    let mut rows: Vec<_> = (0..pods).map(snapshots::pod).collect();
    if let Some(row) = rows.last_mut() {
        row.cfs.periods += number as u64;
    }
    rows
}

/// Waits of a traced node, or of one that is not traced.
fn waits(ns: Option<u64>) -> Arc<NodeWaits> {
    let Some(ns) = ns else { return Arc::default() };
    let mut waits = (*snapshots::maximal().waits).clone();
    let row = waits.interference[0].clone();
    waits.interference = vec![row; (ns % 5) as usize];
    for (at, row) in waits.interference.iter_mut().enumerate() {
        row.aggressor_pod = format!("encode-{}", at as u64 + ns % 3).into();
        row.wait_ns = ns;
    }
    Arc::new(waits)
}

fn advise(agents: &[AgentMetrics], rows: usize, changed: bool) {
    for agent in agents {
        let mut rows: Vec<_> = (0..rows).map(|n| snapshots::advised(&format!("pod-{n}"))).collect();
        if let (Some(row), true) = (rows.last_mut(), changed) {
            (row.limit_cores, row.version, row.limit_bound) = (Some(2.25), None, "exact");
        }
        agent.advice().set(rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn kept_pieces_are_what_a_new_page_would_contain(
        containers in prop::sample::select(vec![0, 1, 127, 128, 129, 300]),
        pages in prop::collection::vec(prop::collection::vec(change(), 0..4), 1..8),
        cap in prop::sample::select(vec![NO_CAP, NO_CAP, 2_000]),
        preset in prop::sample::select(Preset::ALL.to_vec()),
    ) {
        let mut snapshot = snapshots::node(containers);
        snapshot.containers.iter_mut().step_by(2).for_each(|row| row.windows = None);
        // Each page counts the series that it drops.
        let agents = [snapshots::agent(), snapshots::agent()];
        let [mut kept, mut whole] =
            [0, 1].map(|_| Exposition::with_selection(cap, Selection::preset(preset)));
        for (number, changes) in pages.iter().enumerate() {
            for change in changes {
                change.apply(number, &mut snapshot, &agents);
            }
            let format = FORMATS[number % 3 % 2];
            let page = decompress(kept.render_compressed(&snapshot, &agents[0], format)).unwrap();
            let page = String::from_utf8(page).unwrap();
            let expected = String::from_utf8_lossy(whole.render(&snapshot, &agents[1], format));
            for (at, (line, expected)) in page.lines().zip(expected.lines()).enumerate() {
                prop_assert_eq!(line, expected, "page {}, line {}", number, at);
            }
            prop_assert_eq!(page.len(), expected.len(), "page {}", number);
        }
    }
}
