//! The runs and the tables as text.

use std::fmt::Write as _;

use crate::Runs;
use crate::model::{Limit, Removal, Scenario};
use crate::run::Outcome;
use crate::truth::Score;

fn removal(removal: Removal) -> String {
    match removal {
        Removal::Freeze(name) | Removal::Control(name) => format!("no {name}"),
        Removal::Lift(Limit::Own) => "no own limit".to_owned(),
        Removal::Lift(Limit::Above) => "no limit above".to_owned(),
        Removal::Raise(milli) => format!("request {milli}m"),
    }
}

/// One run, in several lines.
pub(crate) fn run(scenario: &Scenario, outcome: &Outcome) -> String {
    let Outcome { alone, together, truth, said, score, disturbance, .. } = outcome;
    let mut text = format!("{}: {score:?}", scenario.name);
    let of = |name: &str, latency: &crate::truth::Latency| {
        format!("{name} {:.1}/{:.0}", latency.mean_ms, latency.p99_ms)
    };
    write!(text, "\n  mean/p99 ms: {}, {}", of("alone", alone), of("all", together)).unwrap();
    for (what, latency) in &outcome.without {
        write!(text, ", {}", of(&removal(*what), latency)).unwrap();
    }
    let (truth, answer) = (truth.text(), said.answer.text());
    write!(text, "\n  truth: {truth} (made for: {}); said: {answer}", scenario.made_for).unwrap();
    write!(text, "\n  {}", said.words).unwrap();
    for victim in &said.other_victims {
        write!(text, "\n  also: {victim}").unwrap();
    }
    let (disturbance, wrong) = (disturbance.text(), outcome.wrong_seconds);
    write!(text, "\n  {disturbance}; wrong in the metric: {wrong:.1} s").unwrap();
    text
}

/// The table by scenario, and the sums.
pub(crate) fn all(scenarios: &[Scenario], runs: &[Runs]) -> String {
    let mut text = String::from(
        "\n| scenario | truth by removal | the agent | mean latency alone, with all | right | undecided | wrong | disturbed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut sums = [0; 4];
    for (scenario, Runs { counted: runs, disturbed }) in scenarios.iter().zip(runs) {
        let count = |score| runs.iter().filter(|run| run.score == score).count();
        let [right, undecided, wrong] = [Score::Right, Score::Undecided, Score::Wrong].map(count);
        for (sum, count) in sums.iter_mut().zip([right, undecided, wrong, *disturbed]) {
            *sum += count;
        }
        if runs.is_empty() {
            writeln!(text, "| {} | not counted | | | | | | {disturbed} |", scenario.name).unwrap();
            continue;
        }
        let truth = distinct(runs.iter().map(|run| run.truth.text()));
        let answer = distinct(runs.iter().map(|run| run.said.answer.text()));
        let mean = |of: fn(&Outcome) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        writeln!(
            text,
            "| {} | {truth} | {answer} | {:.1}, {:.1} ms | {right} | {undecided} | {wrong} | {disturbed} |",
            scenario.name,
            mean(|run| run.alone.mean_ms),
            mean(|run| run.together.mean_ms),
        )
        .unwrap();
    }
    let [right, undecided, wrong, disturbed] = sums;
    let all = runs.iter().flat_map(|runs| &runs.counted);
    // A sum of nothing is -0.0.
    let wrong_seconds = all.map(|run| run.wrong_seconds).fold(0.0, |sum, more| sum + more);
    writeln!(
        text,
        "| all | | | | {right} | {undecided} | {wrong} | {disturbed} |\n\n\
         Seconds charged to a wrong name in the metric: {wrong_seconds:.1}"
    )
    .unwrap();
    text
}

/// Each text once, in the order of the first.
fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join(" / ")
}
