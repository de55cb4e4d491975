//! `cpuwarden drain`: returns all exclusive CPUs to the shared pool.

use std::path::Path;
use std::time::Duration;

use console::Failure;
use pinning::{DrainConfig, DrainOutcome, Error};
use watchdog::errors::chain;

/// Returns all exclusive CPUs to the shared pool, waiting up to `timeout` for a running agent to
/// release the lock. Returns the outcome as text.
///
/// # Errors
/// The cgroups that could not be restored.
pub fn drain(config: &DrainConfig, timeout: Duration) -> Result<String, Failure> {
    let outcome = pinning::drain(config, timeout).map_err(|error| failure(&error))?;
    outcome_text(outcome, &config.node.state_dir)
}

/// Converts an error to a command's failure, with the option that causes it and the remedy.
pub(crate) fn failure(error: &Error) -> Failure {
    let text = chain(error);
    match error {
        Error::State(state_dir::Error::File { .. }) => Failure::unavailable(format!(
            "--state-dir: {text}; set it to the agent's state directory, and run as root"
        )),
        // The text ends with the remedy.
        Error::State(state_dir::Error::Damaged { .. }) => {
            Failure::unavailable(format!("--state-dir: {text}"))
        }
        Error::State(state_dir::Error::Locked(_)) => {
            Failure::unavailable(format!("--state-dir: {text}; see the log of the agent"))
        }
        // The text ends with the remedy.
        Error::Unmatched { .. } => Failure::unavailable(format!("--cgroup-root: {text}")),
        Error::NoCpusets(_) => Failure::node(format!(
            "--cgroup-root: {text}; mount the host's cgroups, or set --kubepods"
        )),
        Error::Topology(_) => Failure::node(format!("--sys-root: {text}; mount the host's /sys")),
        Error::Kernel(_) | Error::NotEffective { .. } | Error::Steps(_) | Error::Watch(_) => {
            Failure::node(text)
        }
    }
}

fn outcome_text(outcome: DrainOutcome, state_dir: &Path) -> Result<String, Failure> {
    let (drained, by) = match outcome {
        DrainOutcome::Here(drained) => (drained, ""),
        DrainOutcome::ByAgent(Some(drained)) => (drained, " by the running agent"),
        DrainOutcome::ByAgent(None) => {
            return Ok(
                "the running agent has returned all exclusive CPUs to the shared pool\n".to_owned()
            );
        }
        DrainOutcome::Nothing => {
            let place = state_dir.display();
            return Ok(format!(
                "nothing to drain: no checkpoint of this boot in {place} (--every-pod widens every pod without \
                 exclusive CPUs of the kubelet)\n"
            ));
        }
    };
    if let Some(first) = drained.errors.first() {
        let count = drained.errors.len();
        return Err(Failure::unavailable(format!(
            "failed to widen {count} cpusets; the first: {first}"
        )));
    }
    Ok(format!("all pods can use all CPUs again ({} cpusets written{by})\n", drained.written))
}
