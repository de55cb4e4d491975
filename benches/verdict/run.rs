//! One run of a scenario: the phases, and what the agent says meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::{CauseKind, Culprit, PodsAnswer, SlowedReason, Verdict};
use testkit::{OwnedCgroup, RealTree, Running};

use crate::load;
use crate::machine::{Disturbance, Reading};
use crate::model::{Cpus, Limit, Removal, SERVICE, SYSTEM, Scenario};
use crate::recorder::{self, Recorder};
use crate::staged::{Place, Staged, TwoCpus};
use crate::support::{Agent, Kubelet, pod_list};
use crate::truth::{Answer, Latency, Score, Truth, score};

/// Seconds of the phase without suspects.
const ALONE: u64 = 3;
/// Time after a change that is not measured: what has queued up is answered or shed.
const SETTLE: Duration = Duration::from_millis(800);
/// Time after the deletion of a pod until the agent is asked.
const GONE: Duration = Duration::from_secs(3);
/// Maximum time until the agent knows the pods.
const KNOWN: Duration = Duration::from_secs(30);
/// Only whole seconds of a recording count.
const RECORDED_MORE: Duration = Duration::from_millis(200);
/// Cgroup next to the pods.
const AGENT: &str = "agent";
/// Use by others, and stolen time, from which on a run is disturbed.
const DISTURBED: f64 = 0.1;
const DISTURBED_BY_STEAL: f64 = 0.02;

/// The agent on a tree of cgroups. Dropped in this order.
pub(crate) struct Node {
    agent: Agent,
    kubelet: Kubelet,
    filler: Option<Filler>,
    tree: RealTree,
    directory: tempfile::TempDir,
    cpus: TwoCpus,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) alone: Latency,
    pub(crate) together: Latency,
    pub(crate) without: Vec<(Removal, Latency)>,
    pub(crate) truth: Truth,
    pub(crate) said: Said,
    pub(crate) score: Score,
    /// Seconds that the metric charges to a workload that is not a cause.
    pub(crate) wrong_seconds: f64,
    pub(crate) disturbance: Disturbance,
}

/// Reason for which a run ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    Interrupted,
    Disturbed(String),
}

impl Node {
    /// `fill`: whether a thread of the idle class takes what is left of the measured CPU.
    pub(crate) fn start(cpus: TwoCpus, fill: bool) -> Self {
        let tree = RealTree::new();
        tree.kubepods().set_request_milli(2000);
        let kubelet = Kubelet::start(pod_list(&[]));
        let cgroup = tree.above().child(AGENT);
        let own = [
            format!("--kubepods={}", tree.kubepods().path().display()),
            "--sched-trace=on".to_owned(),
            // An unoptimized agent on a busy machine: its cost is not measured here.
            "--sched-trace-budget=1".to_owned(),
            "--cpu-budget=1".to_owned(),
        ];
        let agent = Agent::start_in(&cgroup, &[kubelet.flags(), own.to_vec()].concat());
        // Not on a disk: a write to its journal may take longer than a request.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let filler = fill.then(|| Filler::start(&tree, "filler"));
        let node = Self { agent, kubelet, tree, directory, cpus, filler };
        node.place();
        node
    }

    /// The other CPU is the measured one from now on.
    pub(crate) fn swap_cpus(&mut self) {
        let TwoCpus { measured, other } = self.cpus;
        self.cpus = TwoCpus { measured: other, other: measured };
        self.place();
    }

    /// The filler runs on the measured CPU, the agent on the other one.
    fn place(&self) {
        let agent = self.tree.above().existing_child(AGENT);
        agent.write("cpuset", "cpuset.cpus", &self.cpus.other.to_string());
        if let Some(filler) = &self.filler {
            filler.place(self.cpus.measured);
        }
    }

