//! Wait time of each pod by the pod that caused it: one series for each of the top five, one for
//! the rest. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::waits::{Aggressor, PodId};

/// Number of pods per victim that may get a series at a time; existing series remain.
const TOP: usize = 5;
/// Minimum wait caused by a pod before it gets a series, nanoseconds.
const FLOOR_NS: u64 = 10_000_000;
/// Time after which a wait has half its weight in the ranking, seconds.
const HALF_LIFE_SECS: f64 = 300.0;
/// Maximum number of ranked pods per victim.
const MAX_RANKED: usize = 256;

/// Waits of all victims.
#[derive(Debug, Default)]
pub(crate) struct InterferenceTable {
    victims: BTreeMap<PodId, Victim>,
}

#[derive(Debug, Default)]
struct Victim {
    system_ns: Option<u64>,
    other_ns: Option<u64>,
    pods: HashMap<PodId, Rank>,
}

/// One aggressor of a victim.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    /// Time added since the last call of `update_series`, nanoseconds.
    fresh_ns: u64,
    /// Total with exponential decay, nanoseconds.
    recent_ns: f64,
    /// Value of its series, nanoseconds, once it has one.
    series_ns: Option<u64>,
    /// Part of the victim's `other` that it contributed, nanoseconds.
    other_ns: u64,
}

impl InterferenceTable {
    pub(crate) fn add(&mut self, victim: PodId, aggressor: Aggressor, ns: u64) {
        if ns == 0 {
            return;
        }
        let victim = self.victims.entry(victim).or_default();
        match aggressor {
            Aggressor::System => *victim.system_ns.get_or_insert(0) += ns,
            Aggressor::Other => *victim.other_ns.get_or_insert(0) += ns,
            Aggressor::Pod(pod) => victim.pods.entry(pod).or_default().fresh_ns += ns,
        }
    }

    /// Ranks the pods, creates series for new leaders, and adds the new time to its series or to
    /// `other`.
    pub(crate) fn update_series(&mut self, elapsed_secs: f64) {
        let fade = 0.5f64.powf(elapsed_secs / HALF_LIFE_SECS);
        self.victims.values_mut().for_each(|victim| victim.update_series(fade));
    }

    /// Removes pods that no longer exist, both as victims and as aggressors.
    pub(crate) fn retain(&mut self, is_there: impl Fn(PodId) -> bool) {
        self.victims.retain(|&victim, _| is_there(victim));
        self.victims.values_mut().for_each(|victim| victim.pods.retain(|&pod, _| is_there(pod)));
    }

    /// The series, by victim and aggressor.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ((PodId, Aggressor), u64)> {
        self.victims.iter().flat_map(|(&victim, state)| {
            let mut rows: Vec<_> = state.series().collect();
            rows.sort_unstable_by_key(|&(aggressor, _)| aggressor);
            rows.into_iter().map(move |(aggressor, wait_ns)| ((victim, aggressor), wait_ns))
        })
    }
}

impl Victim {
    fn update_series(&mut self, fade: f64) {
        for rank in self.pods.values_mut() {
            rank.recent_ns = rank.recent_ns * fade + rank.fresh_ns as f64;
        }
        for pod in self.leaders() {
            let rank = self.pods.get_mut(&pod).expect("a leader is one of them");
            if rank.other_ns + rank.fresh_ns >= FLOOR_NS {
                rank.series_ns.get_or_insert(0);
            }
        }
        for rank in self.pods.values_mut() {
            let fresh = std::mem::take(&mut rank.fresh_ns);
            match &mut rank.series_ns {
                Some(series) => *series += fresh,
                None => {
                    rank.other_ns += fresh;
                    *self.other_ns.get_or_insert(0) += fresh;
                }
            }
        }
        self.forget_the_least();
    }

    /// The top five pods, with or without a series.
    fn leaders(&self) -> Vec<PodId> {
        let mut ranked: Vec<_> =
            self.pods.iter().map(|(&pod, rank)| (rank.recent_ns, pod)).collect();
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().take(TOP).map(|(_, pod)| pod).collect()
    }

    /// Drops the lowest-ranked pods without a series. Their time stays in `other`; only their rank
    /// is lost.
    fn forget_the_least(&mut self) {
        let surplus = self.pods.len().saturating_sub(MAX_RANKED);
        if surplus > 0 {
            let unlisted = self.pods.iter().filter(|(_, rank)| rank.series_ns.is_none());
            let mut least: Vec<_> = unlisted.map(|(&pod, rank)| (rank.recent_ns, pod)).collect();
            least.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            for (_, pod) in least.iter().take(surplus) {
                self.pods.remove(pod);
            }
        }
    }

