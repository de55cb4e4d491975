//! A cgroup that comes before everything else on the machine. In it, this process and its trees have
//! the same weight, whatever the weight of the cgroup from which the tests were started: neither
//! their loads nor the agents can starve.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Cgroup;
use crate::removal::{PAUSE, remove_each};

/// Maximum time until this process and its agents are back where they were.
const LEAVING: Duration = Duration::from_secs(10);

struct Stage {
    cgroup: Cgroup,
    /// Cgroup of this process and the agents that it starts.
    runner: Cgroup,
    /// `cgroup.procs` of the cgroup where this process was before.
    before: PathBuf,
}

/// The stage of this process, and the number of tests on it.
static STAGE: Mutex<Option<(Stage, usize)>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<(Stage, usize)>> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it exists, this process is on its stage.
#[derive(Debug)]
pub struct OnStage(());

impl OnStage {
    /// Moves this process to its stage, if it is not there yet.
    #[must_use]
    pub fn enter() -> Self {
        lock().get_or_insert_with(|| (Stage::enter(), 0)).1 += 1;
        Self(())
    }

    /// The cgroup that comes before everything else.
    #[must_use]
    pub fn cgroup(&self) -> Cgroup {
        lock().as_ref().expect("this process is on its stage").0.cgroup.clone()
    }
}

impl Drop for OnStage {
    fn drop(&mut self) {
        let mut stage = lock();
        if let Some((_, tests)) = &mut *stage {
            *tests -= 1;
            if *tests == 0 {
                *stage = None;
            }
        }
    }
}

impl Stage {
    fn enter() -> Self {
        let name = format!("cpuwarden-it-{}", std::process::id());
        let before = Cgroup::of_this_process().procs();
        let cgroup = Cgroup::create(name);
        let stage = Self { runner: cgroup.existing_child("runner"), cgroup, before };
        stage.cgroup.set_highest_weight();
        let runner = stage.cgroup.child("runner");
        // In v1, a cgroup without a part of the real-time budget has no real-time threads.
        for (cgroup, micros) in [(&stage.cgroup, "40000"), (&runner, "30000")] {
            if cgroup.dir("cpu").join("cpu.rt_runtime_us").exists() {
                cgroup.write("cpu", "cpu.rt_runtime_us", micros);
            }
        }
        fs::write(runner.procs(), std::process::id().to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", runner.procs().display()));
        stage
    }

    /// Moves this process, and the agents that outlive their trees, to where this process was.
    fn leave(&self) {
        for pid in fs::read_to_string(self.runner.procs()).unwrap_or_default().lines() {
            let _ = fs::write(&self.before, pid);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let deadline = Instant::now() + LEAVING;
        // Not with the processes in it: this is one of them, and other tests may start more.
        remove_each(&self.runner, |directory| {
            loop {
                self.leave();
                match fs::remove_dir(directory) {
                    Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                    done => return done,
                }
            }
        });
        remove_each(&self.cgroup, |directory| fs::remove_dir(directory));
    }
}
