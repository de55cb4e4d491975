//! Writer of cgroups, the only one in this crate: writes the required values and restores the
//! settings that need none any more.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use state_dir::{Lock, Original, Setting, SettingKey, Written, YieldingCheckpoint};
use watchdog::errors::chain;

use crate::config::{ActorConfig, Feature};
use crate::conflicts::{Conflicts, pod_of};
use crate::mode::{Mode, Why};
use crate::nested;
use crate::pods::pod_name;
use crate::restore::restore_where;
use crate::setting::burst::NO_BURST;
use crate::setting::{Place, access};
use crate::want::Want;
use crate::{Error, Result};
use state_dir::ActingMode;

use order::{ValueChange, in_order};

/// Time for which a value that the kernel rejected is not written again.
const REJECTION: Duration = Duration::from_secs(600);

/// Required value of each setting to write. A setting that was written and is not in the map is
/// restored.
pub(crate) type RequiredValues = BTreeMap<SettingKey, Want>;

/// Writes of one feature in one pass.
#[derive(Debug, Default)]
pub struct Writes {
    /// Number of writes by setting.
    pub written: BTreeMap<Setting, u64>,
    /// Number of settings restored.
    pub restored: u64,
    /// Number of settings that another writer had changed.
    pub repaired: u64,
    /// Number of pods whose settings another writer now changes too often.
    pub conflicts: u64,
    /// Number of bursts that the kernel rejected; the cgroup has none then.
    pub rejected: u64,
    /// Number of pods whose bursts are left to another program since this pass.
    pub yielded: u64,
    /// Failed writes.
    pub errors: Vec<String>,
}

impl Writes {
    pub(crate) fn add(&mut self, setting: Setting, times: u64) {
        if times > 0 {
            *self.written.entry(setting).or_default() += times;
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

/// The lock, with the checkpoint that it protects.
#[derive(Debug)]
struct Held {
    _lock: Lock,
    checkpoint: YieldingCheckpoint,
    /// The checkpoint on disk.
    stored: YieldingCheckpoint,
}

impl Held {
    /// Takes the lock and adopts what an earlier process left.
    fn take(config: &ActorConfig) -> state_dir::Result<Self> {
        let lock = Lock::take(&config.state_dir, state_dir::Writer::Yielding)?;
        let checkpoint = YieldingCheckpoint::read(&config.state_dir, &config.proc_root)?;
        Ok(Self { _lock: lock, stored: checkpoint.clone(), checkpoint })
    }

    /// Stores the checkpoint if it differs from the one on disk.
    fn store(&mut self, config: &ActorConfig) -> Result<()> {
        if self.checkpoint != self.stored {
            self.checkpoint.write(&config.state_dir, &config.proc_root)?;
            self.stored.clone_from(&self.checkpoint);
        }
        Ok(())
    }
}

/// The writer, with the checkpoint of what it wrote.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// While no feature has written anything, another process may hold the lock.
    held: Option<Held>,
    conflicts: BTreeMap<Feature, Conflicts>,
    /// Values that the kernel rejected, and until when they are not tried again.
    rejected: BTreeMap<SettingKey, (String, Instant)>,
    /// Containers whose cpusets cannot shrink, because nested ones have other CPUs.
    unshrinkable: BTreeSet<SettingKey>,
    /// Pods in which another program set a burst before this one: theirs stay as they are.
    yielded: BTreeSet<Box<str>>,
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
        let switch = config.switch(feature);
        if switch != ActingMode::Enforce {
            return Mode::Observing(Why::Configured(feature, switch));
        }
        if draining {
            return Mode::Observing(Why::Drained);
        }
        if self.conflicts.get(&feature).is_some_and(|conflicts| conflicts.is_paused(now)) {
            return Mode::Observing(Why::Paused);
        }
        if self.held.is_none() {
            match Held::take(config) {
                Ok(held) => self.held = Some(held),
                Err(error) => return Mode::Observing(Why::NoState(chain(&error))),
            }
        }
        Mode::Enforcing
    }

    /// Restores the settings without a required value, then writes the required values. Bursts come
    /// last: older kernels change them when a quota is written.
    pub(crate) fn reconcile(
        &mut self,
        pass: Pass<'_>,
        mut wanted: RequiredValues,
        writes: &mut AllWrites,
    ) {
        let Pass { config, now, .. } = pass;
        self.yield_bursts(pass, &mut wanted, writes);
        let Some(held) = &mut self.held else { return };
        let is_due = |key: &SettingKey| !wanted.contains_key(key);
        let restored = restore_where(&mut held.checkpoint, config, is_due);
        for setting in restored.done {
            writes.entry(Feature::of(setting)).or_default().restored += 1;
        }
        for (setting, error) in &restored.failed {
            writes.entry(Feature::of(*setting)).or_default().errors.push(chain(error));
        }
        self.unshrinkable.retain(|key| wanted.contains_key(key));
        self.rejected.retain(|key, (_, until)| wanted.contains_key(key) && *until > now);
        let (bursts, others): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(key, _)| key.1 == Setting::Burst);
        self.write_all(pass, &others, writes);
        self.write_all(pass, &bursts, writes);
        for (&feature, conflicts) in &mut self.conflicts {
            let keys = wanted.keys().filter(|key| Feature::of(key.1) == feature);
            conflicts.judge(&keys.map(|key| pod_of(&key.0)).collect(), now);
        }
    }

