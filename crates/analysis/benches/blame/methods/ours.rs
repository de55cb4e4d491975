//! cpuwarden: lost time by attribution, and the verdict of this crate.

use std::sync::Arc;

use analysis::verdict::{PodSecond, Second, Verdicts, WorkloadName};
use api::{CauseKind, Verdict};
use snapshot::{Culprit, PodIdentity};

use super::answer::{Answer, Claim};
use super::attribution::{Attribution, Waits, seconds};
use super::scene::{Event, Kind, Ns, SECOND, SYSTEM, Scene};
use super::stream::Stream;

/// Counters of the kernel: CPU time and throttled time of each cgroup.
struct Counters {
    used: Vec<Ns>,
    throttled: Vec<Ns>,
}

struct Ours<'a> {
    attribution: Attribution<'a>,
    names: Vec<Arc<PodIdentity>>,
    counters: Counters,
    verdicts: Verdicts,
    last: Option<Verdict>,
    claimed: Vec<Ns>,
}

/// What the verdict is after the scene, and the time that the victim lost to each pod.
pub(crate) fn answer(scene: &Scene, events: &[Event]) -> Claim {
    let none = vec![0; scene.groups.len()];
    let mut ours = Ours {
        attribution: Attribution::new(Stream::new(scene)),
        names: scene.pods.iter().map(identity).collect(),
        counters: Counters { used: none.clone(), throttled: none },
        verdicts: Verdicts::default(),
        last: None,
        claimed: vec![0; scene.pods.len()],
    };
    let mut begun = 0;
    for event in events {
        while event.at >= begun + SECOND {
            begun += SECOND;
            ours.end_second(begun);
        }
        ours.count(event);
        ours.attribution.apply(event);
    }
    while begun < scene.length {
        begun += SECOND;
        ours.end_second(begun);
    }
    let answer = ours.last.as_ref().map_or(Answer::NoOther, answer_of);
    Claim { answer, seconds: ours.claimed.iter().map(|ns| seconds(*ns)).collect() }
}

fn answer_of(verdict: &Verdict) -> Answer {
    match (verdict.cause, verdict.culprits.first()) {
        (CauseKind::One, Some(culprit)) if culprit.kind == "Container" => Answer::NoOther,
        (CauseKind::One, Some(culprit)) if culprit.name.is_empty() => {
            Answer::One("system".to_owned())
        }
        (CauseKind::One, Some(culprit)) => Answer::One(culprit.name.clone()),
        (CauseKind::Several, _) => Answer::Several,
        (CauseKind::Own, _) => Answer::NoOther,
        _ => Answer::Unknown,
    }
}

fn identity(pod: &super::scene::Pod) -> Arc<PodIdentity> {
    Arc::new(PodIdentity::new("bench".into(), pod.name.into()))
}

impl Ours<'_> {
    /// Counters up to an event: CPU time when a thread leaves, throttled time when it ends.
    fn count(&mut self, event: &Event) {
        let cpu = &self.attribution.stream.cpus[event.cpu];
        match event.kind {
            Kind::Switch { prev: Some(prev), .. } => {
                let (group, since) = (self.attribution.stream.group(prev), cpu.since);
                self.counters.used[group] += event.at - since.max(self.second_of(event.at));
            }
            Kind::Unthrottle { group } => {
                let since = cpu.throttled[group].unwrap_or(event.at);
                let since = since.max(self.second_of(event.at));
                self.counters.throttled[group] += event.at - since;
            }
            _ => {}
        }
    }

    fn second_of(&self, at: Ns) -> Ns {
        at / SECOND * SECOND
    }

    /// Adds what is in progress at the end of a second.
    fn count_open(&mut self, now: Ns) {
        let stream = &self.attribution.stream;
        let begun = now - SECOND;
        for cpu in &stream.cpus {
            if let Some(current) = cpu.current {
                self.counters.used[stream.group(current)] += now - cpu.since.max(begun);
            }
            for (group, since) in cpu.throttled.iter().enumerate() {
                self.counters.throttled[group] += since.map_or(0, |since| now - since.max(begun));
            }
        }
    }

    fn end_second(&mut self, now: Ns) {
        self.count_open(now);
        let waits = self.attribution.take(now);
        let scene = self.attribution.stream.scene;
        for (holder, lost) in &waits[scene.victim].lost {
            if let Some(holder) = holder {
                self.claimed[*holder] += lost;
            }
        }
        let pods = (0..scene.pods.len()).filter(|pod| *pod != SYSTEM);
        let pods: Vec<PodSecond> = pods.map(|pod| self.pod_second(pod, &waits[pod])).collect();
        let second = Second {
            seconds: 1.0,
            stolen: 0.0,
            trace: Some(snapshot::TraceMode::Continuous),
            pods,
        };
        let judged = self.verdicts.push(&second);
        self.counters.used.fill(0);
        self.counters.throttled.fill(0);
        let victim = scene.pods[scene.victim].name;
        let found = judged.verdicts.into_iter().find(|verdict| verdict.victim.pod == victim);
        // A verdict is kept, as in the history of the page.
        self.last = found.or(self.last.take());
    }

    fn pod_second(&self, pod: usize, waits: &Waits) -> PodSecond {
        let scene = self.attribution.stream.scene;
        let of = &scene.pods[pod];
        let groups = || {
            let own = (0..scene.groups.len()).filter(|group| scene.groups[*group].pod == Some(pod));
            own.filter(|group| scene.groups[*group].name != "quota")
        };
        let used = |group: usize| seconds(self.counters.used[group]);
        let throttled = |group: usize| seconds(self.counters.throttled[group]);
        let above = |group| scene.chain(group).skip(1).map(throttled).sum::<f64>();
        let limit = |group: usize| scene.groups[group].quota.map(|quota| quota as f64 / 1e8);
        let lost = waits.lost.iter().map(|(holder, ns)| (self.culprit(*holder), seconds(*ns)));
        let mut second = PodSecond {
            pod: Arc::clone(&self.names[pod]),
            workload: Arc::new(WorkloadName {
                namespace: "bench".into(),
                kind: "Deployment".into(),
                name: of.workload.into(),
            }),
            best_effort: of.best_effort,
            request_cores: Some(of.request),
            limit_cores: groups().map(limit).sum(),
            used: groups().map(used).sum(),
            lost: lost.filter(|(_, lost)| *lost > 0.0).collect(),
            wakeups: waits.wakeups,
            late_wakeups: waits.late_wakeups,
            throttled_own: groups().map(throttled).sum(),
            throttled_ancestor: groups().map(above).sum(),
            has_pod_quota: of.has_quota,
            waited_self: seconds(waits.own),
            containers: groups()
                .map(|group| (scene.groups[group].name.into(), used(group)))
                .collect(),
            ..PodSecond::default()
        };
        second.sleeps = sleeps(&second);
        second
    }

    fn culprit(&self, holder: Option<usize>) -> Culprit {
        match holder {
            None => Culprit::Unattributed,
            Some(SYSTEM) => Culprit::System,
            Some(pod) => Culprit::Pod(Arc::clone(&self.names[pod])),
        }
    }
}

/// The rule of `verdict::Reader`.
fn sleeps(pod: &PodSecond) -> bool {
    let lost: f64 = pod.lost.iter().map(|(_, lost)| lost).sum();
    let wanted = pod.used + lost + pod.throttled_own + pod.throttled_ancestor + pod.waited_self;
    wanted < 0.9 || wanted < 0.05 * pod.wakeups as f64
}
