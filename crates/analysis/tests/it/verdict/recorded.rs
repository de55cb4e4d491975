//! Hyperthreads and stolen time, from recorded counters: the machine of `cargo bench --bench verdict`
//! has neither.
//!
//! The counters are those of the incident on one CPU of Linux 6.18 (`kernel::contention`, 2026-11-27):
//! alone, the service uses 152 ms a second and waits for 2 ms; behind the report it uses 18 ms and
//! loses 919 ms to the report and 60 ms to the cart. Derived from them:
//!
//! - Two threads of a core do 1.25 times the work of one, so the same work takes 1.6 times as long.
//!   The scheduler sees that as use.
//! - A run queue's clock goes on while the hypervisor has the CPU, and CPU time does not. So of 40 %
//!   stolen, each wait for a running thread lasts 1 / 0.6 times as long, and use stays the same; on a
//!   CPU that is full, use shrinks to 0.6 times.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::verdict::{SnapshotReader, Verdicts};
use api::Verdict;
use snapshot::{
    ContainerRow, ContainerWaits, Culprit, Losses, LostTime, NodeSnapshot, NodeWaits, PollLosses,
    SmtShares, TraceMode, TraceRow,
};

use super::reading::{MS, container};
use super::scene::{culprit, identity, line};

/// Milliseconds per second.
struct Recorded {
    name: &'static str,
    /// Cause that removal would show.
    truth: &'static str,
    stolen: u64,
    idle: u64,
    /// Use of each pod, and its time next to another pod on the same core.
    used: &'static [(&'static str, u64, u64)],
    /// Time that the service lost to each.
    lost: &'static [(&'static str, u64)],
    expected: &'static str,
}

const SERVICE: &str = "shop/checkout";
const BEHIND_REPORT: &[(&str, u64)] = &[("batch/report", 919), ("shop/cart", 60), ("system", 1)];

const RECORDED: [Recorded; 6] = [
    Recorded {
        name: "a busy hyperthread next to the service",
        truth: "nobody",
        stolen: 0,
        idle: 757,
        used: &[(SERVICE, 243, 243), ("batch/encode", 1000, 243)],
        lost: &[("system", 2)],
        expected: "",
    },
    Recorded {
        name: "a busy hyperthread, and six spinners on the service's own one",
        truth: "report",
        stolen: 0,
        idle: 0,
        used: &[
            (SERVICE, 18, 18),
            ("batch/encode", 1000, 1000),
            ("batch/report", 920, 920),
            ("shop/cart", 60, 60),
        ],
        lost: BEHIND_REPORT,
        expected: "shop/checkout Service neighbor ×55.4 by batch/report",
    },
    Recorded {
        name: "40 % stolen, next to nothing",
        truth: "nobody",
        stolen: 101,
        idle: 747,
        used: &[(SERVICE, 152, 0)],
        lost: &[("system", 3)],
        expected: "",
    },
    Recorded {
        name: "40 % stolen, next to an innocent",
        truth: "nobody",
        stolen: 141,
        idle: 647,
        used: &[(SERVICE, 152, 0), ("shop/cart", 60, 0)],
        lost: &[("shop/cart", 100), ("system", 3)],
        expected: "shop/checkout Service unknown ×1.7 by unknown",
    },
    Recorded {
        name: "10 % stolen, behind six spinners",
        truth: "report",
        stolen: 100,
        idle: 0,
        used: &[(SERVICE, 16, 0), ("batch/report", 830, 0), ("shop/cart", 54, 0)],
        lost: BEHIND_REPORT,
        expected: "shop/checkout Service neighbor ×62.3 by batch/report",
    },
    Recorded {
        name: "40 % stolen, behind six spinners",
        truth: "report",
        stolen: 400,
        idle: 0,
        used: &[(SERVICE, 11, 0), ("batch/report", 550, 0), ("shop/cart", 39, 0)],
        lost: BEHIND_REPORT,
        expected: "shop/checkout Service unknown ×90.1 by unknown",
    },
];

impl Recorded {
    /// The counters after this many seconds.
    fn after(&self, start: Instant, second: u64) -> NodeSnapshot {
        let row = |&(name, used, smt): &(&str, u64, u64)| ContainerRow {
            waits: Some(Arc::new(ContainerWaits {
                smt: (smt > 0)
                    .then(|| SmtShares { other_ns: smt * second * MS, ..SmtShares::default() }),
                ..ContainerWaits::default()
            })),
            ..container(name, used * second, 0)
        };
        let by = |&(name, ms): &(&str, u64)| -> (Culprit, u64) { (culprit(name), ms * MS) };
        let lost = LostTime {
            victim: identity(SERVICE),
            by: self.lost.iter().map(by).collect(),
            wakeups: 50,
            late_wakeups: 0,
        };
        let polled_at = start + Duration::from_secs(second);
        let lost = vec![Arc::new(PollLosses { polled_at, victims: vec![lost] })];
        let losses = Losses::default();
        let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses };
        let waits = NodeWaits { lost, trace: Some(trace), ..NodeWaits::default() };
        let cpus = 1 + usize::from(self.used.iter().any(|(_, _, smt)| *smt > 0));
        let mut snapshot = NodeSnapshot {
            read_at: Some(start + Duration::from_secs(second)),
            interval: Duration::from_secs(1),
            containers: self.used.iter().map(row).collect(),
            waits: Arc::new(waits),
            ..NodeSnapshot::default()
        };
        snapshot.node.cpu_info.resize_with(cpus, Default::default);
        snapshot.node.steal_ns = Some(self.stolen * second * MS);
        snapshot.node.idle_ns = Some(self.idle * second * MS);
        snapshot
    }

    /// The verdict about the service after a minute.
    fn verdict(&self) -> Option<Verdict> {
        let (mut reader, mut verdicts, start) =
            (SnapshotReader::default(), Verdicts::default(), Instant::now());
        let seconds = (0..=60).filter_map(|at| reader.read(&self.after(start, at), |_| false));
        let last = seconds.map(|second| verdicts.push(&second)).last().unwrap();
        last.verdicts.into_iter().find(|verdict| verdict.victim.pod == "checkout")
    }

    fn row(&self) -> String {
        let verdict = self.verdict();
        let said = match &verdict {
            None => "nobody",
            Some(verdict) => verdict.culprit().map_or("unknown", |culprit| &culprit.name),
        };
        let score = if said == self.truth { "right" } else { "undecided" };
        format!("| {} | {} | {said} | {score} |", self.name, self.truth)
    }
}

#[test]
fn each_recording_has_its_victim_reason_and_cause() {
    for one in &RECORDED {
        let found = one.verdict().map_or_else(String::new, |verdict| line(&verdict));
        assert_eq!(found, one.expected, "{}", one.name);
    }
}

#[test]
fn stolen_time_is_said_to_be_the_reason_for_an_unknown_cause() {
    let verdict = RECORDED[3].verdict().unwrap();
    let cause = "cause unknown: the hypervisor takes CPU time";
    assert!(verdict.summary.contains(cause), "{}", verdict.summary);
    assert!(verdict.remedy.contains("cpuwarden_node_steal_seconds_total"), "{}", verdict.remedy);
}

#[test]
fn the_page_has_the_recordings() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let head = "| recorded | truth | verdict | |\n|---|---|---|---|\n";
    let rows = RECORDED.iter().fold(head.to_owned(), |mut text, one| {
        writeln!(text, "{}", one.row()).unwrap();
        text
    });
    assert!(page.contains(&rows), "benches/README.md needs this table:\n{rows}");
}
