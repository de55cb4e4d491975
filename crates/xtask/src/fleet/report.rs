//! What a Prometheus costs with a fleet, as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::server::{Cost, Prometheus, RULE_SECONDS, SCRAPE_SECONDS, Span};
use super::{FleetError, Options};
use crate::workspace;

/// Series of which a container has exactly one.
const CONTAINERS: &str = "cpuwarden_container_info";
const GIB: f64 = (1_u64 << 30) as f64;

/// Longest evaluation of a group of rules.
#[derive(Debug, Clone, Default)]
pub(super) struct Longest(Vec<(String, f64)>);

impl Longest {
    /// Takes the last evaluation of each group.
    pub(super) fn see(&mut self, groups: &[Value]) {
        for group in groups {
            let name = group["name"].as_str().unwrap_or_default();
            let seconds = group["evaluationTime"].as_f64().unwrap_or(0.0);
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, longest)) => *longest = longest.max(seconds),
                None => self.0.push((name.to_owned(), seconds)),
            }
        }
    }
}

/// Writes the report of a run between two moments. `nodes` are those of real and of replayed
/// agents.
pub(super) fn report(
    options: &Options,
    prometheus: &Prometheus,
    nodes: [usize; 2],
    [first, last]: [Cost; 2],
    longest: &Longest,
) -> io::Result<String> {
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let number =
        |expression: &str| Ok::<_, io::Error>(prometheus.number(expression)?.unwrap_or(0.0));
    let scraped = number("sum(scrape_samples_scraped)")?;
    let mut text = format!(
        "preset {}, {} real agents and {} replayed nodes, {} pods x 2 containers each, {seconds:.0} s\n\
         Prometheus {}, scrapes every {SCRAPE_SECONDS} s, rules every {RULE_SECONDS} s\n\n",
        options.preset,
        nodes[0],
        nodes[1],
        options.pods,
        prometheus.version()?,
    );
    let million = scraped / 1e6;
    let cores = (last.cpu_seconds - first.cpu_seconds) / seconds;
    let churn = (last.created_series - first.created_series) / seconds * 3600.0;
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<44} {value}");
    };
    row("targets up", format!("{:.0}", number("count(up == 1)")?));
    row("targets down", format!("{:.0}", number("count(up == 0)")?));
    row("series scraped", format!("{scraped:.0}"));
    row("series in the head, with recorded and replaced", format!("{:.0}", last.head_series));
    row("new series per hour", format!("{churn:.0}"));
    row("resident memory, GiB", format!("{:.2}", last.resident_bytes / GIB));
    row("heap, GiB", format!("{:.2}", last.heap_bytes / GIB));
    row("CPU, cores", format!("{cores:.2}"));
    let replayer = (last.replayer_seconds - first.replayer_seconds) / seconds;
    row("CPU of the replayer, cores", format!("{replayer:.2}"));
    row(
        "resident memory per million scraped, GiB",
        format!("{:.2}", last.resident_bytes / GIB / million),
    );
    row("CPU per million scraped, cores", format!("{:.2}", cores / million));
    for (name, expression) in [
        ("scrape, mean, s", "avg(scrape_duration_seconds)"),
        ("scrape, 99 %, s", "quantile(0.99, scrape_duration_seconds)"),
        ("scrape, longest, s", "max(scrape_duration_seconds)"),
    ] {
        row(name, format!("{:.3}", number(expression)?));
    }
    // A replaced pod must not be counted for the five minutes in which Prometheus looks back.
    let counts = format!("count({CONTAINERS})[{seconds:.0}s:{SCRAPE_SECONDS}s]");
    let [fewest, most] = [format!("min_over_time({counts})"), format!("max_over_time({counts})")];
    let number = |expression: &str| {
        let value = prometheus.number(expression)?;
        // `lean` does not have the series.
        Ok::<_, io::Error>(value.map_or("-".to_owned(), |value| format!("{value:.0}")))
    };
    let counted = format!("{} {}", number(&fewest)?, number(&most)?);
    row("containers counted in the run, least and most", counted);
    let appeared = format!("count(last_over_time({CONTAINERS}[{seconds:.0}s]))");
    row("containers that the run has had", number(&appeared)?);
    // All groups have been evaluated by now, with the last scrape.
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let groups = prometheus.rule_groups()?;
    prometheus.pause()?;
    rules(&mut text, prometheus, nodes.iter().sum(), &groups, longest, end)?;
    panels(&mut text, prometheus, end, seconds as u64)?;
    Ok(text)
}

