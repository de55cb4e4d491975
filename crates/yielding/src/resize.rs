//! Bursts in force, and the resizes that the container runtime is about to write: the kernel
//! rejects a quota below the burst, so that the burst is lowered first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::rules::burst_usec_before_resize;
use kubepods::path::CgroupPath;
use watchdog::errors::chain;

use crate::setting::Place;
use crate::setting::burst::{self, is_divided};
use crate::{Error, Result, pods};

/// Time within which the runtime writes an announced quota, or has failed to.
const COMING: Duration = Duration::from_secs(60);

/// The bursts in force, shared by the actor and the plugin of the container runtime. The lock
/// protects single writes, never a pass.
#[derive(Debug, Clone, Default)]
pub struct Resizes(Arc<Mutex<ResizeTable>>);

#[derive(Debug, Default)]
struct ResizeTable {
    bursts: HashMap<PathBuf, Burst>,
    /// Cgroups with a burst, by the container's id or the pod's UID.
    cgroups: HashMap<Box<str>, PathBuf>,
    /// Quotas that the runtime is about to write, by the same names.
    coming: HashMap<Box<str>, Coming>,
    /// Number and time of the last resize of each pod, by its UID.
    resized: HashMap<Box<str>, (u64, Instant)>,
    /// Number of resizes so far.
    resizes: u64,
    /// Number of lowered bursts since the last pass.
    lowered: u64,
}

/// A written burst.
#[derive(Debug)]
struct Burst {
    place: Place,
    usec: u64,
}

#[derive(Debug, Clone, Copy)]
struct Coming {
    /// Microseconds; `None` if the limit is removed.
    quota: Option<u64>,
    at: Instant,
}

impl Resizes {
    /// Lowers the bursts of a pod's container and of the pod, as far as they are this program's, so
    /// that the kernel accepts the coming quota. Waits for at most one write of the actor.
    ///
    /// `quota_usec` is as in CRI: 0 leaves the quota as it is, a negative one removes it.
    pub fn container(&self, pod_uid: &str, id: &str, quota_usec: i64) {
        let Some(quota) = coming_quota(quota_usec) else { return };
        let mut table = self.lock();
        table.announce(pod_uid, id, quota);
        let Some(container) = table.cgroups.get(id).cloned() else { return };
        let by = table.lower(&container, |burst| burst_usec_before_resize(burst, quota));
        // The pod's burst is the sum of those of its containers, and the kubelet writes its quota
        // next.
        if let (Some(by), Some(pod)) = (by, container.parent()) {
            table.lower(pod, |burst| Some(burst.saturating_sub(by)));
        }
    }

    /// As [`Self::container`], for a pod's own quota.
    pub fn pod(&self, uid: &str, quota_usec: i64) {
        let Some(quota) = coming_quota(quota_usec) else { return };
        let mut table = self.lock();
        table.announce(uid, uid, quota);
        if let Some(pod) = table.cgroups.get(uid).cloned() {
            table.lower(&pod, |burst| burst_usec_before_resize(burst, quota));
        }
    }

    /// Begins a pass. Returns the number of resizes so far, and of the bursts that they lowered
    /// since the last pass.
    pub(crate) fn begin(&self, now: Instant) -> (u64, u64) {
        let mut table = self.lock();
        table.forget(now);
        (table.resizes, std::mem::take(&mut table.lowered))
    }

    /// The lower of a quota and the one that the runtime is about to write; `None` for a limit that
    /// is being removed. An announced quota that is in force is forgotten.
    pub(crate) fn lowest(&self, name: &str, quota: u64) -> Option<u64> {
        let mut table = self.lock();
        match table.coming.get(name) {
            Some(coming) if coming.quota == Some(quota) => {
                table.coming.remove(name);
                Some(quota)
            }
            Some(coming) => coming.quota.map(|coming| coming.min(quota)),
            None => Some(quota),
        }
    }

    /// Writes a burst that was decided after this number of resizes. Returns false if a resize of
    /// the pod came since, and the burst is above the one in force: the next pass decides again.
    pub(crate) fn write(
        &self,
        resizes: u64,
        path: &Path,
        place: &Place,
        value: &str,
    ) -> Result<bool> {
        let usec: u64 = value.parse().unwrap_or_default();
        let mut table = self.lock();
        let in_force = table.bursts.get(path).map_or(0, |burst| burst.usec);
        if table.resized_since(path, resizes) && usec > in_force {
            return Ok(false);
        }
        burst::write(place, usec)?;
        if let Some(name) = name_of(path) {
            table.cgroups.insert(name, path.to_owned());
        }
        table.bursts.insert(path.to_owned(), Burst { place: place.clone(), usec });
        Ok(true)
    }

    /// Restores a burst by `restore`.
    pub(crate) fn restore(&self, path: &Path, restore: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut table = self.lock();
        let restored = restore();
        if restored.as_ref().err().is_none_or(Error::is_vanished) {
            table.remove(path);
        }
        restored
    }

    /// Runs `write`, which writes a quota and may lower and rewrite the burst, without a resize in
    /// between.
    pub(crate) fn hold(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let _table = self.lock();
        write()
    }

    /// Forgets the burst of a cgroup that was removed.
    pub(crate) fn remove(&self, path: &Path) {
        self.lock().remove(path);
    }

    /// Whether this value of a cgroup's burst was written by this process.
    pub(crate) fn wrote(&self, path: &Path, found: &str) -> bool {
        self.lock().bursts.get(path).is_some_and(|burst| {
            let wrote = burst.usec.to_string();
            wrote == found || is_divided(found, &wrote)
        })
    }

