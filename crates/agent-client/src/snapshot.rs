//! `cpuwarden snapshot`: copies a part of the history out of a running agent.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use console::{Failure, HumanDuration, Moment, output};

use crate::args::AgentArgs;
use crate::client::{AgentClient, block_on};

/// Maximum length of a file, seconds.
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Time in which an agent must answer: a day of its recording takes seconds to read.
pub const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Length of the file, up to 24h, e.g. 90 (seconds) or 5m. Beyond the last ten minutes the agent
    /// must record; more than half an hour has means
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = within_a_day)]
    pub last: HumanDuration,
    /// Time at which it ends, UTC: 03:04, 2026-11-22T03:04:05Z, or -1h (before now) [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<Moment>,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Parses a length that the agent accepts.
fn within_a_day(text: &str) -> Result<HumanDuration, String> {
    let span = HumanDuration::from_seconds_or_text(text)?;
    let seconds = 1..=DAY_SECONDS;
    if seconds.contains(&span.0.as_secs()) {
        Ok(span)
    } else {
        Err("use a time from 1s to 24h".to_owned())
    }
}

/// Writes the last seconds of a running agent to a file.
///
/// # Errors
/// The agent does not answer or keeps no history, or the file cannot be written.
pub fn snapshot(args: &SnapshotArgs) -> Result<(), Failure> {
    save(&AgentClient::new(&args.agent)?.with_timeout(SNAPSHOT_TIMEOUT), &args.part)
}

/// Writes the last seconds of an agent's history to a file.
///
/// # Errors
/// See [`snapshot`].
pub fn save(client: &AgentClient, part: &PartArgs) -> Result<(), Failure> {
    let seconds = part.last.0.as_secs();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let until = part.until.map(|until| format!("&until={}", until.before(now)));
    let path = format!("/api/v1/recording?seconds={seconds}{}", until.unwrap_or_default());
    let bytes = block_on(client.bytes(&path))?;
    let path = part.output.display();
    std::fs::write(&part.output, &bytes).map_err(|error| {
        Failure::config(format!("--output: cannot write {path}: {error}; correct the path"))
    })?;
    // The plugin runs on more systems than the program with `replay`.
    let place = if cfg!(target_os = "linux") { "" } else { " on Linux" };
    output::show(&format!(
        "{path}: {} bytes; open it{place} with cpuwarden replay {path}\n",
        bytes.len()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        for text in ["60", "60s", "1m"] {
            assert_eq!(within_a_day(text).unwrap().0, Duration::from_secs(60), "{text}");
        }
        for text in ["0", "86401", "25h", "soon", ""] {
            assert!(within_a_day(text).is_err(), "{text}");
        }
    }
}