    fn series(&self) -> impl Iterator<Item = (Aggressor, u64)> {
        let pods = self
            .pods
            .iter()
            .filter_map(|(&pod, rank)| Some((Aggressor::Pod(pod), rank.series_ns?)));
        let system = self.system_ns.map(|ns| (Aggressor::System, ns));
        let other = self.other_ns.map(|ns| (Aggressor::Other, ns));
        pods.chain(system).chain(other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VICTIM: PodId = PodId(1);
    const MS: u64 = 1_000_000;

    fn pod(number: u64) -> Aggressor {
        Aggressor::Pod(PodId(number))
    }

    /// Adds the waits that each aggressor caused in one second.
    fn second(table: &mut InterferenceTable, waits: &[(Aggressor, u64)]) {
        waits.iter().for_each(|&(aggressor, ns)| table.add(VICTIM, aggressor, ns));
        table.update_series(1.0);
    }

    fn series(table: &InterferenceTable) -> BTreeMap<Aggressor, u64> {
        table
            .rows()
            .filter(|((victim, _), _)| *victim == VICTIM)
            .map(|((_, aggressor), wait_ns)| (aggressor, wait_ns))
            .collect()
    }

    #[test]
    fn the_first_five_are_listed_and_the_rest_is_one() {
        let mut table = InterferenceTable::default();
        let waits: Vec<_> = (1..=8).map(|number| (pod(100 + number), number * 20 * MS)).collect();
        second(&mut table, &waits);
        second(&mut table, &[(Aggressor::System, 7)]);
        let listed: Vec<_> = (4..=8).map(|number| (pod(100 + number), number * 20 * MS)).collect();
        let rest = [(Aggressor::System, 7), (Aggressor::Other, (1 + 2 + 3) * 20 * MS)];
        assert_eq!(series(&table), listed.into_iter().chain(rest).collect());
    }

    #[test]
    fn a_series_counts_on_when_others_overtake_it() {
        let mut table = InterferenceTable::default();
        second(&mut table, &[(pod(2), 30 * MS)]);
        for _ in 0..10 {
            let others: Vec<_> = (10..15).map(|number| (pod(number), 500 * MS)).collect();
            second(&mut table, &others);
            second(&mut table, &[(pod(2), MS)]);
        }
        assert_eq!(series(&table)[&pod(2)], 40 * MS);
        assert_eq!(series(&table).len(), 6);
    }

    #[test]
    fn a_new_top_aggressor_is_listed_and_other_keeps_its_past() {
        let mut table = InterferenceTable::default();
        let leaders: Vec<_> = (10..15).map(|number| (pod(number), 50 * MS)).collect();
        second(&mut table, &leaders);
        second(&mut table, &[(pod(2), 20 * MS)]);
        assert_eq!(series(&table).get(&pod(2)), None);
        second(&mut table, &[(pod(2), 90 * MS)]);
        assert_eq!(series(&table)[&pod(2)], 90 * MS);
        assert_eq!(series(&table)[&Aggressor::Other], 20 * MS);
    }

    #[test]
    fn old_waits_fade_from_the_ranking() {
        let mut table = InterferenceTable::default();
        let leaders: Vec<_> = (10..15).map(|number| (pod(number), 1000 * MS)).collect();
        second(&mut table, &leaders);
        table.update_series(HALF_LIFE_SECS * 10.0);
        second(&mut table, &[(pod(2), 20 * MS)]);
        assert_eq!(series(&table)[&pod(2)], 20 * MS);
    }

    #[test]
    fn small_aggressors_are_combined_in_other() {
        let mut table = InterferenceTable::default();
        second(&mut table, &[(pod(2), FLOOR_NS - 1)]);
        assert_eq!(series(&table), BTreeMap::from([(Aggressor::Other, FLOOR_NS - 1)]));
        second(&mut table, &[(pod(2), 1)]);
        assert_eq!(series(&table)[&pod(2)], 1);
    }

    #[test]
    fn a_pod_that_is_gone_takes_its_series_with_it() {
        let mut table = InterferenceTable::default();
        second(&mut table, &[(pod(2), 20 * MS), (pod(3), 20 * MS)]);
        table.add(PodId(2), pod(1), 20 * MS);
        table.update_series(1.0);
        table.retain(|id| id != PodId(2));
        assert_eq!(table.rows().map(|(pair, _)| pair).collect::<Vec<_>>(), [(VICTIM, pod(3))]);
    }

    proptest! {
        #[test]
        fn no_counter_goes_back_and_nothing_is_lost(
            seconds in proptest::collection::vec(proptest::collection::vec((2u64..400, 0u64..50 * MS), 0..40), 1..20)
        ) {
            let mut table = InterferenceTable::default();
            let (mut before, mut total) = (BTreeMap::new(), 0);
            for waits in seconds {
                total += waits.iter().map(|&(_, ns)| ns).sum::<u64>();
                second(&mut table, &waits.into_iter().map(|(number, ns)| (pod(number), ns)).collect::<Vec<_>>());
                let now = series(&table);
                for (aggressor, ns) in &before {
                    prop_assert!(now.get(aggressor).is_some_and(|now| now >= ns), "{aggressor:?}");
                }
                prop_assert_eq!(now.values().sum::<u64>(), total);
                prop_assert!(table.victims.values().all(|victim| victim.pods.len() <= MAX_RANKED));
                before = now;
            }
        }
    }
}