    /// Removes the bursts of pods in which another program, such as the kubelet, set one first.
    fn yield_bursts(
        &mut self,
        pass: Pass<'_>,
        wanted: &mut RequiredValues,
        writes: &mut AllWrites,
    ) {
        let Pass { config, pods, .. } = pass;
        let Some(held) = &self.held else { return };
        let bursts = wanted.keys().filter(|key| key.1 == Setting::Burst);
        let others = bursts.filter(|key| is_set_by_another(config, &held.checkpoint, key));
        let others: BTreeMap<Box<str>, SettingKey> =
            others.map(|key| (pod_of(&key.0), key.clone())).collect();
        for (_, key) in others.iter().filter(|(pod, _)| !self.yielded.contains(*pod)) {
            let (namespace, pod) = pod_name(pods, &key.0).unwrap_or_default();
            tracing::info!(namespace, pod, cgroup = %key.0.display(), "another program sets the pod's bursts: left to it");
            writes.entry(Feature::Burst).or_default().yielded += 1;
        }
        wanted.retain(|key, _| key.1 != Setting::Burst || !others.contains_key(&pod_of(&key.0)));
        self.yielded = others.into_keys().collect();
    }

    /// Releases the lock if nothing is written any more.
    pub(crate) fn release_if_clean(&mut self) {
        self.held.take_if(|held| held.checkpoint.written.is_empty());
    }

    /// Restores everything that was written, and releases the lock. Returns the number of restored
    /// settings and the errors.
    pub(crate) fn give_back(&mut self, config: &ActorConfig) -> (usize, Vec<Error>) {
        let Some(held) = &mut self.held else { return (0, Vec::new()) };
        let restored = restore_where(&mut held.checkpoint, config, |_| true);
        let mut errors: Vec<Error> = restored.failed.into_iter().map(|(_, error)| error).collect();
        errors.extend(held.store(config).err());
        self.release_if_clean();
        (restored.done.len(), errors)
    }