/// Cost of each rule and group: one evaluation of each rule with the fleet's last state. The CPU
/// time does not depend on what else this machine does; the longest evaluation of the run does.
fn rules(
    text: &mut String,
    prometheus: &Prometheus,
    nodes: usize,
    groups: &[Value],
    Longest(longest): &Longest,
    end: u64,
) -> io::Result<()> {
    let at = Span { end, seconds: 0, step: 0 };
    let count = |name: &str| -> io::Result<f64> {
        let answer = prometheus.query_at(&format!("count({name})"), end)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|text| text.parse().ok()).unwrap_or(0.0))
    };
    let mut of_groups = String::new();
    let _ =
        writeln!(text, "\n{:<62} {:>12} {:>8} {:>8}", "rule", "input series", "series", "CPU, s");
    for group in groups {
        let (group_name, mut cpu) = (string(&group["name"]), 0.0);
        for rule in group["rules"].as_array().into_iter().flatten() {
            let (name, query) = (string(&rule["name"]), string(&rule["query"]));
            let input = names_in(query).into_iter().map(count).sum::<io::Result<f64>>()?;
            // Without the text of the answer, which a rule does not write.
            let cost = prometheus.timed(&format!("count({query})"), at)?;
            let made = count(&format!("({query})"))?;
            cpu += cost.cpu_seconds;
            let _ =
                writeln!(text, "{name:<62} {input:>12.0} {made:>8.0} {:>8.2}", cost.cpu_seconds);
        }
        let interval = group["interval"].as_f64().unwrap_or(RULE_SECONDS as f64);
        let share = 100.0 * cpu / interval;
        // An evaluation may take a tenth of the interval.
        let most_nodes = nodes as f64 * interval / (10.0 * cpu);
        let most_nodes = if cpu > 0.0 { format!("{most_nodes:.0}") } else { "-".to_owned() };
        let longest = longest.iter().find(|(name, _)| name == group_name);
        let longest = longest.map_or(0.0, |(_, seconds)| *seconds);
        let _ = writeln!(
            of_groups,
            "{group_name:<28} {interval:>11.0} {cpu:>8.2} {share:>14.1} {most_nodes:>16} {longest:>20.2}"
        );
    }
    let _ = writeln!(
        text,
        "\n{:<28} {:>11} {:>8} {:>14} {:>16} {:>20}\n{of_groups}",
        "group of rules",
        "interval, s",
        "CPU, s",
        "of interval, %",
        "nodes per server",
        "longest in the run, s"
    );
    Ok(())
}

/// Names of the product's series in an expression, each once.
fn names_in(expression: &str) -> BTreeSet<&str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let words = expression.split(|char| !is_part(char));
    words.filter(|word| word.starts_with("cpuwarden_") || word.contains(":cpuwarden_")).collect()
}

/// Cost of each query of the fleet board: now, or over the run.
fn panels(text: &mut String, prometheus: &Prometheus, end: u64, seconds: u64) -> io::Result<()> {
    let path = workspace::root().join("deploy/dashboards/fleet.json");
    let board: Value =
        serde_json::from_str(&fs::read_to_string(path)?).map_err(io::Error::other)?;
    let head = ["panel of the fleet board", "series", "CPU, s", "wall, s"];
    let _ = writeln!(text, "{:<46} {:>7} {:>8} {:>8}", head[0], head[1], head[2], head[3]);
    for panel in board["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = with_all(string(&target["expr"]));
            let seconds = if target["instant"] == true { 0 } else { seconds };
            let cost = prometheus.timed(&expression, Span { end, seconds, step: RULE_SECONDS })?;
            let name = format!("{} {}", string(&panel["title"]), string(&target["refId"]));
            let _ = writeln!(
                text,
                "{name:<46} {:>7} {:>8.2} {:>8.2}",
                cost.series, cost.cpu_seconds, cost.wall
            );
        }
    }
    Ok(())
}

/// Series that remote write has brought to another store; empty without one.
pub(super) fn stored(names: &[(String, f64)]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:<62} {:>8}\n", "in VictoriaMetrics, by remote write", "series");
    for (name, series) in names {
        let _ = writeln!(text, "{name:<62} {series:>8}");
    }
    text
}

/// The expression with every variable at All.
fn with_all(expression: &str) -> String {
    let names = ["$job", "$cluster", "$node", "$namespace"];
    names
        .iter()
        .fold(expression.to_owned(), |text, name| text.replace(&format!("\"{name}\""), "\".*\""))
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes the report to a file, and prints it.
pub(super) fn publish(text: &str, output: Option<&Path>) -> Result<(), FleetError> {
    print!("{text}");
    match output {
        Some(path) => fs::write(path, text).map_err(|error| FleetError::io(path, error)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_evaluation_of_each_group_stays() {
        let mut longest = Longest::default();
        for seconds in [0.2, 0.5, 0.1] {
            longest.see(&[serde_json::json!({ "name": "a", "evaluationTime": seconds })]);
        }
        assert_eq!(longest.0, [("a".to_owned(), 0.5)]);
    }

    #[test]
    fn the_input_of_a_rule_is_every_series_that_it_names() {
        let names = names_in(
            "rate(cpuwarden_a_total{x=\"y\"}[5m]) * on (pod) pod:cpuwarden_b:c / cpuwarden_a_total",
        );
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["cpuwarden_a_total", "pod:cpuwarden_b:c"]
        );
    }
}
