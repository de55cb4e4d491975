//! A Prometheus with the recording rules as the source.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use agent_client::{AgentAddress, AgentArgs, AgentClient, ConnectionArgs, block_on};
use console::Failure;
use serde::Deserialize;

use super::{Culprit, FleetReport, Name, Pair, Source, TEN_MINUTES, Throttled, Victim};
use super::{ranked, shares};
use crate::args::ClusterArgs;

/// Maximum time for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest step of a window, seconds: the usual interval of the rules.
const SHORTEST_STEP: u64 = 60;
/// Maximum number of steps of a window.
const STEPS: u64 = 360;
/// Maximum number of pairs of workloads.
const PAIRS: usize = 1000;
/// Labels of a workload.
const KEY: &str = "cluster, namespace, workload";
/// Reasons for which others are the cause.
const OF_OTHERS: &str = r#"{reason=~"neighbor|system|unknown"}"#;
/// Reasons for which a CPU limit is the cause.
const OF_LIMITS: &str = r#"{reason=~"own_limit|ancestor_limit"}"#;

/// URL of a Prometheus: `http://HOST:PORT`, `https://HOST:PORT`, with or without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrometheusUrl {
    is_https: bool,
    address: AgentAddress,
    /// Path before `/api/v1`, without a slash at its end.
    path: String,
}

impl FromStr for PrometheusUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected http://HOST:PORT or https://HOST:PORT, e.g. http://localhost:9090";
        let (scheme, rest) = text.split_once("://").ok_or(form)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = format!("{scheme}://{host}").parse().map_err(|_| form)?;
        let is_plain = |char: char| char.is_ascii_graphic() && !"?#%".contains(char);
        if !path.chars().all(is_plain) {
            return Err(form.to_owned());
        }
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { is_https: scheme == "https", address, path })
    }
}

impl fmt::Display for PrometheusUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(out, "{scheme}://{}{}", self.address, self.path)
    }
}

/// Answer of `/api/v1/query`.
#[derive(Debug, Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Debug, Deserialize)]
struct Data {
    result: Vec<Sample>,
}

#[derive(Debug, Clone, Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    /// Time, and the number as text.
    value: (f64, String),
}

impl Sample {
    /// The workload of these labels.
    fn name(&self, namespace: &str, workload: &str) -> Name {
        let label = |name: &str| self.metric.get(name).cloned().unwrap_or_default();
        let [cluster, namespace, workload] = ["cluster", namespace, workload].map(label);
        Name { cluster, namespace, workload }
    }

    fn own(&self) -> Name {
        self.name("namespace", "workload")
    }

    /// The cause of a pair.
    fn aggressor(&self) -> Name {
        self.name("aggressor_namespace", "aggressor_workload")
    }