    /// Writes the values that differ. The checkpoint holds each original value before the first
    /// write.
    fn write_all(
        &mut self,
        pass: Pass<'_>,
        wanted: &[(&SettingKey, &Want)],
        writes: &mut AllWrites,
    ) {
        let mut due = Vec::new();
        for &(key, want) in wanted {
            let of_feature = writes.entry(Feature::of(key.1)).or_default();
            match self.plan(pass, key, want, of_feature) {
                Ok(Some(change)) => due.push((key, change)),
                Ok(None) => {}
                Err(error) if error.is_vanished() => {}
                Err(error) => of_feature.errors.push(chain(&error)),
            }
        }
        let stored = self.held.as_mut().map_or(Ok(()), |held| held.store(pass.config));
        if let Err(error) = stored {
            // Without the original values on disk nothing may be written.
            let feature = due.first().map_or(Feature::BestEffort, |(key, _)| Feature::of(key.1));
            writes.entry(feature).or_default().errors.push(chain(&error));
            return;
        }
        for (key, change) in in_order(due) {
            let writes = writes.entry(Feature::of(key.1)).or_default();
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
    fn write(&mut self, pass: Pass<'_>, key: &SettingKey, value: &str) -> Result<Outcome> {
        let Pass { config, resizes, now, .. } = pass;
        let Some(held) = &mut self.held else { return Ok(Outcome::Written) };
        let Some(place) = Place::of(&config.hierarchy, key) else { return Ok(Outcome::Written) };
        let Some(was) = held.checkpoint.written.get(key) else { return Ok(Outcome::Written) };
        let plain = |value: &str| access(key.1).write(&place, value, was);
        let write = |value: &str| match key.1 {
            Setting::Burst => config.resizes.write(resizes, &key.0, &place, value),
            Setting::Quota => config.resizes.hold(|| plain(value)).map(|()| true),
            Setting::Idle | Setting::Cpus => plain(value).map(|()| true),
        };
        let written = write(value);
        if let Err(error) = &written
            && key.1 == Setting::Burst
            && error.is_rejected()
        {
            self.rejected.insert(key.clone(), (value.to_owned(), now + REJECTION));
            write(NO_BURST)?;
            held.checkpoint.written.entry(key.clone()).and_modify(|was| {
                (was.wrote, was.replaces) = (NO_BURST.to_owned(), None);
            });
            return Ok(Outcome::Rejected);
        }
        if !written? {
            return Ok(Outcome::Postponed);
        }
        // On disk it stays until the next change: a restart cannot know.
        for checkpoint in [&mut held.checkpoint, &mut held.stored] {
            checkpoint.written.entry(key.clone()).and_modify(|was| was.replaces = None);
        }
        Ok(Outcome::Written)
    }

    /// Compares a setting with its required value. Returns the change to write, if any, after
    /// adding it and the original value to the checkpoint in memory.
    fn plan(
        &mut self,
        pass: Pass<'_>,
        key: &SettingKey,
        want: &Want,
        writes: &mut Writes,
    ) -> Result<Option<ValueChange>> {
        let Pass { config, pods, now, .. } = pass;
        let Some(place) = Place::of(&config.hierarchy, key) else { return Ok(None) };
        let Some(found) = access(key.1).read(&place)? else { return Ok(None) };
        let Some(held) = &mut self.held else { return Ok(None) };
        let inode = cgroupfs::inode(&place.directory)?;
        let known = held.checkpoint.written.get(key).filter(|was| was.inode == inode);
        let is_ours = known.is_none_or(|was| is_ours(config, key, was, &found.value));
        // A kernel before 6.10 zeroes a burst only at a resize; again and again, it is a program.
        let is_zeroed = key.1 == Setting::Burst
            && found.value == NO_BURST
            && known.is_some_and(|was| was.wrote != NO_BURST);
        let conflicts = self.conflicts.entry(Feature::of(key.1)).or_default();
        let of = pod_of(&key.0);
        if !is_ours || is_zeroed {
            let (namespace, pod) = pod_name(pods, &key.0).unwrap_or_default();
            if conflicts.note(&of, &namespace, now) {
                writes.conflicts += 1;
                report_conflict(&namespace, &pod, key);
            }
        }
        if !is_ours && !conflicts.may_repair(&of, now) {
            return Ok(None);
        }
        writes.repaired += u64::from(!is_ours);
        let stays_zero = key.1 == Setting::Burst && conflicts.is_in_conflict(&of, now);
        let original = original_of(config, key, known, &found, is_ours);
        let value = match want.value(&original, &place) {
            Some(value)
                if stays_zero || self.rejected.get(key).is_some_and(|(was, _)| *was == value) =>
            {
                NO_BURST.to_owned()
            }
            Some(value) => value,
            // Nothing to restrict: the original is at least as strict.
            None if known.is_none() => return Ok(None),
            None if original.value.is_empty() => config.all_cpus(),
            None => original.value.clone(),
        };
        let is_unshrinkable = place.version == CgroupVersion::V1
            && key.1 == Setting::Cpus
            && nested::holds(&place.directory, &value);
        if is_unshrinkable && self.unshrinkable.insert(key.clone()) {
            let cgroup = key.0.display();
            tracing::warn!(%cgroup, cpus = value, "cannot restrict the CPUs: a nested cpuset uses others");
        }
        if is_unshrinkable && known.is_none() {
            return Ok(None);
        }
        let value = if is_unshrinkable { found.value.clone() } else { value };
        let is_there = found.value == value;
        let replaces = (!is_there).then(|| found.value.clone());
        let (namespace, pod) = pod_name(pods, &key.0).unwrap_or_default();
        let written = Written { namespace, pod, inode, original, wrote: value.clone(), replaces };
        held.checkpoint.written.insert(key.clone(), written);
        Ok((!is_there).then_some(ValueChange { from: found.value, to: value }))
    }
}

/// Whether the cgroup has a burst that was there before this agent wrote any.
fn is_set_by_another(
    config: &ActorConfig,
    checkpoint: &YieldingCheckpoint,
    key: &SettingKey,
) -> bool {
    let Some(place) = Place::of(&config.hierarchy, key) else { return false };
    let is_known =
        |was: &Written| cgroupfs::inode(&place.directory).is_ok_and(|inode| inode == was.inode);
    if checkpoint.written.get(key).is_some_and(is_known) {
        return false;
    }
    let found = access(key.1).read(&place).ok().flatten();
    found.is_some_and(|found| found.value.parse::<u64>().is_ok_and(|usec| usec > 0))
}

/// Whether this agent has written the value that was found.
fn is_ours(config: &ActorConfig, key: &SettingKey, was: &Written, found: &str) -> bool {
    access(key.1).is_ours(was, found)
        || key.1 == Setting::Burst && config.resizes.wrote(&key.0, found)
}

/// The value to restore: that of the checkpoint, unless another program has written the setting
/// since.
fn original_of(
    config: &ActorConfig,
    key: &SettingKey,
    known: Option<&Written>,
    found: &Original,
    is_ours: bool,
) -> Original {
    known.map_or_else(
        || found.clone(),
        |was| access(key.1).rebase(was, found.clone(), is_ours, config.hierarchy.version),
    )
}

fn report_conflict(namespace: &str, pod: &str, key: &SettingKey) {
    let (cgroup, setting) = (key.0.display(), key.1.name());
    tracing::warn!(
        namespace,
        pod,
        %cgroup,
        setting,
        "another program keeps changing a setting of this pod: for ten minutes it is repaired once in 10 s, and \
         bursts of the pod are 0"
    );
}

/// Result of a write.
enum Outcome {
    Written,
    /// The kernel rejects the burst; the cgroup has none now.
    Rejected,
    /// A resize came since the decision.
    Postponed,
}
