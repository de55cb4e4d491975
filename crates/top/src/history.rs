//! The last five minutes of each container and of each pair, in compact form.

use std::collections::{HashMap, VecDeque};

use timeline::{ContainerFrame, Frame, Measure, PodName, Points};

/// Number of seconds kept: five minutes.
pub(crate) const KEPT: usize = 300;
/// Number of seconds of a heat strip.
pub(crate) const MINUTE: usize = 60;

/// Namespace, pod and container.
pub(crate) type Key = (String, String, String);

/// Values of one container in one frame, in the order of [`Measure::ALL`]; NaN is absent.
type Values = [f32; Measure::ALL.len()];
const NO_VALUES: Values = [f32::NAN; Measure::ALL.len()];

/// The last five minutes.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// End of each frame, milliseconds since the epoch, oldest first.
    at_ms: VecDeque<u64>,
    /// Length of each frame, seconds.
    seconds: VecDeque<f32>,
    /// Number of the newest frames that have pairs: points of an earlier agent have none.
    with_pairs: usize,
    containers: HashMap<Key, VecDeque<Values>>,
    pairs: HashMap<(PodName, PodName), VecDeque<f32>>,
}

impl History {
    /// Adds the next frame. A frame that is not newer than the last one is ignored.
    pub(crate) fn push(&mut self, frame: &Frame) {
        if self.at_ms.back().is_some_and(|&last| last >= frame.at_ms) {
            return;
        }
        self.advance(frame.at_ms, frame.seconds);
        self.with_pairs = (self.with_pairs + 1).min(KEPT);
        let frames = self.at_ms.len();
        for row in &frame.containers {
            let track =
                self.containers.entry(key(row)).or_insert_with(|| absent(frames, NO_VALUES));
            if let Some(last) = track.back_mut() {
                *last = Measure::ALL.map(|measure| {
                    measure.of(&row.rates, row.limit_cores).map_or(f32::NAN, |value| value as f32)
                });
            }
        }
        for pair in &frame.interference {
            let names = (pair.victim.clone(), pair.aggressor.clone());
            let track = self.pairs.entry(names).or_insert_with(|| absent(frames, f32::NAN));
            if let Some(last) = track.back_mut() {
                *last = pair.wait as f32;
            }
        }
    }

    /// Makes room for a frame, with absent values everywhere, and forgets what has no value left.
    fn advance(&mut self, at_ms: u64, seconds: f64) {
        push(&mut self.at_ms, at_ms);
        push(&mut self.seconds, seconds as f32);
        self.containers.retain(|_, track| {
            push(track, NO_VALUES);
            track.iter().any(|values| values.iter().any(|value| !value.is_nan()))
        });
        self.pairs.retain(|_, track| {
            push(track, f32::NAN);
            track.iter().any(|value| !value.is_nan())
        });
    }

    /// Replaces everything by the series of an agent.
    pub(crate) fn fill(&mut self, points: &Points) {
        *self = Self::default();
        let from = points.at_ms.len().saturating_sub(KEPT);
        self.at_ms.extend(&points.at_ms[from..]);
        let seconds = |at| points.seconds.get(at).copied().unwrap_or(1.0) as f32;
        self.seconds.extend((from..points.at_ms.len()).map(seconds));
        for series in &points.containers {
            let values = |at: usize| {
                Measure::ALL.map(|measure| {
                    let value = series.measures.get(&measure).and_then(|values| *values.get(at)?);
                    value.map_or(f32::NAN, |value| value as f32)
                })
            };
            let key = (series.namespace.clone(), series.pod.clone(), series.container.clone());
            self.containers.insert(key, (from..points.at_ms.len()).map(values).collect());
        }
        for pair in &points.pairs {
            let wait = |at: usize| pair.wait.get(at).copied().flatten().unwrap_or(f64::NAN) as f32;
            let names = (pair.victim.clone(), pair.aggressor.clone());
            self.pairs.insert(names, (from..points.at_ms.len()).map(wait).collect());
            self.with_pairs = self.at_ms.len();
        }
    }

    /// Values of a measure over the last `frames` frames, oldest first; fewer if there are not so
    /// many.
    pub(crate) fn values(&self, key: &Key, measure: Measure, frames: usize) -> Vec<f32> {
        let index = Measure::ALL.iter().position(|one| *one == measure).unwrap_or(0);
        let Some(track) = self.containers.get(key) else { return Vec::new() };
        track.iter().skip(track.len().saturating_sub(frames)).map(|values| values[index]).collect()
    }

    /// Time that a container lost in each of the last `frames` frames, seconds per second.
    pub(crate) fn lost(&self, key: &Key, frames: usize) -> Vec<f32> {
        let Some(track) = self.containers.get(key) else { return Vec::new() };
        track.iter().skip(track.len().saturating_sub(frames)).map(lost).collect()
    }

    /// Time that others waited for a pod in each of the last `frames` frames.
    pub(crate) fn harm(&self, aggressor: &PodName, frames: usize) -> Vec<f32> {
        let from = self.at_ms.len().saturating_sub(frames);
        let mut harm = vec![0.0_f32; self.at_ms.len() - from];
        for (_, track) in self.pairs.iter().filter(|((_, who), _)| who == aggressor) {
            for (sum, wait) in harm.iter_mut().zip(track.iter().skip(from)) {
                *sum += if wait.is_nan() { 0.0 } else { *wait };
            }
        }
        harm
    }

