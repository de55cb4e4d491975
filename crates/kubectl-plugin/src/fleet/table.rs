//! The workloads of a fleet as text.

use console::{HumanDuration, table};
use std::time::Duration;

use super::{FleetReport, Name, Share, Source};

/// Number of the other sides of harm in a line.
const SHOWN: usize = 3;

/// Three tables and the source of their figures.
pub(super) fn table(report: &FleetReport) -> String {
    let window = HumanDuration(Duration::from_secs(report.window_seconds));
    let victims = report.victims.iter().map(|row| {
        let seconds = format!("{:.0}", row.slowed_seconds);
        vec![name(&row.name), seconds, row.nodes.to_string(), others(&row.by, row.slowed_seconds)]
    });
    let culprits = report.culprits.iter().map(|row| {
        let seconds = format!("{:.0}", row.harm_seconds);
        vec![
            name(&row.name),
            seconds,
            row.nodes.to_string(),
            others(&row.victims, row.harm_seconds),
        ]
    });
    let throttled =
        report.throttled.iter().map(|row| vec![name(&row.name), format!("{:.2}", row.lost_cores)]);
    let mut text = section(
        &format!("slowed by others in the last {window}"),
        ", seconds of pods",
        &["WORKLOAD", "SLOWED", "NODES", "BY"],
        victims.collect(),
    );
    text += &section(
        &format!("slowing others in the last {window}"),
        ", seconds of pods",
        &["WORKLOAD", "SLOWED", "NODES", "VICTIMS"],
        culprits.collect(),
    );
    text += &section(
        "slowed by CPU limits",
        ", cores lost",
        &["WORKLOAD", "LOST"],
        throttled.collect(),
    );
    text + &source(&report.source)
}

fn section(title: &str, unit: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("Workloads {title}: none\n\n");
    }
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    format!("Workloads {title}{unit}:\n{}\n", table::render_with(&rows, 1..3.min(rows[0].len())))
}

fn source(source: &Source) -> String {
    match source {
        Source::Prometheus => "from the recorded series of Prometheus\n".to_owned(),
        Source::Agents { nodes, missing, untraced, api_server_requests } => {
            let silent = match missing {
                0 => String::new(),
                _ => format!(", {missing} without an answer"),
            };
            let blind = match untraced {
                0 => String::new(),
                _ => format!(", {untraced} without the trace, which do not know by whom"),
            };
            format!(
                "from the agents of {nodes} nodes{silent}{blind}: pods that are slowed now; \
                 {api_server_requests} requests to the API server\n"
            )
        }
    }
}

fn name(name: &Name) -> String {
    let Name { cluster, namespace, workload } = name;
    let cluster = if cluster.is_empty() { String::new() } else { format!("{cluster}: ") };
    match (&**namespace, &**workload) {
        ("system", "") => format!("{cluster}the host"),
        (word @ ("several" | "unknown"), "") => format!("{cluster}{word}"),
        _ => format!("{cluster}{namespace}/{workload}"),
    }
}

/// The largest shares, in percent.
fn others(shares: &[Share], of: f64) -> String {
    let shown = shares.iter().take(SHOWN);
    let mut parts: Vec<String> = shown
        .map(|share| format!("{} {:.0} %", name(&share.name), 100.0 * share.seconds / of))
        .collect();
    if shares.len() > SHOWN {
        parts.push(format!("{} more", shares.len() - SHOWN));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::{Culprit, Throttled, Victim};
    use super::*;

    fn of(namespace: &str, workload: &str) -> Name {
        Name { cluster: String::new(), namespace: namespace.into(), workload: workload.into() }
    }

    fn share(namespace: &str, workload: &str, seconds: f64) -> Share {
        Share { name: of(namespace, workload), seconds }
    }

    #[test]
    fn victims_and_culprits_are_shown_with_each_other() {
        let by = vec![
            share("batch", "report", 400.0),
            share("system", "", 50.0),
            share("several", "", 30.0),
            share("x", "y", 20.0),
        ];
        let report = FleetReport {
            window_seconds: 600,
            source: Source::Agents { nodes: 50, missing: 1, untraced: 2, api_server_requests: 101 },
            victims: vec![Victim {
                name: of("shop", "cart"),
                slowed_seconds: 500.0,
                nodes: 10,
                by,
            }],
            culprits: vec![Culprit {
                name: Name { cluster: "eu".into(), ..of("batch", "report") },
                harm_seconds: 400.0,
                nodes: 9,
                victims: vec![share("shop", "cart", 400.0)],
            }],
            throttled: vec![Throttled { name: of("shop", "web"), lost_cores: 1.25 }],
        };
        let expected = "\
Workloads slowed by others in the last 10m, seconds of pods:
WORKLOAD   SLOWED  NODES  BY
shop/cart     500     10  batch/report 80 %, the host 10 %, several 6 %, 1 more

Workloads slowing others in the last 10m, seconds of pods:
WORKLOAD          SLOWED  NODES  VICTIMS
eu: batch/report     400      9  shop/cart 100 %

Workloads slowed by CPU limits, cores lost:
WORKLOAD  LOST
shop/web  1.25

from the agents of 50 nodes, 1 without an answer, 2 without the trace, which do not know by whom: pods that are slowed now; 101 requests to the API server
";
        assert_eq!(table(&report), expected);
    }

    #[test]
    fn a_fleet_without_harm_is_said_to_have_none() {
        let report = FleetReport { window_seconds: 3600, ..FleetReport::default() };
        let expected = "\
Workloads slowed by others in the last 1h: none

Workloads slowing others in the last 1h: none

Workloads slowed by CPU limits: none

from the recorded series of Prometheus
";
        assert_eq!(table(&report), expected);
    }
}
