//! The last five minutes of each container and of each pair, in compact form.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use api::{ContainerFrame, Frame, Measure, PodName, Points};

/// Number of seconds kept: five minutes.
pub(crate) const KEPT: usize = 300;
/// Length of the history that the view shows.
pub const SHOWN: Duration = Duration::from_secs(KEPT as u64);
/// Number of seconds of a heat strip.
pub(crate) const MINUTE: usize = 60;
/// More than the error of a length in single precision, seconds.
const ROUNDING: f64 = 0.01;
/// Number of seconds whose mean orders the rows, as on the page: by a single one they would jump.
const RECENT: usize = 5;

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
    /// Adds the next frame. A frame that is known is ignored; one of an earlier time is not known
    /// if the clock was set back.
    pub(crate) fn push(&mut self, frame: &Frame) {
        if self.at_ms.contains(&frame.at_ms) {
            return;
        }
        self.append(frame.at_ms, frame.seconds);
        for row in &frame.containers {
            let values = Measure::ALL.map(|measure| {
                measure.of(&row.rates, row.limit_cores).map_or(f32::NAN, |value| value as f32)
            });
            self.set_container(key(row), values);
        }
        for pair in &frame.interference {
            self.set_pair((pair.victim.clone(), pair.aggressor.clone()), pair.wait as f32);
        }
        self.forget();
    }

    /// Adds those frames of an agent's series that came after the last known one.
    pub(crate) fn fill(&mut self, points: &Points) {
        let known = points.at_ms.iter().rposition(|at_ms| self.at_ms.contains(at_ms));
        let count = points.at_ms.len();
        let from = known.map_or(0, |known| known + 1).max(count.saturating_sub(KEPT));
        for at in from..count {
            self.append(points.at_ms[at], points.seconds.get(at).copied().unwrap_or(1.0));
            self.set_points(points, at);
        }
        if points.pairs.is_empty() && from < count {
            self.with_pairs = 0;
        }
        self.forget();
    }

    /// Sets the values of the latest frame to the points at this position.
    fn set_points(&mut self, points: &Points, at: usize) {
        for series in &points.containers {
            let values = Measure::ALL.map(|measure| {
                let value = series.measures.get(&measure).and_then(|values| *values.get(at)?);
                value.map_or(f32::NAN, |value| value as f32)
            });
            let key = (series.namespace.clone(), series.pod.clone(), series.container.clone());
            self.set_container(key, values);
        }
        for pair in &points.pairs {
            if let Some(wait) = pair.wait.get(at).copied().flatten() {
                self.set_pair((pair.victim.clone(), pair.aggressor.clone()), wait as f32);
            }
        }
    }

    /// Makes room for a frame, with absent values everywhere, and for the seconds that are missing
    /// before it.
    fn append(&mut self, at_ms: u64, seconds: f64) {
        let last = self.at_ms.back().copied();
        let length_ms = 1000.0 * seconds.max(1.0);
        let passed_ms = last.map_or(0.0, |last| at_ms.saturating_sub(last) as f64);
        // None for a frame that begins where the last one ended. At most as many as are kept.
        let missing = ((passed_ms / length_ms).round() as usize).saturating_sub(1).min(KEPT);
        for before in (0..missing).rev() {
            self.append_one(at_ms - ((before + 1) as f64 * length_ms) as u64, 0.0);
        }
        self.append_one(at_ms, seconds as f32);
    }

    fn append_one(&mut self, at_ms: u64, seconds: f32) {
        push(&mut self.at_ms, at_ms);
        push(&mut self.seconds, seconds);
        self.with_pairs = (self.with_pairs + 1).min(KEPT);
        self.containers.values_mut().for_each(|track| push(track, NO_VALUES));
        self.pairs.values_mut().for_each(|track| push(track, f32::NAN));
    }

    /// Sets a container's values in the latest frame.
    fn set_container(&mut self, key: Key, values: Values) {
        let frames = self.at_ms.len();
        let track = self.containers.entry(key).or_insert_with(|| absent(frames, NO_VALUES));
        if let Some(last) = track.back_mut() {
            *last = values;
        }
    }

    /// Sets a pair's wait in the latest frame.
    fn set_pair(&mut self, names: (PodName, PodName), wait: f32) {
        let frames = self.at_ms.len();
        let track = self.pairs.entry(names).or_insert_with(|| absent(frames, f32::NAN));
        if let Some(last) = track.back_mut() {
            *last = wait;
        }
    }

    /// Removes series that have no value left.
    fn forget(&mut self) {
        let is_known = |values: &Values| values.iter().any(|value| !value.is_nan());
        self.containers.retain(|_, track| track.iter().any(is_known));
        self.pairs.retain(|_, track| track.iter().any(|value| !value.is_nan()));
    }

    /// The containers that have a value.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.containers.keys()
    }

    /// Values of a measure over the last `frames` frames, oldest first; fewer if fewer are kept.
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

    /// Time that a container lost in each second of the last minute, oldest first.
    pub(crate) fn lost_minute(&self, key: &Key) -> [f32; MINUTE] {
        self.minute(&self.lost(key, KEPT))
    }

    /// Time that others waited for a pod in each second of the last minute, oldest first.
    pub(crate) fn harm_minute(&self, aggressor: &PodName) -> [f32; MINUTE] {
        self.minute(&self.harm(aggressor, KEPT))
    }

    /// The values of the latest frames, oldest first, by the seconds of the last minute. A longer
    /// frame has all of its seconds, and one that is missing has none.
    fn minute(&self, values: &[f32]) -> [f32; MINUTE] {
        let mut minute = [f32::NAN; MINUTE];
        let Some(latest) = self.at_ms.back() else { return minute };
        let ends = self.at_ms.iter().zip(&self.seconds).rev();
        for (value, (at_ms, seconds)) in values.iter().rev().zip(ends) {
            let ago = latest.saturating_sub(*at_ms) as f64 / 1000.0;
            if ago >= MINUTE as f64 || at_ms > latest {
                break;
            }
            // Rounded at least as the end of the frame before, so that no second is left out.
            let second = |ago: f64| MINUTE.saturating_sub(ago.round() as usize);
            let end = second(ago).max(1);
            let begin = second(ago + f64::from(*seconds) + ROUNDING).min(end - 1);
            // A missing frame has no value.
            for of_second in &mut minute[begin..end] {
                *of_second = of_second.max(*value);
            }
        }
        minute
    }

    /// Time that a container lost, the mean of the last seconds that are known; 0 without any.
    pub(crate) fn recently_lost(&self, key: &Key) -> f64 {
        let known = self.lost(key, RECENT).into_iter().filter(|lost| !lost.is_nan());
        let (sum, count) = known.fold((0.0, 0), |(sum, count), lost| (sum + lost, count + 1));
        f64::from(sum) / f64::from(count.max(1))
    }

    /// Time that others waited for each pod, the mean of the last seconds.
    pub(crate) fn recent_harm(&self) -> HashMap<&PodName, f64> {
        let mut harm = HashMap::new();
        for ((_, aggressor), track) in &self.pairs {
            let waits = track.iter().rev().take(RECENT).filter(|wait| !wait.is_nan());
            *harm.entry(aggressor).or_insert(0.0) += f64::from(waits.sum::<f32>()) / RECENT as f64;
        }
        harm
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

/// Same as [`api::Rates::lost`], of stored values.
fn lost(values: &Values) -> f32 {
    let row = |measure: Measure| {
        let index = Measure::ALL.iter().position(|one| *one == measure).unwrap_or(0);
        Some(f64::from(values[index])).filter(|value| !value.is_nan())
    };
    if values.iter().all(|value| value.is_nan()) {
        return f32::NAN;
    }
    let rates = api::Rates {
        throttled_own: row(Measure::ThrottledOwn),
        throttled_ancestor: row(Measure::ThrottledAncestor),
        neighbor: row(Measure::Neighbor),
        system: row(Measure::System),
        contention: row(Measure::Contention),
        ..api::Rates::default()
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

    use api::{Interference, PairSeries, Rates, Series};

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
    fn the_last_minute_has_sixty_seconds_whatever_the_length_of_the_frames() {
        let known = |minute: [f32; MINUTE]| minute.iter().filter(|value| !value.is_nan()).count();
        let mut history = History::default();
        (1..=20).for_each(|at| history.push(&Frame { seconds: 1.0, ..frame(at, 0.5) }));
        let minute = history.lost_minute(&web());
        assert_eq!((known(minute), minute[59], minute[40]), (20, 0.75, 0.75));
        assert!(minute[39].is_nan(), "nothing was known yet");
        // Means of ten seconds, as in a recording.
        let mut history = History::default();
        for number in 1..=30 {
            let throttled = if number == 30 { 1.0 } else { 0.0 };
            history.push(&Frame { seconds: 10.0, ..frame(10 * number, throttled) });
        }
        let minute = history.lost_minute(&web());
        assert_eq!((known(minute), minute[49], minute[50]), (60, 0.25, 1.25));
        // Seconds that are a little too long leave no gap.
        let mut history = History::default();
        for number in 1..=100_u64 {
            history.push(&Frame { at_ms: 1030 * number, seconds: 1.03, ..frame(number, 0.5) });
        }
        assert_eq!(known(history.lost_minute(&web())), 60);
        assert_eq!(known(history.harm_minute(&pod("hog"))), 60);
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

    /// Usage of `web` in the seconds, from the agent's history.
    fn points(seconds: &[(u64, f64)]) -> Points {
        let (namespace, pod, container) = web();
        let values = seconds.iter().map(|(_, value)| Some(*value)).collect();
        let measures = BTreeMap::from([(Measure::ThrottledOwn, values)]);
        Points {
            at_ms: seconds.iter().map(|(second, _)| second * 1000).collect(),
            seconds: vec![1.0; seconds.len()],
            containers: vec![Series { namespace, pod, container, measures, ..Series::default() }],
            pairs: Vec::new(),
        }
    }

    fn second(second: u64, throttled: f64) -> Frame {
        Frame { seconds: 1.0, ..frame(second, throttled) }
    }

    /// Throttled time of `web`; -1 where it is absent.
    fn throttled(history: &History) -> Vec<f32> {
        let values = history.values(&web(), Measure::ThrottledOwn, KEPT);
        values.into_iter().map(|value| if value.is_nan() { -1.0 } else { value }).collect()
    }

    #[test]
    fn missing_seconds_are_absent_and_not_left_out() {
        let mut history = History::default();
        [1, 2, 6].iter().for_each(|at| history.push(&second(*at, 0.5)));
        assert_eq!(throttled(&history), [0.5, 0.5, -1.0, -1.0, -1.0, 0.5]);
        assert!((history.covered() - 3.0).abs() < 0.1, "{}", history.covered());
        // A late frame is longer: nothing is missing.
        history.push(&Frame { at_ms: 9100, seconds: 3.1, ..second(9, 0.25) });
        assert_eq!(throttled(&history)[5..], [0.5, 0.25]);
        // Longer than what is kept.
        history.push(&second(100_000, 0.75));
        assert_eq!(throttled(&history).iter().filter(|value| **value >= 0.0).count(), 1);
    }

    #[test]
    fn a_later_history_adds_the_seconds_of_an_interruption() {
        let mut history = History::default();
        history.fill(&points(&[(1, 0.5), (2, 0.5)]));
        history.push(&second(3, 0.75));
        history.fill(&points(&[(2, 0.0), (3, 0.0), (4, 0.25), (5, 0.25)]));
        history.push(&second(5, 0.0));
        history.push(&second(6, 1.0));
        assert_eq!(throttled(&history), [0.5, 0.5, 0.75, 0.25, 0.25, 1.0]);
        // The agent was started again, and knows less.
        history.fill(&points(&[(9, 0.125), (10, 0.125)]));
        assert_eq!(throttled(&history)[4..], [0.25, 1.0, -1.0, -1.0, 0.125, 0.125]);
    }

    #[test]
    fn frames_count_although_the_clock_was_set_back() {
        let mut history = History::default();
        [1000, 1001, 997, 998, 998, 999].iter().for_each(|at| history.push(&second(*at, 0.5)));
        assert_eq!(throttled(&history), [0.5; 5], "only the repeated one is left out");
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
