//! Wait time of each pod by the pod that caused it: one series for each of the top five, one for
//! the rest. Pure. A poll costs as much as the victims with new time have pairs.

use std::collections::BTreeMap;

use crate::waits::{Aggressor, PodId};

/// Number of pods per victim that may get a series at a time; existing series remain.
const TOP: usize = 5;
/// Minimum wait caused by a pod before it gets a series, nanoseconds.
const FLOOR_NS: u64 = 10_000_000;
/// Time after which a wait has half its weight in the ranking, seconds.
const HALF_LIFE_SECS: f64 = 300.0;
/// Maximum number of pods without a series that are ranked per victim, and the number that is left
/// once there are more.
const MAX_RANKED: usize = 128;
const KEPT_RANKED: usize = 64;
/// Weight of new time above which all weights are divided by it.
const MAX_WEIGHT: f64 = 1e30;

/// Waits of all victims.
#[derive(Debug)]
pub(crate) struct InterferenceTable {
    victims: BTreeMap<PodId, Victim>,
    /// Victims with time that was added since the last call of `update_series`.
    touched: Vec<PodId>,
    /// Weight of new time in the ranking. It grows, so that older time need not be made to fade.
    weight: f64,
}

/// Waits of one victim.
#[derive(Debug, Default)]
pub(crate) struct Victim {
    system_ns: Option<u64>,
    other_ns: Option<u64>,
    /// By pod.
    pods: Vec<(PodId, Rank)>,
    /// Whether it is in the list of those with new time.
    is_touched: bool,
}

/// One aggressor of a victim.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    /// Time added since the last call of `update_series`, nanoseconds.
    fresh_ns: u64,
    /// Total, each part with its weight.
    recent: f64,
    /// Value of its series, or without one its part of the victim's `other`, nanoseconds.
    counted_ns: u64,
    has_series: bool,
}

impl Default for InterferenceTable {
    fn default() -> Self {
        Self { victims: BTreeMap::new(), touched: Vec::new(), weight: 1.0 }
    }
}

impl InterferenceTable {
    /// The waits of a pod, to add to them.
    pub(crate) fn victim(&mut self, pod: PodId) -> &mut Victim {
        let victim = self.victims.entry(pod).or_default();
        if !std::mem::replace(&mut victim.is_touched, true) {
            self.touched.push(pod);
        }
        victim
    }

    /// Ranks the pods, creates series for new leaders, and adds the new time to its series or to
    /// `other`.
    pub(crate) fn update_series(&mut self, elapsed_secs: f64) {
        self.weight *= 2f64.powf(elapsed_secs / HALF_LIFE_SECS);
        if self.weight > MAX_WEIGHT {
            let weight = std::mem::replace(&mut self.weight, 1.0);
            let ranks = self.victims.values_mut().flat_map(|victim| &mut victim.pods);
            ranks.for_each(|(_, rank)| rank.recent /= weight);
        }
        for victim in self.touched.drain(..) {
            if let Some(victim) = self.victims.get_mut(&victim) {
                victim.update_series(self.weight);
            }
        }
    }

    /// Removes pods that no longer exist, both as victims and as aggressors.
    pub(crate) fn retain(&mut self, is_there: impl Fn(PodId) -> bool) {
        self.victims.retain(|&victim, _| is_there(victim));
        self.victims.values_mut().for_each(|victim| victim.retain(&is_there));
    }

    /// The series, by victim and aggressor.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ((PodId, Aggressor), u64)> {
        self.victims.iter().flat_map(|(&victim, state)| {
            state.series().map(move |(aggressor, wait_ns)| ((victim, aggressor), wait_ns))
        })
    }
}

impl Victim {
    pub(crate) fn add(&mut self, aggressor: Aggressor, ns: u64) {
        if ns == 0 {
            return;
        }
        match aggressor {
            Aggressor::System => *self.system_ns.get_or_insert(0) += ns,
            Aggressor::Other => *self.other_ns.get_or_insert(0) += ns,
            Aggressor::Pod(pod) => {
                let at = self.pods.binary_search_by_key(&pod, |(pod, _)| *pod);
                let at = at.unwrap_or_else(|at| {
                    self.pods.insert(at, (pod, Rank::default()));
                    at
                });
                self.pods[at].1.fresh_ns += ns;
            }
        }
    }