    /// The number; `None` if it is not finite.
    fn number(&self) -> Option<f64> {
        self.value.1.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// Asks a Prometheus.
pub(super) fn report(
    url: &PrometheusUrl,
    args: &ClusterArgs,
    window: u64,
    limit: usize,
) -> Result<FleetReport, Failure> {
    let client = client(url, args)?;
    let ask = |expression: &str| {
        let path = format!("{}/api/v1/query?query={}", url.path, percent_encoded(expression));
        block_on(client.get::<Answer>(&path)).map(|answer| answer.data.result)
    };
    let Queries { slowed, slowed_nodes, pairs, harm, harm_nodes, lost } =
        Queries::new(window, limit);
    let (slowed, harm, lost) = (ask(&slowed)?, ask(&harm)?, ask(&lost)?);
    if slowed.is_empty() && harm.is_empty() && lost.is_empty() && ask(ANY)?.is_empty() {
        return Err(Failure::unavailable(format!(
            "Prometheus at {url} has no series workload:cpuwarden_…: load deploy/rules/recording.yaml \
             (the chart's prometheusRule.enabled); with metrics=lean, set \
             config.metricsEnable=container_info"
        )));
    }
    let (slowed_nodes, harm_nodes) = (by_name(&ask(&slowed_nodes)?), by_name(&ask(&harm_nodes)?));
    let pairs: Vec<Pair> = ask(&pairs)?
        .iter()
        .filter_map(|sample| Some((sample.own(), sample.aggressor(), sample.number()?)))
        .collect();
    let nodes = |counted: &BTreeMap<Name, f64>, name: &Name| {
        counted.get(name).map_or(0, |count| count.round() as usize)
    };
    let victims = by_name(&slowed).into_iter().map(|(name, slowed_seconds)| Victim {
        nodes: nodes(&slowed_nodes, &name),
        by: shares(&pairs, &name, |pair| &pair.0, |pair| &pair.1),
        name,
        slowed_seconds,
    });
    let culprits = by_name(&harm).into_iter().map(|(name, harm_seconds)| Culprit {
        nodes: nodes(&harm_nodes, &name),
        victims: shares(&pairs, &name, |pair| &pair.1, |pair| &pair.0),
        name,
        harm_seconds,
    });
    let throttled =
        by_name(&lost).into_iter().map(|(name, lost_cores)| Throttled { name, lost_cores });
    Ok(FleetReport {
        window_seconds: window,
        source: Source::Prometheus,
        victims: ranked(victims.collect(), limit, |row| row.slowed_seconds, |row| &row.name),
        culprits: ranked(culprits.collect(), limit, |row| row.harm_seconds, |row| &row.name),
        throttled: ranked(throttled.collect(), limit, |row| row.lost_cores, |row| &row.name),
    })
}

/// Whether the rules are loaded.
const ANY: &str = "count(workload:cpuwarden_cpu_usage_cores:rate5m)";

/// Expressions of one report.
#[derive(Debug)]
struct Queries {
    slowed: String,
    slowed_nodes: String,
    pairs: String,
    harm: String,
    harm_nodes: String,
    lost: String,
}

impl Queries {
    /// Sums over all servers that record parts of the fleet. The window of ten minutes is that of
    /// the series themselves.
    fn new(window: u64, limit: usize) -> Self {
        let is_now = window <= TEN_MINUTES;
        let step = (window / STEPS).max(SHORTEST_STEP);
        let sum = |key: &str, series: &str| format!("sum by ({key}) ({series})");
        let over = |function: &str, sum: &str| format!("{function}(({sum})[{window}s:{step}s])");
        // A series is absent while nothing occurs, so an average over its samples is not one over
        // the window.
        let seconds = |key: &str, series: &str| match is_now {
            true => format!("{TEN_MINUTES} * {}", sum(key, series)),
            false => format!("{step} * {}", over("sum_over_time", &sum(key, series))),
        };
        let most = |series: &str| match is_now {
            true => sum(KEY, series),
            false => over("max_over_time", &sum(KEY, series)),
        };
        let top = |limit: usize, expression: &str| format!("topk({limit}, {expression} > 0)");
        let pair = format!("{KEY}, aggressor_namespace, aggressor_workload");
        let lost = sum(KEY, &format!("workload:cpuwarden_lost_cores:rate5m{OF_LIMITS}"));
        let lost = match is_now {
            true => lost,
            false => format!("{step} / {window} * {}", over("sum_over_time", &lost)),
        };
        Self {
            slowed: top(
                limit,
                &seconds(KEY, &format!("workload:cpuwarden_slowed_seconds:rate10m{OF_OTHERS}")),
            ),
            slowed_nodes: most("workload:cpuwarden_slowed_nodes:count10m"),
            pairs: top(PAIRS, &seconds(&pair, "workload:cpuwarden_slowed_by_seconds:rate10m")),
            harm: top(limit, &seconds(KEY, "workload:cpuwarden_harm_seconds:rate10m")),
            harm_nodes: most("workload:cpuwarden_harm_nodes:count10m"),
            lost: top(limit, &lost),
        }
    }
}

fn client(url: &PrometheusUrl, args: &ClusterArgs) -> Result<AgentClient, Failure> {
    if url.is_https && args.tls_cert.is_none() {
        let error = "--prometheus: https needs --tls-cert, the server's certificate or its CA's, \
                     and --server-name, a name in the certificate";
        return Err(Failure::config(error.to_owned()));
    }
    let agent = AgentArgs {
        address: url.address.clone(),
        tls_cert: args.tls_cert.clone(),
        connection: ConnectionArgs {
            server_name: args.server_name.clone(),
            insecure_skip_verify: false,
            token_file: args.token_file.clone(),
        },
    };
    Ok(AgentClient::new(&agent)?.for_prometheus().with_timeout(TIMEOUT))
}

fn by_name(samples: &[Sample]) -> BTreeMap<Name, f64> {
    samples.iter().filter_map(|sample| Some((sample.own(), sample.number()?))).collect()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_a_path() {
        for (text, shown, path) in [
            ("http://localhost:9090", "http://localhost:9090", ""),
            ("https://[::1]:9090/", "https://[::1]:9090", ""),
            (
                "http://mon.example:80/prometheus/",
                "http://mon.example:80/prometheus",
                "/prometheus",
            ),
        ] {
            let url: PrometheusUrl = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.path.as_str()), (shown, path));
        }
        for text in
            ["localhost:9090", "http://", "ftp://a:1", "http://a", "http://a:1/?x", "http://a:1/\n"]
        {
            let error = text.parse::<PrometheusUrl>().unwrap_err();
            assert!(error.starts_with("expected http://HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_longer_window_is_added_up_in_steps() {
        let now = Queries::new(600, 5);
        assert_eq!(
            now.harm,
            "topk(5, 600 * sum by (cluster, namespace, workload) (workload:cpuwarden_harm_seconds:rate10m) > 0)"
        );
        let day = Queries::new(86_400, 5);
        assert_eq!(
            day.harm,
            "topk(5, 240 * sum_over_time((sum by (cluster, namespace, workload) \
             (workload:cpuwarden_harm_seconds:rate10m))[86400s:240s]) > 0)"
        );
        assert!(day.lost.starts_with("topk(5, 240 / 86400 * sum_over_time(("), "{}", day.lost);
        assert!(day.harm_nodes.starts_with("max_over_time(("), "{}", day.harm_nodes);
        assert!(Queries::new(3600, 5).harm.contains("[3600s:60s]"), "no shorter than the rules");
    }
}
