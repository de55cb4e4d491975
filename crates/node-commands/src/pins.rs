//! `cpuwarden pins`: pods with exclusive CPUs, whether the kernel agrees, and rejected requests.

use anyhow::Context;
use console::{Failure, output, table};
use pinning::{Checkpoint, NodeConfig, Pin, Rejection};
use serde::{Deserialize, Serialize};
use watchdog::errors::chain;
use yielding::Restricted;

use crate::drain::failure;

/// A pod with exclusive CPUs, or one whose request was rejected.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PinRow {
    /// A pod with exclusive CPUs.
    Pinned {
        /// The pod and its CPUs.
        #[serde(flatten)]
        pin: Pin,
        /// Whether every cgroup of the pod has exactly these CPUs, and no pod outside the allowed
        /// ones has any of them.
        verified: bool,
    },
    /// A rejected request; in JSON the key `reason` identifies it.
    Rejected(Rejection),
    /// A setting of a pod, such as a restriction of a best-effort pod; in JSON the key `setting`
    /// identifies it.
    Restricted(Restricted),
    /// Status of the running agent, if it does not write cpusets.
    NotInEffect {
        /// The reason.
        not_in_effect: String,
    },
}

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
        rows => show_rows(&rows.unwrap_or_default(), json),
    }
}

/// Prints pins and rejections.
///
/// # Errors
/// None that this program causes.
pub fn show_rows(rows: &[PinRow], json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(rows).context("cannot print the pins")? + "\n"
    } else {
        text(rows)
    };
    output::show(&text);
    Ok(())
}

/// Pods with exclusive CPUs, rejections, and the status of an agent that does not write; `None` if
/// there is nothing of this boot.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub fn pins(node: &NodeConfig) -> Result<Option<Vec<PinRow>>, Failure> {
    let checkpoint = Checkpoint::of_this_boot(&node.state_dir, &node.proc_root)
        .map_err(|error| failure(&error))?;
    let restricted = yielding::restricted(&node.state_dir, &node.proc_root)
        .map_err(|error| Failure::unavailable(format!("--state-dir: {}", chain(&error))))?;
    let not_in_effect = pinning::not_in_effect(&node.state_dir, &node.proc_root)
        .map_err(|error| failure(&error))?;
    if checkpoint.is_none() && restricted.is_empty() && not_in_effect.is_none() {
        return Ok(None);
    }
    let checkpoint = checkpoint.unwrap_or_default();
    let status = not_in_effect.map(|not_in_effect| PinRow::NotInEffect { not_in_effect });
    let rejected = checkpoint.rejections.values().cloned().map(PinRow::Rejected);
    let rejected: Vec<PinRow> =
        rejected.chain(restricted.into_iter().map(PinRow::Restricted)).chain(status).collect();
    if checkpoint.pins.is_empty() {
        return Ok(Some(rejected));
    }
    let verified = pinning::verified(node, &checkpoint).map_err(|error| failure(&error))?;
    let pinned =
        |(uid, pin): (String, Pin)| PinRow::Pinned { verified: verified.contains(&uid), pin };
    Ok(Some(checkpoint.pins.into_iter().map(pinned).chain(rejected).collect()))
}

fn text(rows: &[PinRow]) -> String {
    let mut pins =
        vec![["POD", "CLASS", "POLICY", "CPUS", "SINCE", "VERIFIED"].map(str::to_owned).to_vec()];
    let mut rejected = vec![["REJECTED", "REASON"].map(str::to_owned).to_vec()];
    let mut restricted =
        vec![["POD", "SETTING", "VALUE", "ORIGINAL", "CGROUP"].map(str::to_owned).to_vec()];
    let mut status = String::new();
    for row in rows {
        match row {
            PinRow::NotInEffect { not_in_effect } => {
                status = format!("pinning is not in effect: {not_in_effect}\n\n");
            }
            PinRow::Pinned { pin, verified } => pins.push(pin_cells(pin, *verified)),
            PinRow::Rejected(Rejection { namespace, pod, reason }) => {
                rejected.push(vec![name(namespace, pod), reason.clone()]);
            }
            PinRow::Restricted(row) => restricted.push(restricted_cells(row)),
        }
    }
    let pins = match pins.len() {
        1 => status + "no pod on this node has exclusive CPUs\n",
        _ => status + &table::render(&pins),
    };
    let more = [rejected, restricted].into_iter().filter(|table| table.len() > 1);
    more.fold(pins, |text, more| format!("{text}\n{}", table::render(&more)))
}

fn restricted_cells(row: &Restricted) -> Vec<String> {
    let Restricted { namespace, pod, cgroup, setting, value, original } = row;
    let pod = if pod.is_empty() { "-".to_owned() } else { name(namespace, pod) };
    vec![pod, setting.name().to_owned(), value.clone(), original.clone(), cgroup.clone()]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restricted_best_effort_pods_are_listed_with_their_original_values() {
        let restricted = Restricted {
            namespace: "jobs".into(),
            pod: "index-0".into(),
            cgroup: "kubepods/besteffort/poda".into(),
            setting: yielding::Kind::Idle,
            value: "1".into(),
            original: "0".into(),
        };
        let unknown =
            Restricted { namespace: String::new(), pod: String::new(), ..restricted.clone() };
        let rows = [restricted, unknown].map(PinRow::Restricted);
        assert_eq!(
            text(&rows),
            "no pod on this node has exclusive CPUs\n\n\
             POD           SETTING  VALUE  ORIGINAL  CGROUP\n\
             jobs/index-0  idle     1      0         kubepods/besteffort/poda\n\
             -             idle     1      0         kubepods/besteffort/poda\n"
        );
        assert_eq!(serde_json::to_value(&rows).unwrap()[0]["setting"], "idle");
    }

    #[test]
    fn the_reason_for_which_pinning_is_not_in_effect_is_printed_first() {
        let row = PinRow::NotInEffect { not_in_effect: "koordlet also places containers".into() };
        let rows = serde_json::to_string(&[row]).unwrap();
        assert_eq!(rows, r#"[{"not_in_effect":"koordlet also places containers"}]"#);
        let rows: Vec<PinRow> = serde_json::from_str(&rows).unwrap();
        assert_eq!(
            text(&rows),
            "pinning is not in effect: koordlet also places containers\n\n\
             no pod on this node has exclusive CPUs\n"
        );
    }

    #[test]
    fn rejections_are_printed_below_the_pins() {
        let rejected = || {
            PinRow::Rejected(Rejection {
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
}
