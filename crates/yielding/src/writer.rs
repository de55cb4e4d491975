//! Writer of cgroups, the only one in this crate: writes the required values and restores the
//! settings that need none any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use state_dir::Lock;
use watchdog::errors::chain;

use crate::actor::{ActorConfig, Mode, Switch, all_cpus};
use crate::checkpoint::{Checkpoint, Key, Written, directory, take_lock};
use crate::conflicts::Conflicts;
use crate::nested;
use crate::pods::pod_name;
use crate::setting::{self, Feature, Kind, NO_BURST, Original};
use crate::want::{Want, v1_period};
use crate::{Error, Result};

/// Time for which a value that the kernel rejected is not written again.
const REJECTION: Duration = Duration::from_secs(600);

/// Required value of each setting to write. A setting that was written and is not in the map is
/// restored.
pub(crate) type RequiredValues = BTreeMap<Key, Want>;

/// Writes of one feature in one pass.
#[derive(Debug, Default)]
pub struct Writes {
    /// Number of writes by setting.
    pub written: BTreeMap<Kind, u64>,
    /// Number of settings restored.
    pub restored: u64,
    /// Number of settings that another writer had changed.
    pub repaired: u64,
    /// Number of bursts that the kernel rejected; the cgroup has none then.
    pub rejected: u64,
    /// Failed writes.
    pub errors: Vec<String>,
}

impl Writes {
    pub(crate) fn add(&mut self, kind: Kind, times: u64) {
        if times > 0 {
            *self.written.entry(kind).or_default() += times;
        }
    }
}

/// Inputs of the writer in one pass.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) config: &'a ActorConfig,
    /// The pods, for the names in the checkpoint.
    pub(crate) pods: &'a PodIndex,
    /// Number of resizes when the required values were decided.
    pub(crate) resizes: u64,
    pub(crate) now: Instant,
}

/// Writes of one pass by feature.
pub(crate) type AllWrites = BTreeMap<Feature, Writes>;

/// The writer, with the checkpoint of what it wrote.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    checkpoint: Checkpoint,
    /// The checkpoint on disk.
    stored: Checkpoint,
    lock: Option<Lock>,
    conflicts: BTreeMap<Feature, Conflicts>,
    /// Values that the kernel rejected, and until when they are not tried again.
    rejected: BTreeMap<Key, (String, Instant)>,
    /// Passes in which a burst was 0 although it was written: by an older kernel, which divides it,
    /// or by another program.
    zeroed: BTreeMap<Key, Conflicts>,
    /// Containers whose cpusets cannot shrink, because nested ones have other CPUs.
    held: BTreeSet<Key>,
}

impl Writer {
    /// The mode of a feature. Takes the lock if values are to be written, and adopts what an
    /// earlier process left.
    pub(crate) fn mode(
        &mut self,
        config: &ActorConfig,
        feature: Feature,
        now: Instant,
        draining: bool,
    ) -> Mode {
        let observing = |reason: &str| Mode::Observing(reason.to_owned());
        let switch = config.switch(feature);
        if switch != Switch::Enforce {
            return Mode::Observing(format!("{}={}", feature.option(), switch.name()));
        }
        if draining {
            return observing("a drain is requested");
        }
        if self.conflicts.entry(feature).or_default().is_paused(now) {
            return observing("another agent writes the same cgroups");
        }
        if self.lock.is_none() {
            match take_lock(&config.state_dir) {
                Ok(lock) => match Checkpoint::read(&config.state_dir, &config.proc_root) {
                    Ok(checkpoint) => {
                        self.stored = checkpoint.clone();
                        (self.lock, self.checkpoint) = (Some(lock), checkpoint);
                    }
                    Err(error) => return Mode::Observing(error.to_string()),
                },
                Err(error) => return Mode::Observing(error.to_string()),
            }
        }
        Mode::Enforcing
    }

