//! `cpuwarden doctor`: reports what the agent would find on this node with these options, with remedies.
//!
//! Uses the agent's own code (the pods service, a few ticks of the sampler), but opens no port and writes nothing.

mod examination;
mod finding;
mod node;
mod owners;
mod pinning;
mod pods;

use std::process::ExitCode;

use anyhow::Context;

use crate::cli::DoctorArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::output;
use crate::run;

use examination::Examination;
use finding::{Finding, Report};

/// Examines the node and prints the findings.
///
/// # Errors
/// Invalid options, or a closed standard output. Problems of the node are findings, not errors.
pub(crate) fn doctor(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let json = args.json;
    let config = args.run.resolve()?;
    let report = run::runtime()?.block_on(examine(config))?;
    let text = if json { serde_json::to_string_pretty(&report).context("cannot print")? } else { report.to_string() };
    output::show(&format!("{}\n", text.trim_end()));
    Ok(ExitCode::from(report.worst().exit_code()))
}

async fn examine(config: Config) -> Result<Report, Failure> {
    let examination = Examination::make(config).await?;
    let checks: [fn(&Examination) -> Vec<Finding>; 4] =
        [node::findings, pods::findings, owners::findings, pinning::findings];
    Ok(Report::new(checks.iter().flat_map(|check| check(&examination)).collect()))
}
