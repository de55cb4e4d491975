//! Reads frames and series from the history.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use api::{
    ContainerFrame, Frame, GarbageCollection, Interference, InterferenceTotal, Measure, NodeFrame,
    PairSeries, Points, Rates, Series,
};
use snapshot::{ContainerGc, ContainerIdentity};

use crate::history::position;
use crate::state::{Container, TimelineState};

/// Part of the history.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// Measures of the containers.
    pub measures: &'a [Measure],
    /// Maximum number of aggressors of each pod.
    pub aggressors: usize,
    /// The last time.
    pub span: Duration,
}

/// Slots of the containers of each selected pod, by its namespace and name.
type Victims<'a> = BTreeMap<(&'a str, &'a str), Vec<usize>>;

impl TimelineState {
    /// The frame with this number; `None` if it is no longer in the history.
    pub(crate) fn frame(&self, number: u64) -> Option<Frame> {
        if number == self.frame {
            return self.latest_frame();
        }
        (number >= self.oldest()).then(|| self.past_frame(number))
    }

    pub(crate) fn latest_frame(&self) -> Option<Frame> {
        if self.frame < 2 {
            return None;
        }
        let live =
            self.containers.series().filter(|&(at, _)| self.containers.last(at) == self.frame);
        let rows = live.map(|(_, container)| container.frame(container.rates)).collect();
        let mut frame = self.frame_of(self.frame, rows);
        frame.node.cpus.clone_from(&self.cpus);
        Some(frame)
    }

    fn past_frame(&self, number: u64) -> Frame {
        let mut rows = Vec::new();
        for (at, container) in self.containers.series() {
            let value = |measure| self.containers.value(at, measure, number);
            let values: [_; Measure::ALL.len()] = std::array::from_fn(value);
            // Most are containers that have ended, on a node with much churn.
            if values.iter().all(Option::is_none) {
                continue;
            }
            let mut row = container.frame(Rates::default());
            row.limit_cores = None;
            for (of, value) in Measure::ALL.into_iter().zip(values) {
                of.set(&mut row, value);
            }
            rows.push(row);
        }
        self.frame_of(number, rows)
    }

    /// The frame with these rows.
    fn frame_of(&self, number: u64, mut containers: Vec<ContainerFrame>) -> Frame {
        let position = position(number);
        sort(&mut containers);
        Frame {
            at_ms: self.at_ms[position],
            seconds: self.seconds[position],
            node: self.past_node(number),
            containers,
            interference: self.interference(number),
            verdicts: (*self.nodes[position].verdicts).clone(),
        }
    }

    pub(crate) fn interference(&self, number: u64) -> Vec<Interference> {
        let pairs = self.pairs.series().filter_map(|(at, pair)| {
            let wait = self.pairs.value(at, 0, number).filter(|wait| *wait > 0.0)?;
            let (victim, aggressor) = (pair.victim(), pair.aggressor());
            Some(Interference { victim, aggressor, wait })
        });
        let mut pairs: Vec<Interference> = pairs.collect();
        pairs.sort_by(|a, b| b.wait.total_cmp(&a.wait).then_with(|| a.victim.cmp(&b.victim)));
        pairs
    }