    /// Seconds waited over the kept time, by victim and aggressor.
    pub(crate) fn waited(&self) -> impl Iterator<Item = (&PodName, &PodName, f64)> {
        self.pairs.iter().map(|((victim, aggressor), track)| {
            let seconds = track.iter().zip(&self.seconds).filter(|(wait, _)| !wait.is_nan());
            let waited: f32 = seconds.map(|(wait, seconds)| wait * seconds).sum();
            (victim, aggressor, f64::from(waited))
        })
    }

    /// Time that the pairs cover, seconds.
    pub(crate) fn covered(&self) -> f64 {
        self.seconds.iter().rev().take(self.with_pairs).map(|seconds| f64::from(*seconds)).sum()
    }
}

/// The values of a new series: absent in all frames up to now.
fn absent<T: Copy>(frames: usize, value: T) -> VecDeque<T> {
    std::iter::repeat_n(value, frames).collect()
}

fn push<T>(ring: &mut VecDeque<T>, value: T) {
    if ring.len() == KEPT {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// Same as [`timeline::Rates::lost`], of stored values.
fn lost(values: &Values) -> f32 {
    let row = |measure: Measure| {
        let index = Measure::ALL.iter().position(|one| *one == measure).unwrap_or(0);
        Some(f64::from(values[index])).filter(|value| !value.is_nan())
    };
    if values.iter().all(|value| value.is_nan()) {
        return f32::NAN;
    }
    let rates = timeline::Rates {
        throttled_own: row(Measure::ThrottledOwn),
        throttled_ancestor: row(Measure::ThrottledAncestor),
        neighbor: row(Measure::Neighbor),
        system: row(Measure::System),
        contention: row(Measure::Contention),
        ..timeline::Rates::default()
    };
    rates.lost() as f32
}

/// Key of a container.
pub(crate) fn key(row: &ContainerFrame) -> Key {
    (row.namespace.clone(), row.pod.clone(), row.container.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use timeline::{Interference, PairSeries, Rates, Series};

    use super::*;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "shop".into(), pod: name.into() }
    }

    fn web() -> Key {
        ("shop".into(), "web".into(), "app".into())
    }

    fn frame(second: u64, throttled: f64) -> Frame {
        let rates =
            Rates { throttled_own: Some(throttled), neighbor: Some(0.25), ..Rates::default() };
        let (namespace, pod_name, container) = web();
        let row = ContainerFrame {
            namespace,
            pod: pod_name,
            container,
            rates,
            ..ContainerFrame::default()
        };
        let pair = Interference { victim: pod("web"), aggressor: pod("hog"), wait: 0.25 };
        Frame {
            at_ms: second * 1000,
            seconds: 2.0,
            containers: vec![row],
            interference: vec![pair],
            ..Frame::default()
        }
    }

    #[test]
    fn five_minutes_are_kept_and_a_silent_container_is_forgotten() {
        let mut history = History::default();
        (1..=310).for_each(|second| history.push(&frame(second, 0.5)));
        assert_eq!(history.values(&web(), Measure::ThrottledOwn, KEPT), vec![0.5; KEPT]);
        assert_eq!(history.lost(&web(), MINUTE), vec![0.75; MINUTE]);
        assert!((history.covered() - 600.0).abs() < 0.1);
        let empty = |second: u64| Frame { at_ms: second * 1000, seconds: 1.0, ..Frame::default() };
        history.push(&empty(311));
        assert!(history.values(&web(), Measure::ThrottledOwn, 1)[0].is_nan());
        (312..=611).for_each(|second| history.push(&empty(second)));
        assert!(history.containers.is_empty() && history.pairs.is_empty());
    }

    #[test]
    fn waits_add_up_by_the_length_of_their_frames() {
        let mut history = History::default();
        (1..=4).for_each(|second| history.push(&frame(second, 0.0)));
        history.push(&frame(4, 0.0));
        let waited: Vec<_> = history.waited().collect();
        assert_eq!(waited, [(&pod("web"), &pod("hog"), 2.0)], "a repeated frame counts once");
        assert_eq!(history.harm(&pod("hog"), 2), [0.25, 0.25]);
    }

    #[test]
    fn the_series_of_an_agent_come_before_its_frames() {
        let (namespace, pod, container) = web();
        let measures = BTreeMap::from([(Measure::ThrottledOwn, vec![None, Some(0.5)])]);
        let series = Series { namespace, pod, container, measures, ..Series::default() };
        let mut history = History::default();
        history.fill(&Points {
            at_ms: vec![1000, 2000],
            seconds: vec![1.0; 2],
            containers: vec![series],
            pairs: Vec::new(),
        });
        history.push(&frame(2, 0.9));
        history.push(&frame(3, 0.9));
        let values = history.values(&web(), Measure::ThrottledOwn, KEPT);
        assert!(values[0].is_nan());
        assert_eq!(values[1..], [0.5, 0.9]);
        assert!((history.covered() - 2.0).abs() < 0.1, "points have no pairs");
    }

    #[test]
    fn the_aggressors_before_the_first_frame_come_from_the_agent() {
        let wait = vec![None, Some(0.5)];
        let pair = PairSeries { victim: pod("web"), aggressor: pod("hog"), wait };
        let mut history = History::default();
        history.fill(&Points {
            at_ms: vec![1000, 2000],
            seconds: vec![1.0; 2],
            containers: Vec::new(),
            pairs: vec![pair],
        });
        history.push(&frame(3, 0.9));
        let waited: Vec<_> = history.waited().collect();
        assert_eq!(waited, [(&pod("web"), &pod("hog"), 1.0)], "0.5 s, and 0.25 of two seconds");
        assert!((history.covered() - 4.0).abs() < 0.1);
    }
}
