//! Means of consecutive frames: what a recording keeps of older times, and what a view shows of long
//! ones.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{Bounds, ContainerFrame, Contention, Frame, Interference, Measure, PodName, Rates};

/// Time between two frames from which they are not averaged, milliseconds.
const GAP_MS: u64 = 2500;

/// Replaces consecutive frames by their means, each at least about as long as a span. A mean ends
/// with its last frame, whose verdicts and facts, such as limits, it has.
#[derive(Debug)]
pub struct Thinner {
    /// Seconds of a mean; `None` for all frames.
    every: Option<f64>,
    sum: Option<FrameSum>,
}

impl Thinner {
    /// Means over this time. A longer frame stays as it is.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        Self { every: Some(every.as_secs_f64()), sum: None }
    }

    /// One mean of all frames, also of those after a gap.
    #[must_use]
    pub fn of_all() -> Self {
        Self { every: None, sum: None }
    }

    /// Adds a frame, and returns the means that it ended. A frame after a gap is not averaged with
    /// those before it.
    pub fn add(&mut self, frame: &Frame) -> impl Iterator<Item = Frame> + use<> {
        let is_apart = self.every.and(self.sum.as_ref()).is_some_and(|sum| !sum.continues(frame));
        let before = is_apart.then(|| self.finish()).flatten();
        let sum = self.sum.get_or_insert_default();
        sum.add(frame);
        // Frames are a little longer or shorter than a second.
        let is_complete =
            self.every.is_some_and(|every| sum.seconds + frame.seconds / 2.0 >= every);
        let complete = is_complete.then(|| self.finish()).flatten();
        before.into_iter().chain(complete)
    }

    /// Ends the current mean early; `None` if it has no frame.
    pub fn finish(&mut self) -> Option<Frame> {
        self.sum.take().and_then(FrameSum::mean)
    }
}

/// A value that may be absent, over the time in which it was known.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    sum: f64,
    seconds: f64,
}

