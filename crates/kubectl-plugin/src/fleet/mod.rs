//! `kubectl cpuwarden fleet`: who is slowed most and who slows others most, by workload, over all
//! nodes.

mod agents;
mod prometheus;
mod table;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use console::{Failure, HumanDuration, output};
use serde::Serialize;

use crate::args::ClusterArgs;
use prometheus::PrometheusUrl;

/// Window of the agents' figures and of the recorded series, seconds.
const TEN_MINUTES: u64 = 600;
/// Longest window, seconds.
const LONGEST: u64 = 30 * 24 * 3600;

/// Options of `kubectl cpuwarden fleet`.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Ask this Prometheus, which has the recording rules of cpuwarden, e.g. http://localhost:9090;
    /// --tls-cert, --server-name and --token-file are then about it [default: ask the agent of each
    /// node through the API server]
    #[arg(long, value_name = "URL", env = "CPUWARDEN_PROMETHEUS")]
    prometheus: Option<PrometheusUrl>,
    /// Window that ends now, from 10m to 30d, e.g. 24h; more than 10m needs --prometheus
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = window)]
    window: HumanDuration,
    /// Maximum number of workloads in each table
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: FleetFormat,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum FleetFormat {
    /// Three tables
    #[default]
    Table,
    /// JSON
    Json,
}

/// Parses a window.
fn window(text: &str) -> Result<HumanDuration, String> {
    let window = HumanDuration::from_seconds_or_text(text)?;
    if (TEN_MINUTES..=LONGEST).contains(&window.0.as_secs()) {
        Ok(window)
    } else {
        Err("use a time from 10m to 30d".to_owned())
    }
}

/// The workloads of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetReport {
    /// Length of the window, seconds. It ends now.
    window_seconds: u64,
    /// The source of the figures.
    source: Source,
    /// Workloads that others slow, most seconds first.
    victims: Vec<Victim>,
    /// Workloads that slow others, most seconds first.
    culprits: Vec<Culprit>,
    /// Workloads that CPU limits slow, most lost cores first.
    throttled: Vec<Throttled>,
}

/// Source of the figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
enum Source {
    /// The recorded series of a Prometheus.
    #[default]
    Prometheus,
    /// The agents.
    #[serde(rename_all = "camelCase")]
    Agents {
        /// Number of nodes with an agent.
        nodes: usize,
        /// Number of agents that did not answer.
        missing: usize,
        /// Number of nodes without the trace: they know that a pod is slowed, not by whom.
        untraced: usize,
        /// Requests to the API server: lists of the agents' pods, and for each agent a read of its
        /// pod and a forwarded port.
        api_server_requests: usize,
    },
}

/// Name of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
struct Name {
    /// External label of the Prometheus; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster: String,
    /// Namespace; `system` for the host, `several` if no workload alone is the cause, `unknown`.
    namespace: String,
    /// Name of the controller, or of a pod without one.
    workload: String,
}

/// A workload that others slow.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Victim {
    #[serde(flatten)]
    name: Name,
    /// Sum of the time in which its pods were slowed by others, seconds.
    slowed_seconds: f64,
    /// Number of nodes on which that occurred; over a longer window, the most at one time.
    nodes: usize,
    /// By whom, longest first.
    by: Vec<Share>,
}

/// A workload that slows others.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Culprit {
    #[serde(flatten)]
    name: Name,
    /// Sum of the time in which it alone slowed pods of others, seconds.
    harm_seconds: f64,
    /// Number of nodes on which that occurred; over a longer window, the most at one time.
    nodes: usize,
    /// Its victims, longest first.
    victims: Vec<Share>,
}

/// The other side of harm, with its part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Share {
    #[serde(flatten)]
    name: Name,
    /// Seconds of slowed pods.
    seconds: f64,
}

/// A workload that CPU limits slow.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Throttled {
    #[serde(flatten)]
    name: Name,
    /// Cores that it lost to its own limits or one above, on average.
    lost_cores: f64,
}

/// Time in which one workload slowed another: victim, cause, seconds.
type Pair = (Name, Name, f64);

/// Shows the worst workloads.
///
/// # Errors
/// A window without its source; no agent or Prometheus answers. If some agents do not answer, the
/// others are shown first.
pub(crate) fn fleet(args: &FleetArgs) -> Result<(), Failure> {
    let (window, limit) = (args.window.0.as_secs(), usize::from(args.limit));
    let report = match &args.prometheus {
        Some(url) => prometheus::report(url, &args.cluster, window, limit)?,
        None if window > TEN_MINUTES => {
            let error = "--window: agents keep ten minutes; set --prometheus to the URL of a \
                         Prometheus with the recording rules for more";
            return Err(Failure::config(error.to_owned()));
        }
        None => agents::report(&args.cluster, limit)?,
    };
    output::show(&match args.output {
        FleetFormat::Table => table::table(&report),
        FleetFormat::Json => {
            serde_json::to_string_pretty(&report).context("cannot print the workloads")? + "\n"
        }
    });
    match report.source {
        Source::Agents { nodes, missing, .. } if missing > 0 => {
            Err(Failure::unavailable(format!("no answer from {missing} of {nodes} nodes")))
        }
        _ => Ok(()),
    }
}

/// Most first, then by name; at most `limit`.
fn ranked<T>(
    mut rows: Vec<T>,
    limit: usize,
    value: impl Fn(&T) -> f64,
    name: impl Fn(&T) -> &Name,
) -> Vec<T> {
    rows.sort_by(|a, b| value(b).total_cmp(&value(a)).then_with(|| name(a).cmp(name(b))));
    rows.truncate(limit);
    rows
}

/// The other side of a workload's pairs, longest first. `own` and `other` select the sides.
fn shares(
    pairs: &[Pair],
    of: &Name,
    own: impl Fn(&Pair) -> &Name,
    other: impl Fn(&Pair) -> &Name,
) -> Vec<Share> {
    let of_it = pairs.iter().filter(|pair| own(pair) == of && pair.2 > 0.0);
    let rows = of_it.map(|pair| Share { name: other(pair).clone(), seconds: pair.2 });
    ranked(rows.collect(), usize::MAX, |share| share.seconds, |share| &share.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_between_ten_minutes_and_a_month() {
        for (text, seconds) in [("10m", 600), ("86400", 86_400), ("30d", LONGEST)] {
            assert_eq!(window(text).unwrap().0.as_secs(), seconds);
        }
        for text in ["1m", "31d"] {
            assert_eq!(window(text).unwrap_err(), "use a time from 10m to 30d");
        }
    }
}
