//! Options of `cpuwarden demo`.

use std::io::{self, IsTerminal as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use agent_client::DEFAULT_ADDRESS;
use clap::{Args, ValueEnum};
use console::{HumanDuration, listen_address};

/// Time of the single table, if standard output is not a terminal and no duration is given.
const ONE_TABLE_AFTER: Duration = Duration::from_secs(10);

/// Options of `cpuwarden demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Exit after this time, e.g. 90 or 5m [default: at Ctrl-C; after 10s if standard output is not
    /// a terminal]
    #[arg(long, value_name = "SECONDS", value_parser = at_least::<1>)]
    pub duration: Option<HumanDuration>,
    /// Print one table as plain text after this number of seconds, and exit [default: 10]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10", conflicts_with = "duration",
          value_parser = at_least::<3>)]
    pub once: Option<HumanDuration>,
    /// Output format of the single table
    #[arg(short, long, value_enum, default_value_t, requires = "once")]
    pub output: DemoOutput,
    /// Address and port of the page and of /metrics; if the port is in use, the demo selects another one
    #[arg(long, value_name = "ADDR:PORT", default_value_t = DEFAULT_ADDRESS, value_parser = listen_address)]
    pub listen: SocketAddr,
}

/// Output format of the demo's single table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DemoOutput {
    /// Plain text
    #[default]
    Table,
    /// One JSON object
    Json,
}

impl DemoArgs {
    /// Whether the demo opens the view, and not prints one table.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.once.is_none() && io::stdout().is_terminal()
    }

    /// Time until the demo ends; `None` for a view that stays open.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        let given = self.once.or(self.duration).map(|span| span.0);
        given.or_else(|| (!self.is_live()).then_some(ONE_TABLE_AFTER))
    }

    /// The address of `--listen`, with any free port if its port is in use.
    #[must_use]
    pub fn free_address(&self) -> SocketAddr {
        match TcpListener::bind(self.listen) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                SocketAddr::new(self.listen.ip(), 0)
            }
            // Free, or invalid in a way that the server will report.
            _ => self.listen,
        }
    }

    /// The URL of a path at the address in use, with the reason if that is not the one of
    /// `--listen`.
    pub(crate) fn url(&self, actual: SocketAddr, path: &str) -> String {
        let mut url = format!("http://{actual}{path}");
        if self.listen.port() != 0 && self.listen != actual {
            url += &format!("  ({} is in use)", self.listen);
        }
        url
    }
}

/// Parses a time that is long enough to show something: `3` and `3s` mean the same.
fn at_least<const SECONDS: u64>(text: &str) -> Result<HumanDuration, String> {
    let span = HumanDuration::from_seconds_or_text(text)?;
    if span.0 < Duration::from_secs(SECONDS) {
        Err(format!("too short; use at least {SECONDS}s"))
    } else {
        Ok(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        for text in ["3", "3s", "3000ms"] {
            assert_eq!(at_least::<3>(text).unwrap().0, Duration::from_secs(3), "{text}");
        }
        for text in ["2", "2s", "0", "soon", ""] {
            assert!(at_least::<3>(text).is_err(), "{text}");
        }
    }
}
