//! The rows of both tables: sorted and filtered.

use std::collections::{BTreeMap, BTreeSet};

use api::{ContainerFrame, Frame, PodName};

use crate::cause;
use crate::columns::Column;
use crate::filter;
use crate::history::{History, key};
use crate::text;

/// Order of the victims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The order of the verdicts; then the time lost to limits, neighbors and the system, over the
    /// last seconds.
    #[default]
    Lost,
    /// The values of a column.
    By(Column),
}

impl Sort {
    /// The next order, or the previous one: the time lost, the numbers among the shown columns from
    /// left to right, the name.
    pub(crate) fn next(self, shown: &[Column], is_back: bool) -> Self {
        let numbers = shown.iter().filter(|column| column.is_number());
        let mut sorts = vec![Self::Lost];
        sorts.extend(numbers.map(|&column| Self::By(column)));
        sorts.push(Self::By(Column::Name));
        next(&sorts, self, is_back)
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Lost => "verdict".to_owned(),
            Self::By(column) => column.title().to_lowercase(),
        }
    }
}

/// Order of the aggressors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum HarmSort {
    /// Time that others waited for the pod over the last seconds.
    #[default]
    Now,
    /// Time over the last five minutes.
    Seconds,
    /// Number of pods that waited for it.
    Victims,
}

impl HarmSort {
    /// The next order, or the previous one.
    pub(crate) fn next(self, is_back: bool) -> Self {
        next(&[Self::Now, Self::Seconds, Self::Victims], self, is_back)
    }
}

/// The value after this one, or before it; the list begins again at its end.
fn next<T: Copy + PartialEq>(all: &[T], one: T, is_back: bool) -> T {
    let at = all.iter().position(|other| *other == one).unwrap_or(0);
    let step = if is_back { all.len() - 1 } else { 1 };
    all[(at + step) % all.len()]
}

/// Containers that match the filter, in order; equal ones by name.
pub(crate) fn victims<'a>(
    containers: impl Iterator<Item = &'a ContainerFrame>,
    frame: &Frame,
    history: &History,
    filter: &str,
    sort: Sort,
    is_ascending: bool,
) -> Vec<&'a ContainerFrame> {
    let is_shown =
        |row: &&ContainerFrame| filter.is_empty() || filter::matches(filter, &full_name(row));
    let value = |row: &ContainerFrame| match sort {
        Sort::Lost => history.recently_lost(&key(row)),
        Sort::By(column) => column.value(row),
    };
    let place = |row: &ContainerFrame| match sort {
        Sort::Lost => frame.verdict(row).map_or(usize::MAX, |(place, _)| place),
        Sort::By(_) => 0,
    };
    let rows = containers.filter(is_shown).map(|row| ((place(row), value(row)), row));
    let mut rows: Vec<((usize, f64), &ContainerFrame)> = rows.collect();
    rows.sort_by(|(a, one), (b, other)| {
        a.0.cmp(&b.0)
            .then_with(|| b.1.total_cmp(&a.1))
            .then_with(|| full_name(one).cmp(&full_name(other)))
    });
    if is_ascending {
        rows.reverse();
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// `namespace/pod/container`.
pub(crate) fn full_name(row: &ContainerFrame) -> String {
    format!("{}/{}", pod_name(row), text::clean(&row.container))
}

/// `namespace/pod`; the pod alone while its namespace is unknown.
fn pod_name(row: &ContainerFrame) -> String {
    cause::pod(&PodName {
        namespace: row.namespace.clone(),
        pod: if row.pod.is_empty() { row.uid.clone() } else { row.pod.clone() },
    })
}

/// Name in the table: the container only where the pod has several.
pub(crate) fn short_name(row: &ContainerFrame, frame: &Frame) -> String {
    let is_beside = |other: &ContainerFrame| {
        other.pod == row.pod && other.namespace == row.namespace && other.container != row.container
    };
    if frame.containers.iter().any(is_beside) { full_name(row) } else { pod_name(row) }
}

/// A pod for which others wait.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Harm {
    /// The pod that was running.
    pub(crate) aggressor: PodName,
    /// Thread-seconds per second that others waited for it in the latest frame.
    pub(crate) now: f64,
    /// Thread-seconds over the last five minutes.
    pub(crate) seconds: f64,
    /// Pods that waited for it.
    pub(crate) victims: usize,
    /// The pod that waited longest over the last five minutes.
    pub(crate) worst: Option<PodName>,
}

/// The pods that made others wait, in order; equal ones by the last five minutes.
pub(crate) fn aggressors(
    frame: &Frame,
    history: &History,
    filter: &str,
    sort: HarmSort,
) -> Vec<Harm> {
    let mut found: BTreeMap<PodName, (Harm, f64, BTreeSet<PodName>)> = BTreeMap::new();
    let new = |name: &PodName| {
        let aggressor = name.clone();
        let harm = Harm { aggressor, now: 0.0, seconds: 0.0, victims: 0, worst: None };
        (harm, 0.0, BTreeSet::new())
    };
    for (victim, aggressor, seconds) in history.waited().filter(|(_, _, seconds)| *seconds > 0.0) {
        let (harm, most, victims) =
            found.entry(aggressor.clone()).or_insert_with(|| new(aggressor));
        harm.seconds += seconds;
        victims.insert(victim.clone());
        if seconds > *most {
            (harm.worst, *most) = (Some(victim.clone()), seconds);
        }
    }
    for pair in &frame.interference {
        let (harm, _, victims) =
            found.entry(pair.aggressor.clone()).or_insert_with(|| new(&pair.aggressor));
        harm.now += pair.wait;
        victims.insert(pair.victim.clone());
        harm.worst.get_or_insert_with(|| pair.victim.clone());
    }
    let named =
        found.into_values().map(|(harm, _, victims)| Harm { victims: victims.len(), ..harm });
    let is_shown = |harm: &Harm| filter::matches(filter, &cause::pod(&harm.aggressor));
    let mut rows: Vec<Harm> = named.filter(is_shown).collect();
    let recent = history.recent_harm();
    let value = |harm: &Harm| match sort {
        HarmSort::Now => recent.get(&harm.aggressor).copied().unwrap_or(0.0),
        HarmSort::Seconds => harm.seconds,
        HarmSort::Victims => harm.victims as f64,
    };
    rows.sort_by(|a, b| {
        value(b)
            .total_cmp(&value(a))
            .then_with(|| b.seconds.total_cmp(&a.seconds))
            .then_with(|| a.aggressor.cmp(&b.aggressor))
    });
    rows
}

/// The pods that a pod waited for over the last five minutes, with the seconds, longest first.
pub(crate) fn aggressors_of(victim: &PodName, history: &History) -> Vec<(PodName, f64)> {
    let pairs = history.waited().filter(|(one, _, seconds)| *one == victim && *seconds > 0.0);
    let mut rows: Vec<(PodName, f64)> =
        pairs.map(|(_, aggressor, seconds)| (aggressor.clone(), seconds)).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}
