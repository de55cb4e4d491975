//! `cpuwarden pins`: pods with exclusive CPUs, whether the kernel agrees, and rejected requests.

use api::{Pin, PinRow, Restricted};
use console::{Failure, output};
use pinning::NodeConfig;
use state_dir::{PinningCheckpoint, SettingKey, Written, YieldingCheckpoint};

use crate::drain::failure;

/// Prints the pods with exclusive CPUs on this node, and the rejections.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub fn show_pins(node: &NodeConfig, json: bool) -> Result<(), Failure> {
    match pins(node)? {
        None if !json => {
            let state_dir = node.state_dir.display();
            output::show(&format!(
                "no pod on this node has exclusive CPUs: no checkpoint of this boot in {state_dir}\n"
            ));
            Ok(())
        }
        rows => console::show_pins(&rows.unwrap_or_default(), json),
    }
}

/// Pods with exclusive CPUs, rejections, and the status of an agent that does not write; `None` if
/// there is nothing of this boot.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub fn pins(node: &NodeConfig) -> Result<Option<Vec<PinRow>>, Failure> {
    let failed = |error: state_dir::Error| failure(&error.into());
    let checkpoint =
        PinningCheckpoint::of_this_boot(&node.state_dir, &node.proc_root).map_err(failed)?;
    let restricted =
        YieldingCheckpoint::read(&node.state_dir, &node.proc_root).map_err(failed)?.written;
    let not_in_effect = pinning::not_in_effect(&node.state_dir, &node.proc_root).map_err(failed)?;
    if checkpoint.is_none() && restricted.is_empty() && not_in_effect.is_none() {
        return Ok(None);
    }
    let checkpoint = checkpoint.unwrap_or_default();
    let status = not_in_effect.map(|not_in_effect| PinRow::NotInEffect { not_in_effect });
    let rejected = checkpoint.rejections.values().cloned().map(PinRow::Rejected);
    let rejected: Vec<PinRow> =
        rejected.chain(restricted.into_iter().map(restriction)).chain(status).collect();
    if checkpoint.pins.is_empty() {
        return Ok(Some(rejected));
    }
    let verified = pinning::verified(node, &checkpoint).map_err(|error| failure(&error))?;
    let pinned =
        |(uid, pin): (String, Pin)| PinRow::Pinned { verified: verified.contains(&uid), pin };
    Ok(Some(checkpoint.pins.into_iter().map(pinned).chain(rejected).collect()))
}

fn restriction(((path, setting), was): (SettingKey, Written)) -> PinRow {
    PinRow::Restricted(Restricted {
        namespace: was.namespace,
        pod: was.pod,
        cgroup: path.display().to_string(),
        setting: setting.name().to_owned(),
        value: was.wrote,
        original: was.original.value,
    })
}
