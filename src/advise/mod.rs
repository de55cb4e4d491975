//! Advice to owners: what the agent gathers for it, and `cpuwarden advise`, which asks for it.

mod advisor;
mod arrivals;
mod client;
mod container_history;
mod program;
mod quotas;
mod render;
mod report;

use std::time::Duration;

use clap::ValueEnum;

use crate::cli::AdviseArgs;
use crate::exit::Failure;

pub(crate) use advisor::Advisor;
pub(crate) use arrivals::{ArrivalSampler, sample_arrivals};
use report::Report;

/// Longest round of the advisor and of the arrival sampler.
pub(crate) const ROUND: Duration = Duration::from_secs(10);

/// How advice is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A line a finding
    #[default]
    Table,
    /// As the API has it
    Json,
    /// The same as YAML
    Yaml,
    /// A strategic-merge patch of the workload a container, as YAML documents
    Patch,
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, or what answers is none.
pub(crate) fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let mut report: Report = client::get(&client::Endpoint::of(args)?, "/api/v1/advice")?;
    let is_wanted = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    report.containers.retain(|row| is_wanted(&args.namespace, &row.namespace) && is_wanted(&args.pod, &row.pod));
    crate::output::show(&render::render(&report, args.output)?);
    Ok(())
}
