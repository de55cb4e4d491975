//! `cpuwarden advise`: prints the advice of a running agent.

use api::AdviceReport;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use console::{Failure, output};

use crate::args::AgentArgs;
use crate::client::{AgentClient, block_on};
use crate::render::{AdviceFormat, render};

/// Options of `cpuwarden advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Only containers of this namespace
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
    /// Only containers of this pod
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub pod: Option<String>,
    /// Output format: patch prints one strategic-merge patch per container
    #[arg(short, long, value_enum, default_value_t)]
    pub output: AdviceFormat,
    /// Options of the connection.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, or the answer is not advice.
pub fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let client = AgentClient::new(&args.agent)?;
    let mut report: AdviceReport = block_on(client.get("/api/v1/advice"))?;
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    report
        .containers
        .retain(|row| is_wanted(&args.namespace, &row.namespace) && is_wanted(&args.pod, &row.pod));
    output::show(&render(&report, args.output)?);
    Ok(())
}
