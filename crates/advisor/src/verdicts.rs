//! The verdicts, second by second: for the views, the counters, the advice and the Events.

use std::sync::Arc;
use std::time::Duration;

use analysis::verdict::{Judged, PodSecond, Slowed, SnapshotReader, Verdicts, WorkloadName};
use api::{CauseKind, Culprit, Verdict};
use foldhash::{HashMap, HashSet};
use metrics::{SlowedBecause, SlowedBy, SlowedRow};
use snapshot::NodeSnapshot;

/// Time between two Events about the same victim and the same cause.
const AGAIN_AFTER: f64 = 600.0;
/// Time for which a pod must have been slowed before its owner gets an Event.
const LASTING: f64 = 60.0;

/// Judges the snapshots of a node.
#[derive(Debug, Default)]
pub struct Judge {
    reader: SnapshotReader,
    verdicts: Verdicts,
    /// Counters by the pod's labels.
    counters: HashMap<Box<str>, SlowedRow>,
    /// Sum of the seconds.
    clock: f64,
    /// Time of the last Event about each victim and cause.
    said: HashMap<(String, CauseKind, String), f64>,
}

/// Result of one second.
#[derive(Debug, Clone, Default)]
pub struct Judgement {
    /// The verdicts, in the order of the victims.
    pub verdicts: Vec<Verdict>,
    /// Counters of all pods that were slowed and still exist, sorted by namespace and name.
    pub rows: Vec<SlowedRow>,
    /// Verdicts that the owners of the victims should get as Events.
    pub due: Vec<Verdict>,
}

impl Judge {
    /// Reads a snapshot. Returns the judgement about the second that it ends, if any.
    /// `is_restricted` takes the UID of a pod.
    pub fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        is_restricted: impl Fn(&str) -> bool,
    ) -> Option<Judgement> {
        let second = self.reader.read(snapshot, is_restricted)?;
        self.clock += second.seconds;
        let Judged { verdicts, slowed } = self.verdicts.push(&second);
        let victims = victims(&verdicts, &second.pods);
        slowed.into_iter().for_each(|slowed| self.count(slowed, &victims));
        // The series of a deleted pod end.
        if !self.counters.is_empty() {
            let pods: HashSet<&str> = second.pods.iter().map(|pod| &*pod.pod.labels).collect();
            self.counters.retain(|labels, _| pods.contains(&**labels));
        }
        let mut rows: Vec<SlowedRow> = self.counters.values().cloned().collect();
        rows.sort_by(|a, b| (&a.pod.namespace, &a.pod.pod).cmp(&(&b.pod.namespace, &b.pod.pod)));
        let due = self.due(&verdicts);
        self.reader.reuse(second);
        Some(Judgement { verdicts, rows, due })
    }

    fn count(&mut self, slowed: Slowed, victims: &HashSet<&WorkloadName>) {
        let Slowed { pod, reason, seconds, lost, cause, culprit } = slowed;
        let new = || SlowedRow { pod: Arc::clone(&pod), reasons: Vec::new(), by: Vec::new() };
        let row = self.counters.entry(pod.labels.clone()).or_insert_with(new);
        let because = entry(
            &mut row.reasons,
            |one| one.reason == reason.as_str(),
            || SlowedBecause { reason: reason.as_str(), ..SlowedBecause::default() },
        );
        because.slowed_ns += nanoseconds(seconds);
        because.lost_ns += nanoseconds(lost);
        if !reason.is_of_others() || cause == CauseKind::Unknown {
            return;
        }
        let (namespace, workload) = culprit
            .as_ref()
            .map_or(("several", ""), |culprit| (&*culprit.namespace, &*culprit.name));
        // A victim is not to blame, whatever it uses.
        let is_victim = |culprit: &Culprit| victims.iter().any(|victim| is_one(culprit, victim));
        let beyond_request =
            culprit.as_ref().is_some_and(|culprit| culprit.beyond_request && !is_victim(culprit));
        let is_it = |one: &SlowedBy| {
            *one.namespace == *namespace
                && *one.workload == *workload
                && one.beyond_request == beyond_request
        };
        let by = entry(&mut row.by, is_it, || SlowedBy {
            namespace: namespace.into(),
            workload: workload.into(),
            beyond_request,
            slowed_ns: 0,
        });
        by.slowed_ns += nanoseconds(seconds);
    }

    fn due(&mut self, verdicts: &[Verdict]) -> Vec<Verdict> {
        let clock = self.clock;
        self.said.retain(|_, said| clock - *said < AGAIN_AFTER);
        let is_due = |verdict: &&Verdict| {
            let victim = format!("{}/{}", verdict.victim.namespace, verdict.victim.pod);
            // Of several causes the first three change places.
            let single = verdict.cause == CauseKind::One;
            let cause = verdict.culprits.first().filter(|_| single).map(Culprit::name);
            let about = (victim, verdict.cause, cause.unwrap_or_default());
            let lasts = verdict.since_seconds >= LASTING && verdict.is_harm();
            let is_known = verdict.cause != CauseKind::Unknown;
            lasts && is_known && !self.said.contains_key(&about) && {
                self.said.insert(about, clock);
                true
            }
        };
        verdicts.iter().filter(is_due).cloned().collect()
    }
}