impl Known {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    fn mean(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// Bounds of a share, over the time in which they were known.
#[derive(Debug, Clone, Copy, Default)]
struct KnownBounds(Known, Known);

impl KnownBounds {
    fn add(&mut self, bounds: Option<Bounds>, seconds: f64) {
        self.0.add(bounds.map(|bounds| bounds.lower), seconds);
        self.1.add(bounds.map(|bounds| bounds.upper), seconds);
    }

    fn mean(self) -> Option<Bounds> {
        Some(Bounds { lower: self.0.mean()?, upper: self.1.mean()? })
    }
}

#[derive(Debug, Default)]
struct FrameSum {
    seconds: f64,
    /// The last frame, without its containers and pairs.
    last: Frame,
    pressure: Known,
    steal: Known,
    /// Of the node, and of the QoS classes Guaranteed, Burstable and BestEffort.
    contention: [KnownBounds; 4],
    /// Load by CPU.
    cpus: BTreeMap<u32, Known>,
    /// Sorted by their names.
    containers: Vec<ContainerSum>,
    /// Waits in seconds, by victim and aggressor.
    pairs: BTreeMap<PodName, BTreeMap<PodName, f64>>,
}

#[derive(Debug)]
struct ContainerSum {
    row: ContainerFrame,
    /// Seconds times value of each measure; `None` if it was never known.
    sums: [Option<f64>; Measure::ALL.len()],
}

fn name(row: &ContainerFrame) -> (&str, &str, &str, &str) {
    (&row.namespace, &row.pod, &row.container, &row.uid)
}

impl FrameSum {
    /// Whether the frame begins about where the last one ended.
    fn continues(&self, frame: &Frame) -> bool {
        let begin_ms = frame.at_ms.saturating_sub((frame.seconds * 1000.0) as u64);
        frame.at_ms > self.last.at_ms && begin_ms <= self.last.at_ms + GAP_MS
    }

    fn add(&mut self, frame: &Frame) {
        let seconds = frame.seconds;
        self.seconds += seconds;
        let node = &frame.node;
        self.pressure.add(node.pressure, seconds);
        self.steal.add(node.steal, seconds);
        let Contention { node: of_node, guaranteed, burstable, best_effort } = node.contention;
        let scopes = [of_node, guaranteed, burstable, best_effort];
        for (sum, bounds) in self.contention.iter_mut().zip(scopes) {
            sum.add(bounds, seconds);
        }
        for cpu in &node.cpus {
            self.cpus.entry(cpu.cpu).or_default().add(cpu.busy, seconds);
        }
        self.add_containers(&frame.containers, seconds);
        for pair in &frame.interference {
            self.add_pair(pair, seconds);
        }
        self.last = Frame {
            at_ms: frame.at_ms,
            seconds,
            node: node.clone(),
            verdicts: frame.verdicts.clone(),
            ..Frame::default()
        };
    }

    fn add_containers(&mut self, rows: &[ContainerFrame], seconds: f64) {
        let mut at = 0;
        for row in rows {
            // Mostly in the order of the frame before.
            if self.containers.get(at).is_none_or(|sum| name(&sum.row) != name(row)) {
                at = match self.containers.binary_search_by(|sum| name(&sum.row).cmp(&name(row))) {
                    Ok(at) => at,
                    Err(at) => {
                        let sums = Default::default();
                        self.containers.insert(at, ContainerSum { row: row.clone(), sums });
                        at
                    }
                };
            }
            self.containers[at].add(row, seconds);
            at += 1;
        }
    }

    fn add_pair(&mut self, pair: &Interference, seconds: f64) {
        let waited = pair.wait * seconds;
        let of_victim = match self.pairs.get_mut(&pair.victim) {
            Some(of_victim) => of_victim,
            None => self.pairs.entry(pair.victim.clone()).or_default(),
        };
        match of_victim.get_mut(&pair.aggressor) {
            Some(sum) => *sum += waited,
            None => drop(of_victim.insert(pair.aggressor.clone(), waited)),
        }
    }

    fn mean(self) -> Option<Frame> {
        if self.seconds <= 0.0 {
            return None;
        }
        let seconds = self.seconds;
        let Frame { at_ms, mut node, verdicts, .. } = self.last;
        node.pressure = self.pressure.mean();
        node.steal = self.steal.mean();
        let [of_node, guaranteed, burstable, best_effort] = self.contention.map(KnownBounds::mean);
        node.contention = Contention { node: of_node, guaranteed, burstable, best_effort };
        for cpu in &mut node.cpus {
            cpu.busy = self.cpus.get(&cpu.cpu).and_then(|known| known.mean());
        }
        let containers = self.containers.into_iter().map(|sum| sum.mean(seconds)).collect();
        let mut interference = Vec::new();
        for (victim, of_victim) in self.pairs {
            interference.extend(of_victim.into_iter().map(|(aggressor, waited)| Interference {
                victim: victim.clone(),
                aggressor,
                wait: waited / seconds,
            }));
        }
        interference.sort_by(|a, b| b.wait.total_cmp(&a.wait));
        Some(Frame { at_ms, seconds, node, containers, interference, verdicts })
    }
}

impl ContainerSum {
    fn add(&mut self, row: &ContainerFrame, seconds: f64) {
        for (sum, measure) in self.sums.iter_mut().zip(Measure::ALL) {
            if let Some(value) = measure.of(&row.rates, row.limit_cores) {
                *sum.get_or_insert_default() += value * seconds;
            }
        }
        self.row.limit_cores = row.limit_cores;
        self.row.request_cores = row.request_cores;
        if self.row.cpus != row.cpus {
            self.row.cpus.clone_from(&row.cpus);
        }
    }

    /// The row with means over all of the time: a container that ran for half of it with one core
    /// used half a core.
    fn mean(mut self, seconds: f64) -> ContainerFrame {
        let limit_cores = self.row.limit_cores;
        self.row.rates = Rates::default();
        for (sum, measure) in self.sums.into_iter().zip(Measure::ALL) {
            measure.set(&mut self.row, sum.map(|sum| sum / seconds));
        }
        ContainerFrame { limit_cores, ..self.row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "shop".to_owned(), pod: name.to_owned() }
    }

    /// A second with these containers and their use, and `web` waiting for `hog`.
    fn second(at: u64, used: &[(&str, f64)], wait: Option<f64>) -> Frame {
        let row = |(pod, used): &(&str, f64)| ContainerFrame {
            namespace: "shop".to_owned(),
            pod: (*pod).to_owned(),
            limit_cores: Some(at as f64),
            rates: Rates { usage_cores: Some(*used), ..Rates::default() },
            ..ContainerFrame::default()
        };
        let pair = |wait| Interference { victim: pod("web"), aggressor: pod("hog"), wait };
        let mut frame = Frame {
            at_ms: 1000 * at,
            seconds: 1.0,
            containers: used.iter().map(row).collect(),
            interference: wait.map(pair).into_iter().collect(),
            ..Frame::default()
        };
        frame.node.pressure = wait;
        frame
    }

    fn used(frame: &Frame) -> Vec<(&str, f64)> {
        let row = |row: &'_ ContainerFrame| row.rates.usage_cores.unwrap();
        frame.containers.iter().map(|one| (one.pod.as_str(), row(one))).collect()
    }

    #[test]
    fn ten_seconds_become_their_mean() {
        let mut thinner = Thinner::new(Duration::from_secs(10));
        let mut means = Vec::new();
        for at in 1..=25 {
            // `late` runs in the second half.
            let rows = [("late", 1.0), ("web", 0.5)];
            let from = usize::from(at % 10 < 6 && at % 10 > 0);
            let wait = (at % 2 == 0).then_some(0.4);
            means.extend(thinner.add(&second(at, &rows[from..], wait)));
        }
        let ends: Vec<u64> = means.iter().map(|frame| frame.at_ms).collect();
        assert_eq!(ends, [10_000, 20_000]);
        let first = &means[0];
        assert!((first.seconds - 10.0).abs() < 1e-9);
        assert_eq!(used(first), [("late", 0.5), ("web", 0.5)], "CPU time is kept");
        assert_eq!(first.containers[0].limit_cores, Some(10.0), "the last limit");
        assert!((first.interference[0].wait - 0.2).abs() < 1e-9, "{:?}", first.interference);
        assert!((first.node.pressure.unwrap() - 0.4).abs() < 1e-9, "absent is not zero");
        let rest = thinner.finish().unwrap();
        assert!((rest.seconds - 5.0).abs() < 1e-9 && rest.at_ms == 25_000);
        assert_eq!(thinner.finish(), None);
    }

    #[test]
    fn a_gap_and_a_clock_that_was_set_back_end_a_mean() {
        let mut thinner = Thinner::new(Duration::from_secs(10));
        let mut ends = |at| {
            let means: Vec<u64> = thinner
                .add(&second(at, &[("web", 1.0)], None))
                .map(|frame| frame.at_ms / 1000)
                .collect();
            means
        };
        assert!(ends(1).is_empty() && ends(2).is_empty());
        assert_eq!(ends(100), [2]);
        assert_eq!(ends(50), [100]);
        // A longer frame than a mean.
        let long = Frame { at_ms: 200_000, seconds: 30.0, ..Frame::default() };
        let means: Vec<f64> = thinner.add(&long).map(|frame| frame.seconds).collect();
        assert_eq!(means, [1.0, 30.0]);
        let mut all = Thinner::of_all();
        for at in [1, 2, 100] {
            assert_eq!(all.add(&second(at, &[("web", 1.0)], None)).count(), 0);
        }
        let mean = all.finish().unwrap();
        assert!((mean.seconds - 3.0).abs() < 1e-9 && mean.at_ms == 100_000);
    }
}
