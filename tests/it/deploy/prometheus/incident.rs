//! Alerts and boards in the recorded incident.

use std::collections::HashMap;
use std::time::Instant;

use super::server::{Prometheus, Target};
use super::{PACE, at_pace, queries};
use crate::incident::saved;
use crate::support::eventually;
use crate::support::http::serve;

const TAKEN: &str = "cpuwarden_last_sample_timestamp_seconds";

/// Series and value of each sample of a page.
fn samples(page: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(of, value)| (of, value.parse().unwrap()))
}

/// Other pods that are slowed all the time: by their own threads, more than a panel shows; by the
/// host; and by a neighbor of which there is no series.
fn others(seconds: f64) -> String {
    let own = (0..30).map(|at| (format!("own-{at}"), "self"));
    let rest = [("host", "system"), ("lone", "neighbor")].map(|(pod, by)| (pod.to_owned(), by));
    let series = own.chain(rest).map(|(pod, reason)| {
        let labels = format!("namespace=\"other\",pod=\"{pod}\",reason=\"{reason}\"");
        format!("cpuwarden_pod_slowed_seconds_total{{{labels}}} {seconds}\n")
    });
    series.collect()
}

/// The page of the incident, whose counters grow as between the two recorded pages.
fn growing() -> impl Fn(&str) -> String {
    let ([before, after], began) = (["before.prom", "after.prom"].map(saved), Instant::now());
    move |_| {
        let first: HashMap<&str, f64> = samples(&before).collect();
        let taken = |page: &str| samples(page).find(|(series, _)| *series == TAKEN).unwrap().1;
        let elapsed = began.elapsed().as_secs_f64();
        let share = elapsed / (taken(&after) - taken(&before));
        let grown = samples(&after).map(|(series, last)| {
            let first = first.get(series).copied().unwrap_or(last);
            let name = series.split('{').next().unwrap();
            let value =
                if name.ends_with("_total") { first + share * (last - first) } else { last };
            format!("{series} {value}\n")
        });
        grown.chain([others(elapsed)]).collect()
    }
}

/// The series that a panel shows: values of these labels.
fn shown<const N: usize>(
    prometheus: &Prometheus,
    place: &str,
    labels: [&str; N],
) -> Vec<[String; N]> {
    let query = queries().into_iter().find(|query| query.place == place).unwrap();
    let series = prometheus.samples(&at_pace(&query.expression, PACE));
    let of = |labels_of: &serde_json::Value| {
        labels.map(|label| labels_of[label].as_str().unwrap_or("").to_owned())
    };
    series.iter().filter(|(_, value)| *value > 0.3).map(|(labels, _)| of(labels)).collect()
}

#[test]
fn alerts_and_boards_of_the_incident_name_the_victim_and_its_cause() {
    let target = Target { node: "node-1", address: serve(growing()), seconds: 1 };
    let prometheus = Prometheus::start(&[target], PACE);
    let of_checkout = |alerts: Vec<serde_json::Value>| {
        alerts.into_iter().find(|alert| alert["labels"]["pod"] == "checkout")
    };
    eventually("an alert about the victim and one about the culprit", || {
        of_checkout(prometheus.firing("ServiceSlowed")).is_some()
            && !prometheus.firing("NoisyNeighbor").is_empty()
    });
    let slowed = of_checkout(prometheus.firing("ServiceSlowed")).unwrap();
    let text = slowed["annotations"]["description"].as_str().unwrap();
    assert!(text.starts_with("shop/checkout on node node-1 was slowed"), "{text}");
    assert!(text.contains(" by batch/report."), "{text}");
    let noisy = prometheus.firing("NoisyNeighbor");
    let labels =
        |name: &str| noisy.iter().map(|alert| alert["labels"][name].clone()).collect::<Vec<_>>();
    assert_eq!(
        (labels("namespace"), labels("workload")),
        (vec!["batch".into()], vec!["report".into()])
    );

    let expected = [
        ["cart", "neighbor", "batch/report"],
        ["checkout", "neighbor", "batch/report"],
        ["host", "system", "system/"],
        ["lone", "neighbor", ""],
    ];
    for panel in ["fleet: Slowed pods", "node: Slowed pods"] {
        // A late scrape leaves a rate without a value.
        eventually(panel, || {
            let mut rows = shown(&prometheus, panel, ["pod", "reason", "cause"]);
            rows.sort();
            rows == expected
        });
    }
    let rows = shown(&prometheus, "pod: Slowed, by reason", ["pod", "reason"]);
    assert!(rows.contains(&["checkout", "neighbor"].map(str::to_owned)), "{rows:?}");
    let rows = shown(&prometheus, "pod: Slowed, by cause", ["pod", "aggressor_workload"]);
    assert!(rows.contains(&["checkout", "report"].map(str::to_owned)), "{rows:?}");
}
