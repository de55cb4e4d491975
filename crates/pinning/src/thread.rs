//! The pinner's thread. It runs a pass per interval, and at once when cgroups appear. After a panic
//! it continues with a new pinner, as after a crash of the process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use kubepods::{ExclusiveCpus, PodIndex, Reported};
use placement::Profiles;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use watchdog::errors::chain;
use watchdog::{JoinedThread, RunEnd, restart_until_stopped};

use crate::pinner::{Pinner, PinnerConfig};
use crate::report::{PassReport, Trace};

/// Minimum time between two passes; a burst of new pods takes one pass.
const REST: Duration = Duration::from_millis(50);

/// Result of one round of the thread.
#[derive(Debug)]
pub enum Round {
    /// No pass: the pods are not known yet, or no new pinner could be created.
    Waited,
    /// One pass, with its report.
    Passed(Box<PassReport>),
    /// The pinner panicked; the next round uses a new one.
    Panicked,
}

/// State of the pods at one moment, and the kubelet's share in placing them.
#[derive(Debug, Clone, Default)]
pub struct NodePods {
    /// The pods.
    pub index: Arc<PodIndex>,
    /// CPUs that the kubelet gave exclusively to containers.
    pub exclusive: Arc<ExclusiveCpus>,
    /// The kubelet's CPU manager policy.
    pub policy: Arc<Reported<String>>,
}

/// Returns the state of the pods, or `None` while they are not known.
type Look = Box<dyn FnMut() -> Option<NodePods> + Send>;

/// Handle of the running thread; dropping it ends the thread after the pass in progress. Pinned
/// pods stay as they are.
#[derive(Debug)]
pub struct PinningThread {
    profiles: Sender<Profiles>,
    _thread: JoinedThread,
}

impl PinningThread {
    /// The profiles that are sent here replace the operator's from the next pass on.
    pub fn profiles(&self) -> Sender<Profiles> {
        self.profiles.clone()
    }
}

/// Starts the pinner on its own thread, `pinning`. That thread calls `pods` before each pass, and
/// `report` after every round. No pass runs while `pods` returns `None`.
///
/// # Errors
/// A descriptor or thread that cannot be created.
pub fn spawn(
    pinner: Pinner,
    pods: impl FnMut() -> Option<NodePods> + Send + 'static,
    interval: Duration,
    report: impl FnMut(Round) + Send + 'static,
) -> io::Result<PinningThread> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (profiles, new_profiles) = mpsc::channel();
    let inputs = PassInputs {
        config: pinner.config().clone(),
        pods: Box::new(pods),
        interval,
        stop: stop.try_clone()?,
        profiles: new_profiles,
        report: Box::new(report),
    };
    let stop = move || {
        // Writing eight bytes to an eventfd fails only if its counter is full, and then the thread
        // wakes up anyway.
        let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
    };
    let body = move || keep_pinning(pinner, inputs);
    Ok(PinningThread { profiles, _thread: JoinedThread::spawn("pinning", stop, body)? })
}

/// Inputs of the thread's passes.
struct PassInputs {
    /// For a new pinner after a panic; contains the profiles received last.
    config: PinnerConfig,
    pods: Look,
    interval: Duration,
    stop: OwnedFd,
    profiles: Receiver<Profiles>,
    report: Box<dyn FnMut(Round) + Send>,
}

/// Runs passes until stopped, with a new pinner after each panic: the panic drops the pinner and
/// with it the lock.
fn keep_pinning(pinner: Pinner, mut inputs: PassInputs) {
    let tree = Arc::clone(pinner.tree());
    let mut first = Some(pinner);
    let run = |inputs: &mut PassInputs| {
        let resume = || Pinner::resume(inputs.config.clone(), Some(&tree));
        match first.take().map_or_else(resume, Ok) {
            Ok(pinner) => {
                pass_until_stopped(pinner, inputs);
                Pinner::remove_status(&inputs.config);
                RunEnd::Stopped
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "failed to restart pinning; will retry");
                RunEnd::Failed
            }
        }
    };
    restart_until_stopped(&mut inputs, run, |inputs, end, pause| {
        (inputs.report)(match end {
            RunEnd::Panicked => Round::Panicked,
            RunEnd::Failed | RunEnd::Stopped => Round::Waited,
        });
        ready(&[inputs.stop.as_fd()], Instant::now() + pause)
    });
}

fn pass_until_stopped(mut pinner: Pinner, inputs: &mut PassInputs) {
    let PassInputs { config, pods, interval, stop, profiles, report } = inputs;
    loop {
        let began = Instant::now();
        if let Some(new) = profiles.try_iter().last() {
            config.profiles = new.clone();
            pinner.set_profiles(new);
        }
        report(match pods().filter(|_| !pinner.awaits_report()) {
            Some(NodePods { index, exclusive, policy }) => {
                let given: CpuSet = exclusive
                    .all()
                    .into_iter()
                    .filter(|&cpu| cpu < kernel_text::MAX_CPUS)
                    .collect();
                pinner.set_resources(exclusive);
                pinner.set_policy(policy);
                Round::Passed(Box::new(pinner.pass(&index, &given, &mut log)))
            }
            None => Round::Waited,
        });
        if wait(&mut pinner, stop, began + *interval) {
            return;
        }
    }
}

fn log(trace: Trace<'_>) {
    match trace {
        Trace::Intent(steps) => tracing::debug!(?steps, "planned the next writes"),
        Trace::Done(step) => tracing::debug!(?step, "applied a step"),
        Trace::Committed => tracing::debug!("wrote the checkpoint"),
    }
}

/// Waits for the deadline or, after [`REST`], for cgroup changes or reservations. Returns whether
/// the thread must stop.
fn wait(pinner: &mut Pinner, stop: &OwnedFd, deadline: Instant) -> bool {
    let rest = Instant::now() + REST;
    if ready(&[stop.as_fd()], rest.min(deadline)) {
        return true;
    }
    loop {
        // Changes that do not concern cpusets wake the thread, too.
        let now = Instant::now();
        let is_woken = pinner.take_wake();
        if is_woken || now >= deadline || pinner.has_changes(now) {
            return false;
        }
        let fds = [Some(stop.as_fd()), Some(pinner.watch_fd()), pinner.wake_fd()];
        if ready(&fds.into_iter().flatten().collect::<Vec<_>>(), deadline) {
            return true;
        }
    }
}

/// Polls until the deadline; returns whether the first descriptor is readable.
fn ready(fds: &[std::os::fd::BorrowedFd<'_>], deadline: Instant) -> bool {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let left = deadline.saturating_duration_since(Instant::now());
    // A timeout of days does not fit every kernel's clock; the interval is at most a minute.
    let timeout =
        Timespec { tv_sec: left.as_secs().min(60) as i64, tv_nsec: left.subsec_nanos().into() };
    // After an interrupted poll the wait is just shorter.
    let _ = poll(&mut polled, Some(&timeout));
    polled[0].revents().contains(PollFlags::IN)
}