    fn lock(&self) -> MutexGuard<'_, ResizeTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResizeTable {
    fn announce(&mut self, pod_uid: &str, name: &str, quota: Option<u64>) {
        let now = Instant::now();
        self.forget(now);
        self.resizes += 1;
        self.coming.insert(name.into(), Coming { quota, at: now });
        self.resized.insert(pod_uid.into(), (self.resizes, now));
    }

    /// Whether a cgroup's pod was resized after this number of resizes.
    fn resized_since(&self, path: &Path, resizes: u64) -> bool {
        let last = pods::parse(path).and_then(|cgroup| self.resized.get(&cgroup.pod()?.uid));
        last.is_some_and(|&(number, _)| number > resizes)
    }

    fn forget(&mut self, now: Instant) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < COMING;
        self.coming.retain(|_, coming| is_recent(coming.at));
        self.resized.retain(|_, &mut (_, at)| is_recent(at));
    }

    fn remove(&mut self, path: &Path) {
        self.bursts.remove(path);
        if let Some(name) = name_of(path) {
            self.cgroups.remove(&name);
        }
    }

    /// Writes the burst that `next` makes of the one in force, if any. Returns by how much it is
    /// lower.
    fn lower(&mut self, path: &Path, next: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
        let burst = self.bursts.get_mut(path)?;
        let usec = next(burst.usec).filter(|&usec| usec < burst.usec)?;
        match burst::write(&burst.place, usec) {
            Ok(()) => {
                let by = burst.usec - usec;
                let (cgroup, from_usec) = (path.display(), burst.usec);
                tracing::info!(%cgroup, from_usec, to_usec = usec, "burst lowered before a resize");
                burst.usec = usec;
                self.lowered += 1;
                Some(by)
            }
            Err(error) => {
                report(path, &error);
                None
            }
        }
    }
}

fn report(path: &Path, error: &Error) {
    if !error.is_vanished() {
        let (cgroup, error) = (path.display(), chain(error));
        tracing::warn!(%cgroup, error, "failed to lower a burst before a resize");
    }
}

/// The coming quota, microseconds, or none; `None` if it stays as it is.
fn coming_quota(quota_usec: i64) -> Option<Option<u64>> {
    (quota_usec != 0).then(|| u64::try_from(quota_usec).ok())
}

/// Name by which the runtime knows a cgroup that may have a burst: the container's id or the pod's
/// UID.
fn name_of(cgroup: &Path) -> Option<Box<str>> {
    match pods::parse(cgroup)? {
        CgroupPath::Container(container) => Some(container.id),
        CgroupPath::Pod(pod) => Some(pod.uid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kernel_text::CgroupVersion;

    use super::*;

    const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";
    const POD: &str = "kubepods/podaaaaaaaa-0000-4000-8000-000000000001";

    /// Bursts of a pod and its container, which is alone in it.
    struct Scene {
        dir: tempfile::TempDir,
        resizes: Resizes,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { dir: tempfile::tempdir().unwrap(), resizes: Resizes::default() };
            fs::create_dir_all(scene.dir.path().join(container())).unwrap();
            for path in [POD, &container()] {
                fs::write(scene.dir.path().join(path).join("cpu.max.burst"), "").unwrap();
                assert!(scene.write(0, path, "50"));
            }
            scene
        }

        fn write(&self, resizes: u64, path: &str, value: &str) -> bool {
            let place = Place { directory: self.dir.path().join(path), version: CgroupVersion::V2 };
            self.resizes.write(resizes, Path::new(path), &place, value).unwrap()
        }

        fn bursts(&self) -> [String; 2] {
            [POD, &container()].map(|path| {
                fs::read_to_string(self.dir.path().join(path).join("cpu.max.burst")).unwrap()
            })
        }
    }

    fn id() -> String {
        "c".repeat(64)
    }

    fn container() -> String {
        format!("{POD}/{}", id())
    }

    #[test]
    fn only_a_quota_that_needs_it_lowers_a_burst() {
        let scene = Scene::new();
        for unchanged in [0, 100, 51] {
            scene.resizes.container(UID, &id(), unchanged);
        }
        assert_eq!(scene.bursts(), ["50", "50"]);
        scene.resizes.container(UID, &id(), 50);
        assert_eq!(scene.bursts(), ["49", "49"]);
        scene.resizes.pod(UID, 20);
        assert_eq!(scene.bursts(), ["19", "49"]);
    }

    #[test]
    fn a_burst_decided_before_a_resize_of_its_pod_is_not_raised() {
        let scene = Scene::new();
        let (before, _) = scene.resizes.begin(Instant::now());
        scene.resizes.container(UID, &id(), 40);
        assert!(!scene.write(before, &container(), "45"));
        assert!(!scene.write(before, POD, "45"));
        assert_eq!(scene.bursts(), ["39", "39"]);
        assert!(scene.write(before, &container(), "30"), "a lower one");
        let (now, lowered) = scene.resizes.begin(Instant::now());
        assert_eq!(lowered, 2);
        assert!(scene.write(now, POD, "35"));
        scene.resizes.container("another", "one", 40);
        assert!(scene.write(now, &container(), "35"), "a resize of another pod");
    }

    #[test]
    fn an_announced_quota_counts_until_it_is_written_or_a_minute_has_passed() {
        let resizes = Resizes::default();
        let now = Instant::now();
        resizes.container(UID, "c", 10);
        assert_eq!((resizes.lowest("c", 40), resizes.lowest("d", 40)), (Some(10), Some(40)));
        assert_eq!(resizes.lowest("c", 10), Some(10), "written");
        assert_eq!(resizes.lowest("c", 40), Some(40), "the next one");
        resizes.container(UID, "c", -1);
        assert_eq!(resizes.lowest("c", 40), None, "removed");
        resizes.begin(now + COMING + Duration::from_secs(1));
        assert_eq!(resizes.lowest("c", 40), Some(40), "never written");
    }
}
