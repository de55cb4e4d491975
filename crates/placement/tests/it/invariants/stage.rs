//! A world whose pods have cgroups on a simulated kernel, with the checks for every step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kernel_text::{CgroupVersion, CpuSet};
use placement::{
    CpusetCgroup, CpusetHierarchy, Current, Holding, Plan, PodCgroups, Step, Transition, Uid,
    write_steps,
};

use super::sim::{Kernel, ROOT};
use super::world::{Event, World};

#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) kernel: Kernel,
    possible: CpuSet,
    /// Grants of the steps carried out so far, whether committed or not.
    granted: BTreeMap<Uid, Holding>,
}

/// CPUs of one pod in the effective set of another that may not run there.
type Violations = BTreeSet<(PathBuf, u32)>;

impl Stage {
    pub(crate) fn new(world: World, version: CgroupVersion) -> Self {
        let possible: CpuSet = world.machine.possible.iter().map(|cpu| cpu.id).collect();
        let kernel = Kernel::new(version, possible.clone(), world.topology().online().clone());
        Self { world, kernel, possible, granted: BTreeMap::new() }
    }

    /// Plays the event in the world, the kernel and the runtime.
    pub(crate) fn happen(&mut self, event: &Event) {
        if let Event::Unplug(n) = event {
            let cpu = self.world.machine.clone().unplug(*n);
            if cpu.is_some_and(|cpu| self.kernel.would_empty(cpu)) {
                return;
            }
        }
        self.world.happen(event);
        let online = self.world.topology().online().clone();
        self.kernel.online.difference(&online).iter().for_each(|cpu| self.kernel.unplug(cpu));
        online.difference(&self.kernel.online).iter().for_each(|cpu| self.kernel.plug(cpu));
        self.sync();
    }

    /// Creates the cgroups of new pods and removes those of pods that left.
    fn sync(&mut self) {
        let uids: BTreeSet<PathBuf> = self.world.pods.iter().map(|pod| dir(&pod.uid)).collect();
        let dirs: Vec<PathBuf> = self.kernel.paths(Path::new(ROOT));
        for gone in
            dirs.iter().filter(|path| path.components().count() == 2 && !uids.contains(*path))
        {
            self.kernel.rmdir(gone);
        }
        for (at, uid) in uids.into_iter().enumerate().filter(|(_, uid)| !dirs.contains(uid)) {
            for path in [
                uid.clone(),
                uid.join("c0"),
                uid.join("c1"),
                uid.join("c1/nested"),
                uid.join("unknown"),
            ] {
                self.kernel.mkdir(path);
            }
            self.kernel.mkdir_unset(uid.join("unset"));
            // Every other application restricts a part of itself, which fails with an empty
            // intersection.
            let own = self.kernel.effective(&uid).iter().take(2).collect();
            if at % 2 == 0 {
                let _ = self.kernel.write(&uid.join("c1/nested"), &own);
            }
        }
    }

    pub(crate) fn hierarchy(&self) -> CpusetHierarchy {
        let ceiling = self.kernel.effective(Path::new(ROOT));
        let full = if self.kernel.version == CgroupVersion::V1 {
            ceiling.clone()
        } else {
            self.possible.clone()
        };
        CpusetHierarchy { version: self.kernel.version, ceiling, full }
    }

    pub(crate) fn plan(&self) -> Option<Plan> {
        self.world.plan_within(&self.world.topology(), &self.kernel.effective(Path::new(ROOT))).ok()
    }

    pub(crate) fn cgroups(&self) -> Vec<PodCgroups> {
        self.world.pods.iter().map(|pod| self.cgroups_of(&pod.uid)).collect()
    }

    fn cgroups_of(&self, uid: &Uid) -> PodCgroups {
        let paths = self.kernel.paths(&dir(uid));
        let cgroup = |path: &PathBuf| CpusetCgroup {
            path: path.clone(),
            parent: paths.iter().position(|above| Some(above.as_path()) == path.parent()),
            configured: self.kernel.configured(path).clone(),
            effective: self.kernel.effective(path),
            ours: is_ours(path),
        };
        PodCgroups { uid: uid.clone(), cgroups: paths.iter().map(cgroup).collect() }
    }