    /// Restores the settings without a required value, then writes the required values. Bursts come
    /// last: older kernels change them when a quota is written.
    pub(crate) fn reconcile(
        &mut self,
        pass: Pass<'_>,
        wanted: &RequiredValues,
        writes: &mut AllWrites,
    ) {
        let Pass { config, now, .. } = pass;
        if self.lock.is_none() {
            return;
        }
        let is_due = |key: &Key| !wanted.contains_key(key);
        let all_cpus = all_cpus(config);
        let restored =
            self.checkpoint.restore(&config.hierarchy, &all_cpus, &config.resizes, is_due);
        for kind in restored.done {
            writes.entry(kind.feature()).or_default().restored += 1;
        }
        for (kind, error) in &restored.failed {
            writes.entry(kind.feature()).or_default().errors.push(chain(error));
        }
        self.held.retain(|key| wanted.contains_key(key));
        self.zeroed.retain(|key, _| wanted.contains_key(key));
        self.rejected.retain(|key, (_, until)| wanted.contains_key(key) && *until > now);
        let (bursts, others): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(key, _)| key.1 == Kind::Burst);
        self.write_all(pass, &others, writes);
        self.write_all(pass, &bursts, writes);
        for (&feature, writes) in writes.iter() {
            if writes.repaired > 0 {
                self.conflicts.entry(feature).or_default().note(now);
            }
        }
    }

    /// Releases the lock if nothing is written any more.
    pub(crate) fn release_if_clean(&mut self) {
        if self.checkpoint.written.is_empty() {
            self.lock = None;
        }
    }

    /// Restores everything that was written, and releases the lock. Returns the number of restored
    /// settings and the errors.
    pub(crate) fn give_back(&mut self, config: &ActorConfig) -> (usize, Vec<Error>) {
        let all_cpus = all_cpus(config);
        let restored =
            self.checkpoint.restore(&config.hierarchy, &all_cpus, &config.resizes, |_| true);
        let mut errors: Vec<Error> = restored.failed.into_iter().map(|(_, error)| error).collect();
        if self.lock.is_some()
            && let Err(error) = self.checkpoint.write(&config.state_dir, &config.proc_root)
        {
            errors.push(error);
        }
        self.release_if_clean();
        (restored.done.len(), errors)
    }

    /// Writes the values that differ. The checkpoint holds each original value before the first
    /// write.
    fn write_all(&mut self, pass: Pass<'_>, wanted: &[(&Key, &Want)], writes: &mut AllWrites) {
        let mut due = Vec::new();
        for &(key, want) in wanted {
            let of_feature = writes.entry(key.1.feature()).or_default();
            match self.plan(pass, key, want, of_feature) {
                Ok(Some(change)) => due.push((key, change)),
                Ok(None) => {}
                Err(error) if error.is_vanished() => {}
                Err(error) => of_feature.errors.push(chain(&error)),
            }
        }
        if let Err(error) = self.store(pass.config) {
            // Without the original values on disk nothing may be written.
            let feature = due.first().map_or(Feature::BestEffort, |(key, _)| key.1.feature());
            writes.entry(feature).or_default().errors.push(chain(&error));
            return;
        }
        for (key, change) in in_order(due) {
            let writes = writes.entry(key.1.feature()).or_default();
            match self.write(pass, key, &change.to) {
                Ok(Outcome::Written) => writes.add(key.1, 1),
                Ok(Outcome::Rejected) => writes.rejected += 1,
                Ok(Outcome::Postponed) => {}
                Err(error) if error.is_vanished() => {}
                Err(error) => writes.errors.push(chain(&error)),
            }
        }
    }

    /// Writes a value that the checkpoint contains.
    fn write(&mut self, pass: Pass<'_>, key: &Key, value: &str) -> Result<Outcome> {
        let Pass { config, resizes, now, .. } = pass;
        let version = config.hierarchy.version;
        let Some(directory) = directory(&config.hierarchy, key) else {
            return Ok(Outcome::Written);
        };
        let write = |value: &str| match key.1 {
            Kind::Burst => config.resizes.write(resizes, &key.0, &directory, version, value),
            Kind::Quota => match self.checkpoint.written.get(key) {
                Some(was) => {
                    let write = || setting::write_quota(&directory, key.1, version, value, was);
                    config.resizes.hold(write).map(|()| true)
                }
                None => setting::write(&directory, key.1, version, value).map(|()| true),
            },
            kind => setting::write(&directory, kind, version, value).map(|()| true),
        };
        let written = write(value);
        if let Err(error) = &written
            && key.1 == Kind::Burst
            && error.is_rejected()
        {
            self.rejected.insert(key.clone(), (value.to_owned(), now + REJECTION));
            write(NO_BURST)?;
            self.checkpoint.written.entry(key.clone()).and_modify(|was| {
                (was.wrote, was.replaces) = (NO_BURST.to_owned(), None);
            });
            return Ok(Outcome::Rejected);
        }
        if !written? {
            return Ok(Outcome::Postponed);
        }
        // On disk it stays until the next change: a restart cannot know.
        for checkpoint in [&mut self.checkpoint, &mut self.stored] {
            checkpoint.written.entry(key.clone()).and_modify(|was| was.replaces = None);
        }
        Ok(Outcome::Written)
    }

    /// Stores the checkpoint if it differs from the one on disk.
    fn store(&mut self, config: &ActorConfig) -> Result<()> {
        if self.checkpoint != self.stored {
            self.checkpoint.write(&config.state_dir, &config.proc_root)?;
            self.stored.clone_from(&self.checkpoint);
        }
        Ok(())
    }

    /// Compares a setting with its required value. Returns the change to write, if any, after
    /// adding it and the original value to the checkpoint in memory.
    fn plan(
        &mut self,
        pass: Pass<'_>,
        key: &Key,
        want: &Want,
        writes: &mut Writes,
    ) -> Result<Option<ValueChange>> {
        let Pass { config, pods, now, .. } = pass;
        let version = config.hierarchy.version;
        let Some(directory) = directory(&config.hierarchy, key) else { return Ok(None) };
        let Some(found) = setting::read(&directory, key.1, version)? else { return Ok(None) };
        let inode = cgroupfs::inode(&directory)?;
        let known = self.checkpoint.written.get(key).filter(|was| was.inode == inode);
        let is_zeroed = key.1 == Kind::Burst
            && found.value == NO_BURST
            && known.is_some_and(|was| was.wrote != NO_BURST);
        let stays_zero = is_kept_at_zero(&mut self.zeroed, key, is_zeroed, now);
        let original = original_of(config, key, known, &found, writes);
        let period = match version {
            CgroupVersion::V1 => v1_period(&directory),
            CgroupVersion::V2 => None,
        };
        let value = match want.value(&original, version, period) {
            Some(value)
                if stays_zero || self.rejected.get(key).is_some_and(|(was, _)| *was == value) =>
            {
                NO_BURST.to_owned()
            }
            Some(value) => value,
            // Nothing to restrict: the original is at least as strict.
            None if known.is_none() => return Ok(None),
            None if original.value.is_empty() => all_cpus(config),
            None => original.value.clone(),
        };
        let is_held = version == CgroupVersion::V1
            && key.1 == Kind::Cpus
            && nested::holds(&directory, &value);
        if is_held && self.held.insert(key.clone()) {
            let cgroup = key.0.display();
            tracing::warn!(%cgroup, cpus = value, "cannot restrict the CPUs: a nested cpuset uses others");
        }
        if is_held && known.is_none() {
            return Ok(None);
        }
        let value = if is_held { found.value.clone() } else { value };
        let is_there = found.value == value;
        let replaces = (!is_there).then(|| found.value.clone());
        let (namespace, pod) = pod_name(pods, &key.0).unwrap_or_default();
        let written = Written { namespace, pod, inode, original, wrote: value.clone(), replaces };
        self.checkpoint.written.insert(key.clone(), written);
        Ok((!is_there).then_some(ValueChange { from: found.value, to: value }))
    }
}

