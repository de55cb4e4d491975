//! The phases of a transition: shrink all pods, verify, release, grant, grow.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel_text::CpuSet;

use crate::plan::{Class, Holding, Placement};
use crate::pod::Uid;

use super::tree::{CpusetTree, TreeWrite};
use super::{Step, Transition};

pub(super) struct Build<'a> {
    placements: &'a BTreeMap<Uid, Placement>,
    trees: BTreeMap<Uid, CpusetTree<'a>>,
    /// The grants at this point of the sequence.
    granted: BTreeMap<Uid, Holding>,
    steps: Vec<Step>,
}

/// The pods of a phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Sharers,
    Exclusive,
}

#[derive(Clone, Copy)]
enum Aim {
    Retreat,
    Settle,
}

impl<'a> Build<'a> {
    pub(super) fn new(transition: Transition<'a>) -> Self {
        let ours =
            transition.pods.iter().filter(|pod| transition.placements.contains_key(&pod.uid));
        let tree = |cgroups| CpusetTree::new(transition.hierarchy, cgroups);
        Self {
            placements: transition.placements,
            trees: ours.map(|pod| (pod.uid.clone(), tree(&pod.cgroups))).collect(),
            granted: transition.held.clone(),
            steps: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Vec<Step> {
        self.release(|build, uid| !build.trees.contains_key(uid) && !build.is(uid, Who::Exclusive));
        self.open_to_best_effort();
        let grants =
            self.placements.iter().any(|(uid, placement)| self.is_to_be_granted(uid, placement));
        self.phase(Who::Sharers, Aim::Retreat, grants);
        self.release(|build, uid| !build.is(uid, Who::Exclusive));
        self.phase(Who::Exclusive, Aim::Retreat, grants);
        self.release_leftovers();
        self.phase(Who::Exclusive, Aim::Settle, grants);
        self.grant();
        self.phase(Who::Sharers, Aim::Settle, false);
        self.steps
    }

    fn is(&self, uid: &Uid, who: Who) -> bool {
        let exclusive =
            self.placements.get(uid).is_some_and(|placement| placement.class.is_exclusive());
        exclusive == (who == Who::Exclusive)
    }

    fn is_to_be_granted(&self, uid: &Uid, placement: &Placement) -> bool {
        let same = |held: &Holding| held.class == placement.class && held.cpus == placement.cpus;
        placement.class.is_exclusive() && !self.granted.get(uid).is_some_and(same)
    }

    /// Moves the pods to their targets, or only off the CPUs that are not theirs, and verifies the
    /// writes.
    fn phase(&mut self, who: Who, aim: Aim, verify: bool) {
        let from = self.steps.len();
        let uids: Vec<Uid> = self.trees.keys().filter(|uid| self.is(uid, who)).cloned().collect();
        for uid in uids {
            let Some(mut tree) = self.trees.remove(&uid) else { continue };
            let placement = &self.placements[&uid];
            let wanted = match aim {
                Aim::Retreat => tree.retreat(&placement.cpus, &self.blocked(&uid, placement.class)),
                Aim::Settle => placement.cpus.clone(),
            };
            self.make_way(&uid, placement.class, &wanted);
            for TreeWrite { at, cpus, effective } in tree.apply(&wanted) {
                self.steps.push(Step::Write {
                    uid: uid.clone(),
                    path: tree.path(at).to_owned(),
                    cpus,
                    effective,
                });
            }
            self.trees.insert(uid, tree);
        }
        if verify {
            self.verify(from);
        }
    }

    /// CPUs of other pods on which a pod of this class may not run.
    fn blocked(&self, uid: &Uid, class: Class) -> CpuSet {
        self.closed_to(uid, class).fold(CpuSet::new(), |all, (_, held)| all.union(&held.cpus))
    }

    fn closed_to<'b>(
        &'b self,
        uid: &'b Uid,
        class: Class,
    ) -> impl Iterator<Item = (&'b Uid, &'b Holding)> {
        self.granted
            .iter()
            .filter(move |(other, held)| *other != uid && !class.may_share_with(held.class))
    }

    /// Releases the CPUs that the pod needs from other owners. Happens only without an alternative:
    /// the owner has not left these CPUs yet, but will in the same transition.
    fn make_way(&mut self, uid: &Uid, class: Class, wanted: &CpuSet) {
        let overlaps = self
            .closed_to(uid, class)
            .map(|(other, held)| (other.clone(), held.cpus.intersection(wanted)));
        for (other, cpus) in overlaps.collect::<Vec<_>>() {
            self.release_cpus(&other, &cpus);
        }
    }

    /// Verifies the last write to each cgroup since `from`.
    fn verify(&mut self, from: usize) {
        let mut written: BTreeMap<PathBuf, (Uid, CpuSet)> = BTreeMap::new();
        for step in &self.steps[from..] {
            if let Step::Write { uid, path, effective, .. } = step {
                written.insert(path.clone(), (uid.clone(), effective.clone()));
            }
        }
        let verify = |(path, (uid, effective))| Step::Verify { uid, path, effective };
        self.steps.extend(written.into_iter().map(verify));
    }

    fn release(&mut self, which: impl Fn(&Self, &Uid) -> bool) {
        let gone: Vec<(Uid, CpuSet)> = self
            .granted
            .iter()
            .filter(|(uid, _)| which(self, uid))
            .map(|(uid, held)| (uid.clone(), held.cpus.clone()))
            .collect();
        for (uid, cpus) in gone {
            self.release_cpus(&uid, &cpus);
        }
    }

    /// Releases CPUs that exclusive pods held and have left.
    fn release_leftovers(&mut self) {
        let leftovers: Vec<(Uid, CpuSet)> = self
            .granted
            .iter()
            .filter_map(|(uid, held)| {
                Some((uid.clone(), held.cpus.difference(&self.placements.get(uid)?.cpus)))
            })
            .collect();
        for (uid, cpus) in leftovers {
            self.release_cpus(&uid, &cpus);
        }
    }

    fn release_cpus(&mut self, uid: &Uid, cpus: &CpuSet) {
        let Some(held) = self.granted.get_mut(uid) else { return };
        let cpus = held.cpus.intersection(cpus);
        if cpus.is_empty() {
            return;
        }
        held.cpus = held.cpus.difference(&cpus);
        if held.cpus.is_empty() {
            self.granted.remove(uid);
        }
        self.steps.push(Step::Release { uid: uid.clone(), cpus });
    }

    /// Changes LSE grants to LSR: no pod has to leave first, and best-effort pods may come at once.
    fn open_to_best_effort(&mut self) {
        for (uid, held) in &mut self.granted {
            let class = self.placements.get(uid).map(|placement| placement.class);
            if held.class == Class::Lse && class == Some(Class::Lsr) {
                held.class = Class::Lsr;
                self.steps.push(Step::Grant { uid: uid.clone(), holding: held.clone() });
            }
        }
    }

    fn grant(&mut self) {
        for (uid, placement) in self.placements {
            if self.is_to_be_granted(uid, placement) {
                let holding = Holding { class: placement.class, cpus: placement.cpus.clone() };
                self.granted.insert(uid.clone(), holding.clone());
                self.steps.push(Step::Grant { uid: uid.clone(), holding });
            }
        }
    }
}