    /// The steps to the plan from the committed state, or from that of a checkpoint.
    pub(crate) fn steps(&self, plan: &Plan, committed: &Current) -> Vec<Step> {
        let (hierarchy, pods) = (self.hierarchy(), self.cgroups());
        let placements = &plan.placements;
        let transition =
            Transition { hierarchy: &hierarchy, pods: &pods, held: &committed.held, placements };
        write_steps(&transition).expect("a plan can be written")
    }

    /// Carries out one step and returns any violation.
    pub(crate) fn carry_out(&mut self, step: &Step, plan: &Plan) -> Result<(), String> {
        let before = self.violations(plan);
        match step {
            Step::Write { path, cpus, effective, .. } => {
                self.kernel.write(path, cpus).map_err(|errno| format!("{errno:?}"))?;
                self.reads_back(path, effective)?;
            }
            Step::Verify { path, effective, .. } => self.reads_back(path, effective)?,
            Step::Release { uid, cpus } => {
                let held = self.granted.get_mut(uid);
                if let Some(held) = held {
                    held.cpus = held.cpus.difference(cpus);
                }
            }
            Step::Grant { uid, holding } => {
                self.granted.insert(uid.clone(), holding.clone());
            }
        }
        let new: Vec<_> = self.violations(plan).difference(&before).cloned().collect();
        if new.is_empty() { Ok(()) } else { Err(format!("granted CPUs entered: {new:?}")) }
    }

    fn reads_back(&self, path: &Path, meant: &CpuSet) -> Result<(), String> {
        let effective = self.kernel.effective(path);
        if effective == *meant {
            Ok(())
        } else {
            Err(format!("{effective:?} reads back, {meant:?} was meant"))
        }
    }

    pub(crate) fn violations(&self, plan: &Plan) -> Violations {
        let mut found = Violations::new();
        for (owner, held) in &self.granted {
            for (uid, placement) in plan.placements.iter().filter(|(uid, _)| *uid != owner) {
                if placement.class.may_share_with(held.class) {
                    continue;
                }
                for path in self.kernel.paths(&dir(uid)) {
                    let overlap = self.kernel.effective(&path).intersection(&held.cpus);
                    found.extend(overlap.iter().map(|cpu| (path.clone(), cpu)));
                }
            }
        }
        found
    }

    /// Checks that every cgroup is as planned.
    pub(crate) fn settled(&self, plan: &Plan) -> Result<(), String> {
        for (uid, placement) in &plan.placements {
            for path in self.kernel.paths(&dir(uid)) {
                let effective = self.kernel.effective(&path);
                let own_choice = !is_ours(&path) && effective.is_subset(&placement.cpus);
                if effective != placement.cpus && !own_choice {
                    return Err(format!(
                        "{}: {effective:?}, planned {:?}",
                        path.display(),
                        placement.cpus
                    ));
                }
            }
        }
        Ok(())
    }

    /// Effective sets of exclusive pods that hold exactly their CPUs and keep them.
    pub(crate) fn unmoved(&self, plan: &Plan, committed: &Current) -> BTreeMap<PathBuf, CpuSet> {
        let kept = plan.placements.iter().filter(|(uid, placement)| {
            let held = committed.held.get(*uid).is_some_and(|held| held.cpus == placement.cpus);
            placement.class.is_exclusive() && held
        });
        let paths = kept.flat_map(|(uid, placement)| {
            let paths = self.kernel.paths(&dir(uid)).into_iter();
            paths.filter(|path| self.kernel.effective(path) == placement.cpus)
        });
        paths.map(|path| (path.clone(), self.kernel.effective(&path))).collect()
    }

    /// Commits the plan. A pod that is gone, or that the agent no longer writes, holds nothing.
    pub(crate) fn commit(&mut self, plan: &Plan) {
        self.world.current = plan.outcome();
        let held = &self.world.current.held;
        self.granted.retain(|uid, _| held.contains_key(uid));
    }

    pub(crate) fn granted(&self) -> BTreeMap<Uid, Holding> {
        self.granted.clone()
    }
}

/// Whether it belongs neither to an application nor to an unknown runtime.
pub(crate) fn is_ours(path: &Path) -> bool {
    !["nested", "unknown", "unset"].iter().any(|name| path.ends_with(name))
}

fn dir(uid: &Uid) -> PathBuf {
    Path::new(ROOT).join(&**uid)
}