    pub(crate) fn run(
        &self,
        scenario: &Scenario,
        number: usize,
        stop: &AtomicBool,
    ) -> Result<Outcome, Ended> {
        let namespace = format!("run-{number}");
        let directory = self.directory.path();
        let _ = std::fs::remove_file(directory.join("calls"));
        let place = Place { tree: &self.tree, cpus: self.cpus, directory };
        let mut staged = Staged::new(scenario, number, &place);
        staged.alone();
        let pods = staged.list(&namespace);
        self.kubelet.list(&pods);
        self.wait_until_known(&namespace, pods.len(), stop)?;
        let cpus = self.measured(scenario);
        let is_both = self.filler.is_some() && cpus.len() == 2;
        let _second = is_both.then(|| {
            let filler = Filler::start(&self.tree, "second-filler");
            filler.place(self.cpus.other);
            filler
        });
        let mut phases = Phases { node: self, cpus, stop, disturbance: Disturbance::default() };
        let [together_seconds, removal_seconds] = scenario.seconds;
        let alone = phases.measure(ALONE, || staged.alone())?;
        let together = phases.measure(together_seconds, || staged.together())?;
        let mut said = self.ask(&namespace);
        let mut without = Vec::new();
        for removal in scenario.removals() {
            let latency = phases.measure(removal_seconds, || staged.without(removal))?;
            without.push((removal, latency));
        }
        if let Some(gone) = scenario.gone {
            staged.together();
            staged.delete(gone);
            self.kubelet.list(&staged.list(&namespace));
            sleep(GONE, stop)?;
            said = self.ask(&namespace);
        }
        let truth = Truth::of(alone, together, &without);
        if truth.is_disturbed {
            let controls = without.iter().filter(|(of, _)| matches!(of, Removal::Control(_)));
            let ms: Vec<f64> = controls.map(|(_, latency)| latency.mean_ms).collect();
            let (alone, together) = (alone.mean_ms, together.mean_ms);
            return Err(Ended::Disturbed(format!(
                "mean alone {alone:.1} ms, with all {together:.1} ms, without the control {ms:.1?} ms"
            )));
        }
        let wrong_seconds = self.wrong_seconds(&namespace, &truth);
        let said = Said::of(&said, &namespace);
        let score = said.score(&truth);
        let disturbance = phases.disturbance;
        Ok(Outcome { alone, together, without, truth, said, score, wrong_seconds, disturbance })
    }

    /// Saves the scheduler events of the phase with all. Others on the CPUs are in them.
    pub(crate) fn record(
        &self,
        scenario: &Scenario,
        number: usize,
        to: &Path,
        stop: &AtomicBool,
    ) -> Result<(), Ended> {
        let Some(cause) = recorder::cause(scenario) else { return Ok(()) };
        let place = Place { tree: &self.tree, cpus: self.cpus, directory: self.directory.path() };
        let staged = Staged::new(scenario, number, &place);
        staged.alone();
        sleep(SETTLE, stop)?;
        let recorder = Recorder::start();
        staged.together();
        sleep(Duration::from_secs(scenario.seconds[0]) + RECORDED_MORE, stop)?;
        let file = recorder::file(scenario, cause, &staged.traced, &recorder.end());
        let is_word = |of: char| of.is_alphanumeric() || of == '_';
        let words: Vec<&str> =
            scenario.name.split(|of| !is_word(of)).filter(|of| !of.is_empty()).collect();
        std::fs::write(to.join(words.join("-")).with_extension("stream"), file).unwrap();
        Ok(())
    }

    fn measured(&self, scenario: &Scenario) -> Vec<usize> {
        let TwoCpus { measured, other } = self.cpus;
        match scenario.pods.iter().any(|pod| pod.cpus == Cpus::Both) {
            true => vec![measured, other],
            false => vec![measured],
        }
    }

    fn ask(&self, namespace: &str) -> Vec<(String, Option<Verdict>)> {
        let (status, answer) = self.agent.get("/api/v1/pods");
        assert!(status == 200 || status == 503, "{answer}");
        let pods = serde_json::from_str::<PodsAnswer>(&answer).map_or(Vec::new(), |all| all.pods);
        let of = pods.into_iter().filter(|pod| pod.namespace == namespace);
        of.map(|pod| (pod.pod, pod.verdict)).collect()
    }

    fn wait_until_known(
        &self,
        namespace: &str,
        pods: usize,
        stop: &AtomicBool,
    ) -> Result<(), Ended> {
        let start = Instant::now();
        while self.ask(namespace).len() < pods {
            assert!(start.elapsed() < KNOWN, "the pods are not known:\n{}", self.agent.log());
            sleep(Duration::from_millis(100), stop)?;
        }
        Ok(())
    }

    /// Seconds of the service in the metric that are charged to another one than a cause.
    fn wrong_seconds(&self, namespace: &str, truth: &Truth) -> f64 {
        let page = self.agent.metrics();
        let of_service = page
            .with_prefix("cpuwarden_pod_slowed_by_seconds_total")
            .filter(|one| one.label("namespace") == namespace && one.label("pod") == SERVICE);
        let wrong = of_service.filter(|one| {
            let by = match one.label("aggressor_namespace") {
                "several" => return false,
                "system" => SYSTEM,
                _ => one.label("aggressor_workload"),
            };
            !truth.cures.contains(&by)
        });
        wrong.map(|one| one.value).fold(0.0, |sum, more| sum + more)
    }
}