/// The value to restore: that of the checkpoint, unless another program has written the setting
/// since, which counts as a repair.
fn original_of(
    config: &ActorConfig,
    key: &Key,
    known: Option<&Written>,
    found: &Original,
    writes: &mut Writes,
) -> Original {
    let is_ours = |was: &Written| {
        was.is_ours(key.1, &found.value)
            || key.1 == Kind::Burst && config.resizes.wrote(&key.0, &found.value)
    };
    let mut original = match known {
        Some(was) if is_ours(was) => was.original.clone(),
        Some(was) => {
            writes.repaired += 1;
            setting::rebase(&was.original, found.clone(), config.hierarchy.version)
        }
        None => found.clone(),
    };
    if key.1 == Kind::Quota {
        // One that another program has set since is the original now.
        let kept = known.zip(found.burst).and_then(|(was, burst)| was.burst(burst));
        original.burst = kept.or(found.burst);
    }
    original
}

/// Whether a burst is left at 0 because it was set to 0 too often. A kernel that divides does so
/// only at a resize, so it must be another program.
fn is_kept_at_zero(
    zeroed: &mut BTreeMap<Key, Conflicts>,
    key: &Key,
    is_zeroed: bool,
    now: Instant,
) -> bool {
    if !is_zeroed {
        return zeroed.get_mut(key).is_some_and(|passes| passes.is_paused(now));
    }
    let passes = zeroed.entry(key.clone()).or_default();
    passes.note(now);
    let is_paused = passes.is_paused(now);
    if is_paused {
        let cgroup = key.0.display();
        tracing::warn!(%cgroup, "another program sets the burst to 0; leaving it at 0 for ten minutes");
    }
    is_paused
}