/// The workloads of the pods that others slow.
fn victims<'a>(verdicts: &[Verdict], pods: &'a [PodSecond]) -> HashSet<&'a WorkloadName> {
    let harmed = verdicts.iter().filter(|verdict| verdict.is_harm());
    let harmed: HashSet<(&str, &str)> =
        harmed.map(|verdict| (&*verdict.victim.namespace, &*verdict.victim.pod)).collect();
    if harmed.is_empty() {
        return HashSet::default();
    }
    let is_harmed = |pod: &&PodSecond| harmed.contains(&(&*pod.pod.namespace, &*pod.pod.pod));
    pods.iter().filter(is_harmed).map(|pod| &*pod.workload).collect()
}

fn is_one(culprit: &Culprit, workload: &WorkloadName) -> bool {
    let WorkloadName { namespace, kind, name } = workload;
    (&culprit.namespace, &culprit.kind, &culprit.name) == (namespace, kind, name)
}

/// The element that `is_it` accepts; a new one if there is none.
fn entry<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

/// Seconds as nanoseconds.
fn nanoseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_nanos())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use snapshot::{
        ContainerIdentity, ContainerRow, Culprit as Runner, Losses, LostTime, NodeWaits,
        PodIdentity, PollLosses, TraceMode, TraceRow,
    };

    use super::*;

    fn container(namespace: &str, pod: &str, used_ns: u64) -> ContainerRow {
        let identity = ContainerIdentity {
            labels: format!("{namespace}/{pod}").into(),
            namespace: namespace.into(),
            pod: pod.into(),
            ..ContainerIdentity::default()
        };
        let (identity, usage_ns) = (Arc::new(identity), Some(used_ns));
        let spec = Some(snapshot::SpecRow {
            kind: kubepods::model::ContainerKind::App,
            pod_requests_cpu: false,
            pod_limits_memory: false,
            ..snapshot::SpecRow::default()
        });
        ContainerRow { identity, usage_ns, spec, live: true, ..ContainerRow::default() }
    }

    fn pod(namespace: &str, name: &str) -> Arc<PodIdentity> {
        Arc::new(PodIdentity::new(namespace.into(), name.into()))
    }

    /// `shop/web` loses 0.3 cores to a pod without a request.
    fn node(start: Instant, second: u64) -> NodeSnapshot {
        let report = Runner::Pod(pod("batch", "report"));
        slowed_by(start, second, vec![(report, 300_000_000)])
    }

    fn slowed_by(start: Instant, second: u64, by: Vec<(Runner, u64)>) -> NodeSnapshot {
        let ms = |ms: u64| second * ms * 1_000_000;
        let victim = pod("shop", "web");
        let victims = vec![LostTime { victim, by, wakeups: 50, late_wakeups: 0 }];
        let polled_at = start + Duration::from_secs(second);
        let lost = vec![Arc::new(PollLosses { polled_at, victims })];
        let losses = Losses::default();
        let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses };
        let waits = NodeWaits { lost, trace: Some(trace), ..NodeWaits::default() };
        NodeSnapshot {
            read_at: Some(start + Duration::from_secs(second)),
            interval: Duration::from_secs(1),
            containers: vec![
                container("batch", "report", ms(1700)),
                container("shop", "web", ms(150)),
            ],
            waits: Arc::new(waits),
            ..NodeSnapshot::default()
        }
    }

    #[test]
    fn a_cause_that_is_slowed_itself_is_not_beyond_its_request() {
        let (mut judge, start) = (Judge::default(), Instant::now());
        let mut last = Judgement::default();
        for second in 0..=60 {
            let mut slowed = node(start, second);
            slowed.containers[0].usage_ns = Some(second * 300_000_000);
            let by = vec![(Runner::System, 200_000_000)];
            let (victim, wakeups, late_wakeups) = (pod("batch", "report"), 0, 0);
            let polled = Arc::make_mut(&mut Arc::make_mut(&mut slowed.waits).lost[0]);
            polled.victims.push(LostTime { victim, by, wakeups, late_wakeups });
            last = judge.read(&slowed, |_| false).unwrap_or(last);
        }
        let web = last.rows.iter().find(|row| row.pod.pod == "web").unwrap();
        let [by] = &web.by[..] else { panic!("{web:?}") };
        assert_eq!((&*by.workload, by.beyond_request), ("report", false));
        let report = last.verdicts.iter().find(|verdict| verdict.victim.pod == "report").unwrap();
        assert!(report.is_harm() && report.used_cores > 0.2, "{report:?}");
    }

    #[test]
    fn another_cause_is_said_though_the_victim_was_named_before() {
        let (mut judge, start) = (Judge::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..=300 {
            let by = match second {
                0..=100 => Runner::System,
                _ => Runner::Pod(pod("batch", "report")),
            };
            let by = vec![(by, 300_000_000)];
            let Some(judged) = judge.read(&slowed_by(start, second, by), |_| false) else {
                continue;
            };
            said.extend(judged.due.iter().map(|verdict| verdict.culprits[0].name()));
        }
        assert_eq!(said, ["the host (system)", "batch/report"]);
    }

    #[test]
    fn verdicts_are_counted_by_reason_and_cause_and_said_once_in_ten_minutes() {
        let (mut judge, start) = (Judge::default(), Instant::now());
        let mut said = Vec::new();
        let mut last = Judgement::default();
        for second in 0..=700 {
            let Some(judged) = judge.read(&node(start, second), |_| false) else { continue };
            said.extend(judged.due.iter().map(|verdict| (second, verdict.victim.pod.clone())));
            last = judged;
        }
        assert_eq!(said, [(60, "web".to_owned()), (660, "web".to_owned())]);
        let [row] = &last.rows[..] else { panic!("{:?}", last.rows) };
        let [because] = row.reasons[..] else { panic!("{row:?}") };
        assert_eq!((because.reason, because.slowed_ns), ("neighbor", 700_000_000_000));
        assert_eq!((because.lost_ns as f64 / 1e9).round(), 210.0);
        let [by] = &row.by[..] else { panic!("{row:?}") };
        assert_eq!((&*by.namespace, &*by.workload), ("batch", "report"));
        assert!(by.beyond_request && by.slowed_ns == because.slowed_ns);
        // The series of a deleted pod end.
        let mut gone = node(start, 701);
        gone.containers.truncate(1);
        let judged = judge.read(&gone, |_| false).unwrap();
        assert!(judged.rows.is_empty() && judged.verdicts.is_empty());
    }
}