/// Answer of the agent.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) answer: Answer,
    /// The verdict about the service, in words.
    pub(crate) words: String,
    request_too_low: bool,
    /// Pods other than the service that are called victims with a right to the CPU.
    pub(crate) other_victims: Vec<String>,
}

impl Said {
    fn of(pods: &[(String, Option<Verdict>)], namespace: &str) -> Self {
        let verdict = pods.iter().find(|(pod, _)| pod == SERVICE);
        let verdict = verdict.and_then(|(_, verdict)| verdict.as_ref());
        let short = |text: &str| text.replace(&format!("{namespace}/"), "");
        let others = pods.iter().filter(|(pod, _)| pod != SERVICE);
        let harmed = others.filter_map(|(pod, verdict)| {
            let verdict = verdict.as_ref().filter(|verdict| verdict.is_harm())?;
            Some(format!("{pod} {}", short(&verdict.summary)))
        });
        let words = |of: &Verdict| format!("{:?} {}", of.class, short(&of.summary));
        Self {
            answer: verdict.map_or(Answer::Silent, answer),
            words: verdict.map_or_else(String::new, words),
            request_too_low: verdict.is_some_and(|verdict| verdict.request_too_low),
            other_victims: harmed.collect(),
        }
    }

    fn score(&self, truth: &Truth) -> Score {
        let score = score(truth, &self.answer);
        // The first remedy for a request that is too low is a higher one.
        match truth.request_cures == Some(true) && !self.request_too_low {
            true => score.max(Score::Undecided),
            false => score,
        }
    }
}

/// The phases of one run.
struct Phases<'a> {
    node: &'a Node,
    cpus: Vec<usize>,
    stop: &'a AtomicBool,
    disturbance: Disturbance,
}

impl Phases<'_> {
    /// The latencies in a phase of this many seconds, which begins with the change.
    fn measure(&mut self, seconds: u64, change: impl FnOnce()) -> Result<Latency, Ended> {
        let take = || Reading::take(self.node.tree.above(), &self.cpus);
        change();
        sleep(SETTLE, self.stop)?;
        let (from, before) = (load::now(), take());
        sleep(Duration::from_secs(seconds) - SETTLE, self.stop)?;
        let (to, now) = (load::now(), take().since(&before));
        if now.others > DISTURBED || now.steal > DISTURBED_BY_STEAL {
            return Err(Ended::Disturbed(now.text()));
        }
        self.disturbance.others = self.disturbance.others.max(now.others);
        self.disturbance.steal = self.disturbance.steal.max(now.steal);
        // The last requests may not be answered yet.
        Ok(load::latency(self.node.directory.path(), from, to - (to - from) / 20))
    }
}

fn answer(verdict: &Verdict) -> Answer {
    let name = |culprit: &Culprit| match culprit.is_system() {
        true => SYSTEM.to_owned(),
        false => culprit.name.clone(),
    };
    let one = verdict.culprit().map(name);
    match (verdict.reason, verdict.cause) {
        (SlowedReason::OwnLimit, _) => Answer::Limit(Limit::Own, None),
        (SlowedReason::AncestorLimit, _) => Answer::Limit(Limit::Above, one),
        (SlowedReason::Own, _) => Answer::OwnThreads,
        (_, CauseKind::One) => one.map_or(Answer::Unknown, Answer::One),
        (_, CauseKind::Several) => Answer::Several(verdict.culprits.iter().map(name).collect()),
        (_, CauseKind::Own | CauseKind::Unknown) => Answer::Unknown,
    }
}

/// A thread that runs only where nothing else wants to. Dropped in this order.
struct Filler {
    _running: Running,
    cgroup: OwnedCgroup,
}

impl Filler {
    fn start(tree: &RealTree, name: &str) -> Self {
        let cgroup = OwnedCgroup::create(tree.above().path().join(name));
        cgroup.write("cpu", "cpu.idle", "1");
        let mut shell = cgroup.command("sh");
        shell.args(["-c", "echo filling; while :; do :; done"]);
        Self { _running: Running::start(shell, |line| line == "filling").0, cgroup }
    }

    fn place(&self, cpu: usize) {
        self.cgroup.write("cpuset", "cpuset.cpus", &cpu.to_string());
    }
}

fn sleep(time: Duration, stop: &AtomicBool) -> Result<(), Ended> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if stop.load(Ordering::Relaxed) {
            return Err(Ended::Interrupted);
        }
        std::thread::sleep(
            Duration::from_millis(50).min(end.saturating_duration_since(Instant::now())),
        );
    }
    Ok(())
}
