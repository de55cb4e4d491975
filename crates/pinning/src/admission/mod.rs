//! CPUs of new containers, decided before their first instruction.
//!
//! The passes publish their plan here; the container runtime's plugin asks for the CPUs of each new
//! container. An answer comes from memory: it never waits for a file or for the writes of a pass.
//! CPUs granted here are reserved until a pass has taken them into its plan.

mod attempts;
mod foreign;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use placement::{Class, Pod};
use rustix::event::{EventfdFlags, eventfd};

pub use foreign::ForeignContainer;
pub(crate) use foreign::{Claim, ForeignContainers};
pub(crate) use state::{AdmissionState, InEffect, Reservation};

/// Maximum wait for the runtime's first report of what runs, before the first pass.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// CPUs in which a container starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Class that the pod runs in.
    pub class: Class,
    /// The CPUs, never empty.
    pub cpus: CpuSet,
}

/// Shared handle: the passes on one side, the runtime's plugin on the other.
#[derive(Debug, Clone)]
pub struct Admission(Arc<SharedAdmission>);

#[derive(Debug)]
struct SharedAdmission {
    state: Mutex<AdmissionState>,
    /// Readable when a pass should run at once.
    wake: OwnedFd,
    /// Maximum age of a plan.
    max_age: Duration,
    created: Instant,
}

impl Admission {
    /// `interval` is that of the passes: without one for longer, nothing is placed.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(interval: Duration) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let max_age = interval * 2 + Duration::from_secs(5);
        let (state, created) = (Mutex::default(), Instant::now());
        Ok(Self(Arc::new(SharedAdmission { state, wake, max_age, created })))
    }

    /// CPUs for a new container of this pod; `None` if it must not be placed: pinning is not in
    /// effect, another program places the pod, or no CPU is certain to stay the pod's.
    #[must_use]
    pub fn start(&self, pod: &Pod, container_id: &str) -> Option<Placed> {
        let now = Instant::now();
        let mut state = self.0.state.lock().ok()?;
        let (placed, is_reserved) = state.start(pod, container_id, self.0.max_age, now)?;
        drop(state);
        if is_reserved {
            self.wake();
        }
        Some(placed)
    }

    /// CPUs of a container that was placed at its creation, for an update of its resources; `None`
    /// for any other container.
    #[must_use]
    pub fn keep(&self, pod: &Pod, container_id: &str) -> Option<Placed> {
        let (now, max_age) = (Instant::now(), self.0.max_age);
        let kept = self.change(|state| state.keep(pod, container_id, max_age, now))?;
        let (placed, is_reserved) = kept?;
        if is_reserved {
            self.wake();
        }
        Some(placed)
    }

    /// The runtime is about to give the pod the size that `pod` has. Its CPUs are reserved as those
    /// of a start; passes plan with this size until the list of pods has it, or for 10 s.
    pub fn resize(&self, pod: &Pod) {
        let (now, max_age) = (Instant::now(), self.0.max_age);
        self.wake_if(self.change(|state| state.resize(pod, max_age, now)));
    }

    /// Replaces the sandboxes, the containers that were placed at their creation, and the foreign
    /// ones, by id: the runtime is connected.
    pub fn synchronized(
        &self,
        sandboxes: BTreeSet<String>,
        placed: BTreeSet<String>,
        foreign: BTreeMap<String, ForeignContainer>,
    ) {
        let now = Instant::now();
        self.change(|state| state.synchronized(sandboxes, placed, foreign, now));
        self.wake();
    }

    /// Adds a pod's new sandbox, whose process only sleeps.
    pub fn sandbox_started(&self, id: &str) {
        self.change(|state| state.sandbox_started(id));
    }

    /// The runtime begins to create a container of this name (`namespace/pod/container`), with the
    /// CPUs of [`start`](Self::start) if `is_placed`. Returns whether it may have them: not after
    /// several creations that were never complete.
    #[must_use]
    pub fn creation_began(
        &self,
        pod_uid: &str,
        name: &str,
        container_id: &str,
        is_placed: bool,
    ) -> bool {
        let now = Instant::now();
        let begin = |state: &mut AdmissionState| {
            state.creation_began(pod_uid, name, container_id, is_placed, now)
        };
        self.change(begin).unwrap_or(true)
    }

    /// The runtime has created the container.
    pub fn creation_ended(&self, pod_uid: &str, name: &str) {
        let now = Instant::now();
        self.wake_if(self.change(|state| state.creation_ended(pod_uid, name, now)));
    }

    /// Adds a new container that may not be this agent's to place.
    pub fn start_foreign(&self, container_id: &str, container: ForeignContainer) {
        let now = Instant::now();
        self.change(|state| state.start_foreign(container_id, container, now));
        self.wake();
    }

    /// A container has ended. It may still be updated, until it is removed.
    pub fn container_stopped(&self, id: &str) {
        self.wake_if(self.change(|state| state.container_stopped(id)));
    }

    /// A container is gone.
    pub fn container_removed(&self, id: &str) {
        self.wake_if(self.change(|state| state.container_removed(id)));
    }

    /// A pod is gone with its sandbox; ends its reservation.
    pub fn pod_removed(&self, uid: &str, sandbox: &str) {
        let now = Instant::now();
        self.wake_if(self.change(|state| state.pod_removed(uid, sandbox, now)));
    }

    /// Whether a pass should wait for the runtime's report of what runs: without it, a container
    /// that another program places is not recognized.
    pub(crate) fn awaits_report(&self) -> bool {
        !self.lock().foreign().is_reported() && self.0.created.elapsed() < REPORT_TIMEOUT
    }

    /// `None` after a panic; the next pass starts with a new state.
    fn change<T>(&self, change: impl FnOnce(&mut AdmissionState) -> T) -> Option<T> {
        Some(change(&mut *self.0.state.lock().ok()?))
    }

    /// The state, for a pass. After a panic it is a new one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        if self.0.state.is_poisoned() {
            self.0.state.clear_poison();
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.renew();
            return state;
        }
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Descriptor that is readable when a pass should run at once.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Whether a pass should run at once; asked once.
    pub(crate) fn take_wake(&self) -> bool {
        rustix::io::read(&self.0.wake, &mut [0_u8; 8]).is_ok()
    }

    fn wake_if(&self, is_changed: Option<bool>) {
        if is_changed == Some(true) {
            self.wake();
        }
    }

    fn wake(&self) {
        // Writing eight bytes to an eventfd fails only if its counter is full, and then it is
        // readable anyway.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }
}
