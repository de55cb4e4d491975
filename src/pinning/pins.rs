//! `cpuwarden pins`: who has CPUs of its own, and whether the kernel agrees.

use anyhow::Context;
use cgroupfs::Hierarchy;
use pinning::{Checkpoint, Pin};
use serde::Serialize;

use super::table;
use crate::cli::JsonArgs;
use crate::config::{Config, chain};
use crate::exit::Failure;
use crate::output;

/// A pin and what the kernel says of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    pin: Pin,
    /// Every cgroup of the pod has exactly these CPUs, and no other pod that may not run there has one of them.
    verified: bool,
}

/// Prints the pins of this node.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub(crate) fn pins(args: JsonArgs) -> Result<(), Failure> {
    let config = args.run.resolve()?;
    let rows = rows(&config)?;
    if args.json {
        output::show(&(serde_json::to_string_pretty(&rows).context("cannot print the pins")? + "\n"));
    } else if rows.is_empty() {
        output::show("no pod on this node has CPUs of its own\n");
    } else {
        output::show(&text(&rows));
    }
    Ok(())
}

fn rows(config: &Config) -> Result<Vec<Row>, Failure> {
    let checkpoint = Checkpoint::of_this_boot(&config.pinning.state_dir, &config.proc_root)
        .map_err(|error| Failure::unavailable(chain(&error)))?;
    let Some(checkpoint) = checkpoint.filter(|checkpoint| !checkpoint.pins.is_empty()) else { return Ok(Vec::new()) };
    let hierarchy = Hierarchy::detect(&config.cgroup_root).map_err(|error| Failure::node(chain(&error)))?;
    let kubepods = config.kubepods.iter().cloned().collect();
    let verified = pinning::verified(&hierarchy, kubepods, &config.sys_root, &checkpoint);
    let verified = verified.map_err(|error| Failure::node(chain(&error)))?;
    let row = |(uid, pin): (String, Pin)| Row { verified: verified.contains(&uid), pin };
    Ok(checkpoint.pins.into_iter().map(row).collect())
}

fn text(rows: &[Row]) -> String {
    let head = ["POD", "CLASS", "POLICY", "CPUS", "SINCE", "VERIFIED"].map(str::to_owned).to_vec();
    let since = |pin: &Pin| {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(pin.since);
        humantime::format_rfc3339_seconds(at).to_string()
    };
    let row = |Row { pin, verified }: &Row| {
        let name = if pin.namespace.is_empty() { pin.pod.clone() } else { format!("{}/{}", pin.namespace, pin.pod) };
        let verified = if *verified { "yes" } else { "NO" };
        vec![name, pin.cpu_qos.clone(), pin.bind_policy.clone(), pin.cpus.clone(), since(pin), verified.to_owned()]
    };
    table::render(&std::iter::once(head).chain(rows.iter().map(row)).collect::<Vec<_>>())
}
