//! `cpuwarden pins`: pods with exclusive CPUs, whether the kernel agrees, and rejected requests.

use anyhow::Context;
use kubelet::chain;
use pinning::{Checkpoint, Pin, Rejection};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yielding::Restricted;

use super::{failure, node_config};
use crate::check::{self, check_machine};
use crate::cli::JsonArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::{output, table};

/// A pod with exclusive CPUs, or one whose request was rejected.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Row {
    Pinned {
        #[serde(flatten)]
        pin: Pin,
        /// Whether every cgroup of the pod has exactly these CPUs, and no pod outside the allowed
        /// ones has any of them.
        verified: bool,
    },
    /// A rejected request; in JSON the key `reason` identifies it.
    Rejected(Rejection),
    /// A restricted best-effort pod; in JSON the key `setting` identifies it.
    Restricted(Restricted),
}

/// Prints the pods with exclusive CPUs on this node, and the rejections.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub(crate) fn pins(args: JsonArgs) -> Result<(), Failure> {
    args.run.within(|config| {
        match rows(config)? {
            None if !args.json => {
                let state_dir = config.options.state_dir.display();
                output::show(&format!(
                    "no pod on this node has exclusive CPUs: no checkpoint of this boot in {state_dir}\n"
                ));
                Ok(())
            }
            rows => show_rows(&rows.unwrap_or_default(), args.json),
        }
    })
}

/// Prints pins and rejections.
///
/// # Errors
/// None that this program causes.
pub(crate) fn show_rows(rows: &[Row], json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(rows).context("cannot print the pins")? + "\n"
    } else {
        text(rows)
    };
    output::show(&text);
    Ok(())
}

/// The JSON form of [`pins`].
///
/// # Errors
/// As [`pins`].
pub(crate) fn pins_json(config: &Config) -> Result<Value, Failure> {
    let rows = rows(config)?.unwrap_or_default();
    Ok(serde_json::to_value(rows).context("cannot print the pins")?)
}

/// Pods with exclusive CPUs, and rejections; `None` without a checkpoint of this boot.
fn rows(config: &Config) -> Result<Option<Vec<Row>>, Failure> {
    check_machine(config)?;
    let node = node_config(config, check::hierarchy(config)?);
    let checkpoint = Checkpoint::of_this_boot(&node.state_dir, &node.proc_root)
        .map_err(|error| failure(&error))?;
    let restricted = yielding::restricted(&node.state_dir, &node.proc_root)
        .map_err(|error| Failure::unavailable(format!("--state-dir: {}", chain(&error))))?;
    if checkpoint.is_none() && restricted.is_empty() {
        return Ok(None);
    }
    let checkpoint = checkpoint.unwrap_or_default();
    let rejected = checkpoint.rejections.values().cloned().map(Row::Rejected);
    let rejected: Vec<Row> = rejected.chain(restricted.into_iter().map(Row::Restricted)).collect();
    if checkpoint.pins.is_empty() {
        return Ok(Some(rejected));
    }
    let verified = pinning::verified(&node, &checkpoint).map_err(|error| failure(&error))?;
    let pinned = |(uid, pin): (String, Pin)| Row::Pinned { verified: verified.contains(&uid), pin };
    Ok(Some(checkpoint.pins.into_iter().map(pinned).chain(rejected).collect()))
}

fn text(rows: &[Row]) -> String {
    let mut pins =
        vec![["POD", "CLASS", "POLICY", "CPUS", "SINCE", "VERIFIED"].map(str::to_owned).to_vec()];
    let mut rejected = vec![["REJECTED", "REASON"].map(str::to_owned).to_vec()];
    let mut restricted =
        vec![["BEST EFFORT", "SETTING", "VALUE", "ORIGINAL"].map(str::to_owned).to_vec()];
    for row in rows {
        match row {
            Row::Pinned { pin, verified } => pins.push(pin_cells(pin, *verified)),
            Row::Rejected(Rejection { namespace, pod, reason }) => {
                rejected.push(vec![name(namespace, pod), reason.clone()]);
            }
            Row::Restricted(Restricted { cgroup, setting, value, original }) => {
                let setting = setting.name().to_owned();
                restricted.push(vec![cgroup.clone(), setting, value.clone(), original.clone()]);
            }
        }
    }
    let pins = match pins.len() {
        1 => "no pod on this node has exclusive CPUs\n".to_owned(),
        _ => table::render(&pins),
    };
    let more = [rejected, restricted].into_iter().filter(|table| table.len() > 1);
    more.fold(pins, |text, more| format!("{text}\n{}", table::render(&more)))
}

fn pin_cells(pin: &Pin, verified: bool) -> Vec<String> {
    let since = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(pin.since));
    let since =
        since.map(|at| humantime::format_rfc3339_seconds(at).to_string()).unwrap_or_default();
    let verified = if verified { "yes" } else { "NO" };
    let name = name(&pin.namespace, &pin.pod);
    vec![
        name,
        pin.cpu_qos.clone(),
        pin.bind_policy.clone(),
        pin.cpus.clone(),
        since,
        verified.to_owned(),
    ]
}

fn name(namespace: &str, pod: &str) -> String {
    if namespace.is_empty() { pod.to_owned() } else { format!("{namespace}/{pod}") }
}

#[test]
fn restricted_best_effort_pods_are_listed_with_their_original_values() {
    let restricted = Restricted {
        cgroup: "kubepods/besteffort/poda".into(),
        setting: yielding::Kind::Idle,
        value: "1".into(),
        original: "0".into(),
    };
    let rows = [Row::Restricted(restricted)];
    assert_eq!(
        text(&rows),
        "no pod on this node has exclusive CPUs\n\n\
         BEST EFFORT               SETTING  VALUE  ORIGINAL\n\
         kubepods/besteffort/poda  idle     1      0\n"
    );
    assert_eq!(serde_json::to_value(&rows).unwrap()[0]["setting"], "idle");
}

#[test]
fn rejections_are_printed_below_the_pins() {
    let rejected = || {
        Row::Rejected(Rejection {
            namespace: "shop".into(),
            pod: "web".into(),
            reason: "node_cap".into(),
        })
    };
    let text = text(&[rejected()]);
    assert_eq!(
        text,
        "no pod on this node has exclusive CPUs\n\nREJECTED  REASON\nshop/web  node_cap\n"
    );
    let json = serde_json::to_value([rejected()]).unwrap();
    assert_eq!(json[0]["reason"], "node_cap");
}
