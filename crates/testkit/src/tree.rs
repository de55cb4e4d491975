//! A kubepods-shaped tree of real cgroups, removed on drop.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Cgroup, OnStage, OwnedCgroup};

static TURN: Mutex<()> = Mutex::new(());

/// Waits for exclusive use of the CPUs: tests that load them or measure on them run alone. A failed
/// test releases it.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kubernetes QoS class, as in the kubelet's directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the classes")]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// `<own name>/tree-<number>/kubepods` with the QoS levels, as the kubelet creates them with the cgroupfs
/// driver.
///
/// Removed on drop with all processes in it, also during a panic.
#[derive(Debug)]
pub struct RealTree {
    root: OwnedCgroup,
    kubepods: Cgroup,
    _stage: OnStage,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl RealTree {
    /// A tree for load: while it exists, no other test of this process loads the CPUs.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it creates cgroups")]
    pub fn new() -> Self {
        Self::create(Some(turn()))
    }

    /// A tree for containers that use a small part of a CPU: other tests may load the CPUs.
    #[must_use]
    pub fn beside_others() -> Self {
        Self::create(None)
    }

    fn create(turn: Option<MutexGuard<'static, ()>>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let stage = OnStage::enter();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = OwnedCgroup::create(stage.cgroup().path().join(format!("tree-{number}")));
        let kubepods = root.child("kubepods");
        for level in ["burstable", "besteffort"] {
            kubepods.child(level);
        }
        Self { root, kubepods, _stage: stage, _turn: turn }
    }

    /// The cgroup above kubepods, which stands for the node's root cgroup.
    #[must_use]
    pub fn above(&self) -> &Cgroup {
        &self.root
    }

    /// The kubepods root.
    #[must_use]
    pub fn kubepods(&self) -> &Cgroup {
        &self.kubepods
    }

    /// Creates a pod's cgroup. Its containers are its children.
    pub fn pod(&self, qos: Qos, uid: &str) -> Cgroup {
        let level = match qos {
            Qos::Guaranteed => "",
            Qos::Burstable => "burstable",
            Qos::BestEffort => "besteffort",
        };
        Cgroup::create(self.kubepods.path().join(level).join(format!("pod{uid}")))
    }
}
