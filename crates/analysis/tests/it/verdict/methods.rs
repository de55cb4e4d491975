//! The cases of `cargo bench --bench blame`: their causes by removal, and what is named, on simulated
//! streams and on those of a real kernel.

#[path = "../../../benches/blame/methods/mod.rs"]
mod blame;

use std::sync::OnceLock;

use blame::answer::{Answer, Score, Truth};
use blame::exact::Exact;
use blame::others::Method;
use blame::scenes::{Case, cases};
use blame::scheduler::Scheduler;
use blame::{Row, bursts, exact, recorded_rows, report, rows};

/// The victim waits less than this per time that it ran: nothing to cure.
const HARMLESS: f64 = 0.15;
/// What is left of the delay without its cause.
const CURED: f64 = 1.0 / 3.0;

fn all_rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(rows)
}

fn all_recorded() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(recorded_rows)
}

/// Workloads without which the victim waits at most a third as long.
fn cures(case: &Case) -> Vec<&'static str> {
    let scene = &case.scene;
    let before = exact(scene).delay();
    let with_threads = |pod: &usize| *pod != scene.victim && !scene.threads_of(*pod).is_empty();
    let others = (0..scene.pods.len()).filter(with_threads);
    let mut names: Vec<&str> = others.map(|pod| scene.pods[pod].workload).collect();
    names.dedup();
    let is_cure = |name: &&str| exact(&scene.without(name)).delay() <= CURED * before;
    names.retain(|name| before >= HARMLESS && is_cure(name));
    names
}

#[test]
fn the_cause_of_each_case_is_the_one_whose_removal_cures() {
    for case in cases() {
        let expected = match case.truth {
            Truth::One(name) => vec![name],
            Truth::Several | Truth::NoOther => Vec::new(),
        };
        assert_eq!(cures(&case), expected, "{}", case.name);
    }
}

#[test]
fn no_case_has_a_wrong_name() {
    for row in all_rows().iter().chain(all_recorded()) {
        let ours = &row.cells[0];
        assert_ne!(ours.score, Score::Wrong, "{}: {:?}", row.case.name, ours.answer);
    }
    let undecided = all_rows().iter().filter(|row| row.cells[0].score != Score::Right);
    let undecided: Vec<&str> = undecided.map(|row| row.case.name).collect();
    assert!(undecided.is_empty(), "{undecided:?}");
}

/// The exact integral of a recorded stream comes from its events.
#[test]
fn the_integral_of_a_stream_is_that_of_its_scheduler() {
    for case in cases() {
        let (events, exact) = Scheduler::run(&case.scene);
        let found = Exact::of(&case.scene, &events);
        assert_eq!((found.lost, found.ran), (exact.lost, exact.ran), "{}", case.name);
    }
}

#[test]
fn eight_cases_are_of_a_real_kernel() {
    assert!(all_recorded().len() >= 8);
    let ours = all_recorded().iter().map(|row| row.cells[0].error);
    assert!(ours.fold(0.0, f64::max) < 0.1, "the rules disagree with the integral");
}

#[test]
fn the_page_has_the_tables() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    for table in [report(all_rows()), report(all_recorded()), bursts::report()] {
        assert!(page.contains(&table), "benches/README.md needs this table:\n{table}");
    }
}

#[test]
fn each_other_method_names_the_cause_somewhere() {
    for (column, method) in Method::ALL.iter().enumerate() {
        let is_right = |row: &Row| {
            let cell = &row.cells[column + 1];
            cell.score == Score::Right && cell.answer != Answer::NoOther
        };
        assert!(all_rows().iter().any(is_right), "{}", method.name());
    }
}
