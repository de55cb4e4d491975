//! `cpuwarden advise`: prints the advice of a running agent.

mod render;

use advisor::Report;
use clap::ValueEnum;

pub(crate) use render::render;
#[cfg(feature = "kubectl")]
pub(crate) use render::{figures, patch_command};

use crate::cli::AdviseArgs;
use crate::client::{AgentClient, block_on};
use crate::exit::Failure;

/// Output format of advice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// One line per finding
    #[default]
    Table,
    /// JSON, as served by the API
    Json,
    /// The same as YAML
    Yaml,
    /// One strategic-merge patch of the workload per container, as YAML documents
    Patch,
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, or the answer is not advice.
pub(crate) fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let client = AgentClient::new(&args.agent)?;
    let mut report: Report = block_on(client.get("/api/v1/advice"))?;
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    report
        .containers
        .retain(|row| is_wanted(&args.namespace, &row.namespace) && is_wanted(&args.pod, &row.pod));
    crate::output::show(&render(&report, args.output)?);
    Ok(())
}