/// Result of a write.
enum Outcome {
    Written,
    /// The kernel rejects the burst; the cgroup has none now.
    Rejected,
    /// A resize came since the decision.
    Postponed,
}

/// A change of a setting.
struct ValueChange {
    from: String,
    to: String,
}

impl ValueChange {
    /// Whether a quota or burst becomes smaller. No quota is larger than any.
    fn shrinks(&self) -> bool {
        let number =
            |text: &str| text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
        match (number(&self.from), number(&self.to)) {
            (Some(from), Some(to)) => to < from,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// Sorts changes: first the ones to smaller values, children before parents, then the others,
/// parents before children. A pod's value must cover its containers' at any moment.
fn in_order(due: Vec<(&Key, ValueChange)>) -> impl Iterator<Item = (&Key, ValueChange)> {
    let (shrinking, growing): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|(_, change)| change.shrinks());
    shrinking.into_iter().rev().chain(growing)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
        let keys = ["pod", "pod/a", "pod/b"].map(|path| (path.into(), Kind::Burst));
        let order = |values: [(&str, &str); 3]| {
            let change =
                |(from, to): (&str, &str)| ValueChange { from: from.into(), to: to.into() };
            let due = keys.iter().zip(values.map(change)).collect();
            in_order(due).map(|(key, _)| key.0.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(order([("0", "9"), ("0", "4"), ("0", "5")]), ["pod", "pod/a", "pod/b"]);
        assert_eq!(order([("9", "4"), ("4", "2"), ("5", "2")]), ["pod/b", "pod/a", "pod"]);
        let growing =
            [("max 100000", "8 100000"), ("9 100000", "2 100000"), ("2 100000", "6 100000")];
        assert_eq!(order(growing), ["pod/a", "pod", "pod/b"]);
    }

    proptest! {
        #[test]
        fn no_pod_has_a_lower_burst_than_its_containers_at_any_moment(
            from in proptest::collection::vec(0..100u64, 4),
            to in proptest::collection::vec(0..100u64, 4),
        ) {
            let with_pod = |containers: &[u64]| -> Vec<u64> {
                [containers.iter().sum()].iter().chain(containers).copied().collect()
            };
            let (mut now, goal) = (with_pod(&from), with_pod(&to));
            let keys = ["pod", "pod/a", "pod/b", "pod/c", "pod/d"];
            let keys = keys.map(|path| (path.into(), Kind::Burst));
            let changed = (0..5).filter(|&at| now[at] != goal[at]);
            let due = changed.map(|at| {
                (&keys[at], ValueChange { from: now[at].to_string(), to: goal[at].to_string() })
            });
            for (key, change) in in_order(due.collect()) {
                let at = keys.iter().position(|of| of == key).unwrap();
                now[at] = change.to.parse().unwrap();
                prop_assert!(now[0] >= now[1..].iter().sum(), "{now:?} on the way to {goal:?}");
            }
            prop_assert_eq!(now, goal);
        }
    }
}
