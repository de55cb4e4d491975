//! `cpuwarden snapshot`: copies the last minutes out of a running agent.

use std::path::PathBuf;

use clap::Args;
use console::{Failure, HumanDuration, output};

use crate::args::AgentArgs;
use crate::client::{AgentClient, block_on};

/// Options of `cpuwarden snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// The part of the history.
    #[command(flatten)]
    pub part: PartArgs,
    /// Options of the connection.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// The part of an agent's history to save.
#[derive(Debug, Args)]
pub struct PartArgs {
    /// Time before now, at most ten minutes, e.g. 90 (seconds) or 5m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = within_the_history)]
    pub last: HumanDuration,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Parses a time that the history covers.
fn within_the_history(text: &str) -> Result<HumanDuration, String> {
    let span = HumanDuration::from_seconds_or_text(text)?;
    let seconds = 1..=api::KEPT as u64;
    if seconds.contains(&span.0.as_secs()) {
        Ok(span)
    } else {
        Err(format!("use a time from 1s to {}s", seconds.end()))
    }
}

/// Writes the last seconds of a running agent to a file.
///
/// # Errors
/// The agent does not answer or keeps no history, or the file cannot be written.
pub fn snapshot(args: &SnapshotArgs) -> Result<(), Failure> {
    save(&AgentClient::new(&args.agent)?, &args.part)
}

/// Writes the last seconds of an agent's history to a file.
///
/// # Errors
/// See [`snapshot`].
pub fn save(client: &AgentClient, part: &PartArgs) -> Result<(), Failure> {
    let seconds = part.last.0.as_secs();
    let bytes = block_on(client.bytes(&format!("/api/v1/recording?seconds={seconds}")))?;
    let path = part.output.display();
    std::fs::write(&part.output, &bytes)
        .map_err(|error| Failure::config(format!("--output: cannot write {path}: {error}")))?;
    output::show(&format!("{path}: {} bytes; open it with cpuwarden replay {path}\n", bytes.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        for text in ["60", "60s", "1m"] {
            assert_eq!(within_the_history(text).unwrap().0, Duration::from_secs(60), "{text}");
        }
        for text in ["0", "601", "11m", "soon", ""] {
            assert!(within_the_history(text).is_err(), "{text}");
        }
    }
}
