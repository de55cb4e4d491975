//! Scenes, methods, and the table.

pub(crate) mod answer;
mod attribution;
pub(crate) mod bursts;
pub(crate) mod exact;
pub(crate) mod others;
mod ours;
pub(crate) mod recorded;
mod scene;
pub(crate) mod scenes;
pub(crate) mod scheduler;
mod stream;

use answer::{Answer, Claim, Score, Unit};
use exact::Exact;
use others::Method;
use scene::{Event, Scene};
use scenes::{Case, cases};
use scheduler::Scheduler;

/// What a method got.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) answer: Answer,
    pub(crate) score: Score,
    pub(crate) error: f64,
}

/// A case and what each method got: ours, then [`Method::ALL`].
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) lost: f64,
    pub(crate) cells: Vec<Cell>,
}

pub(crate) fn exact(scene: &Scene) -> Exact {
    Scheduler::run(scene).1
}

/// On streams of the scheduler in virtual time.
pub(crate) fn rows() -> Vec<Row> {
    let simulated = |case: Case| {
        let (events, exact) = Scheduler::run(&case.scene);
        row(case, &events, &exact)
    };
    cases().into_iter().map(simulated).collect()
}

/// On streams of a real kernel.
pub(crate) fn recorded_rows() -> Vec<Row> {
    let recorded = |(case, events): (Case, Vec<Event>)| {
        let exact = Exact::of(&case.scene, &events);
        row(case, &events, &exact)
    };
    recorded::cases().into_iter().map(recorded).collect()
}

fn row(case: Case, events: &[Event], exact: &Exact) -> Row {
    let scene = &case.scene;
    let cell = |claim: Claim, unit| Cell {
        score: claim.answer.score(case.truth),
        error: claim.error(scene, exact, unit),
        answer: claim.answer,
    };
    let observed = others::observe(scene, events);
    let mut cells = vec![cell(ours::answer(scene, events), Unit::Union)];
    cells.extend(Method::ALL.map(|method| cell(method.answer(scene, &observed), method.unit())));
    let lost = exact.lost.iter().sum::<u64>() as f64 / 1e9;
    Row { case, lost, cells }
}

/// The two tables, as in `benches/README.md`.
pub(crate) fn report(rows: &[Row]) -> String {
    let names: Vec<&str> =
        std::iter::once("cpuwarden").chain(Method::ALL.map(Method::name)).collect();
    let mut text = String::from("| method | right | wrong | undecided | error, mean |\n");
    text += "|---|---|---|---|---|\n";
    for (column, name) in names.iter().enumerate() {
        let count = |score| rows.iter().filter(|row| row.cells[column].score == score).count();
        let [right, wrong, undecided] = [Score::Right, Score::Wrong, Score::Undecided].map(count);
        let errors: f64 = rows.iter().map(|row| row.cells[column].error).sum();
        let mean = errors / rows.len() as f64;
        text += &format!("| {name} | {right} | {wrong} | {undecided} | {mean:.2} s |\n");
    }
    text += "\n| case | cause | lost |";
    names.iter().for_each(|name| text += &format!(" {name} |"));
    text += "\n|---|---|---|";
    names.iter().for_each(|_| text += "---|");
    text += "\n";
    for row in rows {
        let truth = row.case.truth.text();
        text += &format!("| {} | {truth} | {:.1} s |", row.case.name, row.lost);
        row.cells.iter().for_each(|cell| text += &format!(" {} |", cell.text()));
        text += "\n";
    }
    text
}

impl Cell {
    fn text(&self) -> String {
        let said = match &self.answer {
            Answer::One(name) => name,
            Answer::Several => "several",
            Answer::NoOther => "no other",
            Answer::Unknown => "unknown",
        };
        match self.score {
            Score::Right => format!("right, {:.1} s", self.error),
            Score::Wrong => format!("**{said}**, {:.1} s", self.error),
            Score::Undecided => format!("{said}, {:.1} s", self.error),
        }
    }
}