    pub(crate) fn points(
        &self,
        select: impl Fn(&ContainerIdentity) -> bool,
        selection: &Selection<'_>,
    ) -> Points {
        let numbers = self.numbers(selection.span);
        let selected = self.containers.series().filter(|(_, row)| select(&row.identity));
        let mut containers: Vec<Series> = Vec::new();
        let mut victims: Victims<'_> = BTreeMap::new();
        for (at, container) in selected {
            let mut series = series(&container.identity);
            for (index, measure) in Measure::ALL.into_iter().enumerate() {
                if !selection.measures.contains(&measure) {
                    continue;
                }
                let value = |number| self.containers.value(at, index, number);
                let values: Vec<Option<f64>> = numbers.clone().map(value).collect();
                if values.iter().any(Option::is_some) {
                    series.measures.insert(measure, values);
                }
            }
            let ContainerIdentity { namespace, pod, .. } = &*container.identity;
            victims.entry((namespace, pod)).or_default().push(at);
            containers.push(series);
        }
        containers.sort_by(|a, b| {
            (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
        });
        Points {
            at_ms: numbers.clone().map(|number| self.at_ms[position(number)]).collect(),
            seconds: numbers.clone().map(|number| self.seconds[position(number)]).collect(),
            containers,
            pairs: self.pairs(&victims, &numbers, selection.aggressors),
        }
    }

    /// The waits of each victim by aggressor: the longest `most`.
    fn pairs(
        &self,
        victims: &Victims<'_>,
        numbers: &RangeInclusive<u64>,
        most: usize,
    ) -> Vec<PairSeries> {
        let mut by_victim: BTreeMap<(&str, &str), Vec<(f64, PairSeries)>> = BTreeMap::new();
        for (at, pair) in self.pairs.series().filter(|_| most > 0) {
            let victim = (&*pair.victim.namespace, &*pair.victim.pod);
            let Some(containers) = victims.get(&victim) else { continue };
            // A pair without a value has not waited, if waits were traced.
            let wait = |number| {
                let wait = self.pairs.value(at, 0, number);
                wait.or_else(|| self.is_traced(containers, number).then_some(0.0))
            };
            let wait: Vec<Option<f64>> = numbers.clone().map(wait).collect();
            let seconds = numbers.clone().map(|number| self.seconds[position(number)]);
            let total: f64 = wait.iter().zip(seconds).filter_map(|(w, s)| Some((*w)? * s)).sum();
            if total > 0.0 {
                let (name, aggressor) = (pair.victim(), pair.aggressor());
                let series = PairSeries { victim: name, aggressor, wait };
                by_victim.entry(victim).or_default().push((total, series));
            }
        }
        let worst = |mut pairs: Vec<(f64, PairSeries)>| {
            pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
            pairs.into_iter().take(most).map(|(_, series)| series)
        };
        by_victim.into_values().flat_map(worst).collect()
    }

    /// Whether waits of one of these containers were traced in a frame.
    fn is_traced(&self, containers: &[usize], number: u64) -> bool {
        let neighbor = Measure::ALL.iter().position(|measure| *measure == Measure::Neighbor);
        let value = |&at: &usize| self.containers.value(at, neighbor?, number);
        containers.iter().any(|at| value(at).is_some())
    }

    pub(crate) fn aggressors(&self, span: Duration) -> Vec<InterferenceTotal> {
        let numbers = self.numbers(span);
        let pairs = self.pairs.series().filter_map(|(at, pair)| {
            let waited =
                |number| Some(self.pairs.value(at, 0, number)? * self.seconds[position(number)]);
            let seconds: f64 = numbers.clone().filter_map(waited).sum();
            let (victim, aggressor) = (pair.victim(), pair.aggressor());
            (seconds > 0.0).then_some(InterferenceTotal { victim, aggressor, seconds })
        });
        let mut pairs: Vec<InterferenceTotal> = pairs.collect();
        pairs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.victim.cmp(&b.victim)));
        pairs
    }

    /// The node in a frame, without the load of its CPUs.
    fn past_node(&self, number: u64) -> NodeFrame {
        let values = &self.nodes[position(number)];
        NodeFrame {
            name: self.node.clone(),
            trace: (*values.trace).clone(),
            pressure: values.pressure,
            contention: values.contention,
            steal: values.steal,
            colocation: (*values.colocation).clone(),
            cpus: (*values.cpus).clone(),
        }
    }
}

impl Container {
    fn frame(&self, rates: Rates) -> ContainerFrame {
        let identity = &*self.identity;
        ContainerFrame {
            namespace: identity.namespace.clone(),
            pod: identity.pod.clone(),
            container: identity.container.clone(),
            uid: identity.uid.clone(),
            qos_class: identity.qos_class.clone(),
            cpu_qos: identity.cpu_qos.clone(),
            limit_cores: self.limit_cores,
            request_cores: self.request_cores,
            cpus: self.cpuset.as_ref().map(|cpuset| cpuset.cpus.clone()),
            gc: self.gc.as_deref().map(collections),
            rates,
        }
    }
}

/// Garbage collection of a container's program, as the views show it.
fn collections(gc: &ContainerGc) -> GarbageCollection {
    let cycles = gc.recent.map(|recent| recent.cycles as f64 / recent.seconds);
    GarbageCollection {
        cpu_share: gc.recent.and_then(|recent| recent.cpu_share),
        cycles,
        stopped_share: gc.recent.and_then(|recent| recent.stopped_share),
        collectors: gc.settings.collectors.clone(),
        live_bytes: gc.live_bytes,
        goal_bytes: gc.goal_bytes,
        limit_bytes: gc.limit_bytes,
        gogc: gc.settings.gogc,
        gomaxprocs: gc.settings.gomaxprocs,
    }
}

/// Names of a container, without values.
fn series(identity: &ContainerIdentity) -> Series {
    Series {
        namespace: identity.namespace.clone(),
        pod: identity.pod.clone(),
        container: identity.container.clone(),
        uid: identity.uid.clone(),
        ..Series::default()
    }
}

fn sort(containers: &mut [ContainerFrame]) {
    containers.sort_by(|a, b| {
        (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container))
    });
}
