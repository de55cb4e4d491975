//! A week of ticks and months of churn on plain files, as fast as the parts of the agent can work:
//! fails if their memory, descriptors, series or recording grow. `cargo xtask soak` runs it.
//!
//! Arguments: pods of two containers, ticks, container starts per tick, and a file for the report.

#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

mod drive;
mod node;

use std::process::ExitCode;
use std::time::Instant;

use drive::Soak;

fn main() -> ExitCode {
    // Cargo adds --bench.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let at = |at: usize| arguments.get(at).map(String::as_str);
    let soak = Soak {
        pods: at(0).unwrap_or("20").parse().unwrap(),
        ticks: at(1).unwrap_or("600000").parse().unwrap(),
        starts: at(2).unwrap_or("5").parse().unwrap(),
        is_kernel_counted: true,
    };
    let began = Instant::now();
    let (report, outcome) = soak.run(|_| {});
    println!("{:.1} ms per tick", began.elapsed().as_secs_f64() * 1e3 / soak.ticks as f64);
    if let Some(path) = at(3) {
        std::fs::write(path, report).unwrap();
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