    fn update_series(&mut self, weight: f64) {
        self.is_touched = false;
        for (_, rank) in &mut self.pods {
            rank.recent += rank.fresh_ns as f64 * weight;
        }
        for at in self.leaders().into_iter().flatten() {
            let rank = &mut self.pods[at].1;
            if !rank.has_series && rank.counted_ns + rank.fresh_ns >= FLOOR_NS {
                (rank.has_series, rank.counted_ns) = (true, 0);
            }
        }
        for (_, rank) in self.pods.iter_mut().filter(|(_, rank)| rank.fresh_ns > 0) {
            let fresh_ns = std::mem::take(&mut rank.fresh_ns);
            rank.counted_ns += fresh_ns;
            if !rank.has_series {
                *self.other_ns.get_or_insert(0) += fresh_ns;
            }
        }
        self.forget_the_least();
    }

    /// Places of the top five, with or without a series, the first one first; of two with the same
    /// rank, the lower pod comes first.
    fn leaders(&self) -> [Option<usize>; TOP] {
        let recent = |at: usize| self.pods[at].1.recent;
        let mut leaders = [None; TOP];
        for at in 0..self.pods.len() {
            let is_below = |leader: &Option<usize>| leader.is_none_or(|it| recent(it) < recent(at));
            if let Some(place) = leaders.iter().position(is_below) {
                leaders[place..].rotate_right(1);
                leaders[place] = Some(at);
            }
        }
        leaders
    }

    /// Drops the lowest-ranked pods without a series. Their time stays in `other`; only their rank
    /// is lost.
    fn forget_the_least(&mut self) {
        if self.pods.len() <= MAX_RANKED {
            return;
        }
        let unlisted = self.pods.iter().filter(|(_, rank)| !rank.has_series);
        let mut least: Vec<_> = unlisted.map(|&(pod, rank)| (rank.recent, pod)).collect();
        if least.len() <= MAX_RANKED {
            return;
        }
        least.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        least.truncate(least.len() - KEPT_RANKED);
        let mut least: Vec<_> = least.into_iter().map(|(_, pod)| pod).collect();
        least.sort_unstable();
        self.pods.retain(|(pod, _)| least.binary_search(pod).is_err());
    }

    fn retain(&mut self, is_there: &impl Fn(PodId) -> bool) {
        self.pods.retain(|&(pod, _)| is_there(pod));
    }

    /// The series, by aggressor.
    fn series(&self) -> impl Iterator<Item = (Aggressor, u64)> {
        let listed = self.pods.iter().filter(|(_, rank)| rank.has_series);
        let pods = listed.map(|&(pod, rank)| (Aggressor::Pod(pod), rank.counted_ns));
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
        waits.iter().for_each(|&(aggressor, ns)| table.victim(VICTIM).add(aggressor, ns));
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
        table.victim(PodId(2)).add(pod(1), 20 * MS);
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
                let unlisted = |victim: &Victim| {
                    victim.pods.iter().filter(|(_, rank)| !rank.has_series).count()
                };
                prop_assert!(table.victims.values().all(|victim| unlisted(victim) <= MAX_RANKED));
                before = now;
            }
        }

        #[test]
        fn leaders_are_those_of_a_ranking_of_all(
            seconds in proptest::collection::vec(
                (proptest::collection::vec((2u64..40, 0u64..50 * MS), 0..10), 2u64..80),
                1..30,
            )
        ) {
            let mut table = InterferenceTable::default();
            for (waits, gone) in seconds {
                second(&mut table, &waits.into_iter().map(|(number, ns)| (pod(number), ns)).collect::<Vec<_>>());
                table.retain(|pod| pod != PodId(gone));
                for victim in table.victims.values() {
                    let mut all: Vec<usize> = (0..victim.pods.len()).collect();
                    all.sort_by(|&a, &b| victim.pods[b].1.recent.total_cmp(&victim.pods[a].1.recent));
                    let leaders: Vec<_> = victim.leaders().into_iter().flatten().collect();
                    prop_assert_eq!(leaders, &all[..all.len().min(TOP)]);
                }
            }
        }
    }

    #[test]
    fn a_weight_that_grows_for_days_keeps_the_ranking() {
        let mut table = InterferenceTable::default();
        let leaders: Vec<_> = (10..15).map(|number| (pod(number), 50 * MS)).collect();
        for _ in 0..2000 {
            second(&mut table, &leaders);
            table.update_series(HALF_LIFE_SECS);
        }
        second(&mut table, &[(pod(2), 20 * MS)]);
        assert_eq!(series(&table).get(&pod(2)), None);
        assert!(table.weight <= MAX_WEIGHT);
        assert_eq!(series(&table)[&pod(14)], 2000 * 50 * MS);
    }
}
