//! The pods with exclusive CPUs on standard output.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use api::{Pin, PinRow, Rejection, Restricted};

use crate::failure::Failure;
use crate::{output, table};

/// Prints pins and rejections.
///
/// # Errors
/// None that this program causes.
pub fn show_pins(rows: &[PinRow], json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(rows).context("cannot print the pins")? + "\n"
    } else {
        text(rows)
    };
    output::show(&text);
    Ok(())
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
    vec![pod, setting.clone(), value.clone(), original.clone(), cgroup.clone()]
}

fn pin_cells(pin: &Pin, verified: bool) -> Vec<String> {
    let since = UNIX_EPOCH.checked_add(Duration::from_secs(pin.since));
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
    use std::process::Command;

    use super::*;

    #[test]
    fn control_characters_in_a_pods_name_do_not_reach_the_terminal() {
        let printed = Command::new(std::env::current_exe().unwrap())
            .args(["pins::tests::print_pins", "--exact", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.status.success(), "{text:?}");
        for name in ["jobs/\u{fffd}[2Jindex-0", "shop/web\u{fffd}2J"] {
            assert!(text.contains(name), "{text:?}");
        }
        assert!(!text.contains(['\x1b', '\u{9b}']), "{text:?}");
    }

    /// Runs in a process of its own.
    #[test]
    #[ignore = "started by another test"]
    fn print_pins() {
        let pin = Pin {
            namespace: "jobs".into(),
            pod: "\x1b[2Jindex-0".into(),
            cpu_qos: "LSE".into(),
            bind_policy: "FullPCPUs".into(),
            cpus: "0-1".into(),
            since: 0,
        };
        let rejection = Rejection {
            namespace: "shop".into(),
            pod: "web\u{9b}2J".into(),
            reason: "node_cap".into(),
        };
        let rows = [PinRow::Pinned { pin, verified: true }, PinRow::Rejected(rejection)];
        for json in [false, true] {
            show_pins(&rows, json).unwrap();
        }
    }

    #[test]
    fn restricted_best_effort_pods_are_listed_with_their_original_values() {
        let restricted = Restricted {
            namespace: "jobs".into(),
            pod: "index-0".into(),
            cgroup: "kubepods/besteffort/poda".into(),
            setting: "idle".into(),
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
